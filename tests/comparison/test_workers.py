"""Calls in worker processes: results, errors and deaths."""

import math
import os

from discorl.comparison.workers import Failure, run_in_workers
from discorl.errors import DiscorlError


def fate(number):
    """A result, an error, a mistake of the user, or the end of the process."""
    if number == -1:
        raise DiscorlError("mend this")
    if number == -2:
        os._exit(7)
    return math.sqrt(number)


def test_every_call_has_its_own_fate():
    outcomes = dict(run_in_workers(fate, [4, -2, -1, -3, 9], jobs=1, stop=[]))
    assert (outcomes[4], outcomes[9]) == (2, 3)
    assert outcomes[-2] == Failure("the process died, exit code 7")
    assert outcomes[-1] == Failure("mend this")
    assert outcomes[-3].error.startswith("ValueError: ")
    assert "Traceback" in outcomes[-3].details


def test_nothing_runs_once_told_to_stop():
    assert list(run_in_workers(fate, [4, 9], jobs=1, stop=[2])) == []


def test_no_work():
    assert list(run_in_workers(fate, [], jobs=2, stop=[])) == []
