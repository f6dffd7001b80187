"""Calls on every engine: results, errors and deaths."""

import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from discorl.engines import Failure, make_engine, run_calls
from discorl.errors import DiscorlError
from discorl.extras import install_line

HERE = Path(__file__).parent
ENGINES = {"local": {}, "ray": {}, "slurm": {"cluster": "local"}}
NEEDS = {"local": "loky", "ray": "ray", "slurm": "submitit"}


# A process for each call, which imports PyTorch
SLOW_SLURM = pytest.param("slurm", marks=pytest.mark.slow)


@pytest.fixture(params=["local", "ray", SLOW_SLURM])
def engine(request, tmp_path, monkeypatch):
    """Makes the engine, on this machine, with one worker unless told otherwise."""
    pytest.importorskip(NEEDS[request.param])
    # So that new processes find this module.
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def make(jobs=1, **options):
        return make_engine(request.param, jobs, ENGINES[request.param] | options, tmp_path)

    make.name = request.param
    return make


def fate(number):
    """A result, an error, a mistake of the user, or the end of the process."""
    if number == -1:
        raise DiscorlError("mend this")
    if number == -2:
        os._exit(7)
    return math.sqrt(number)


def dies_once(path):
    """The end of the process, the first time that it is called with a path."""
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "here"


def many_fates(task):
    """Above, or the end of the process the first time that it is called with a path."""
    return dies_once(task) if isinstance(task, Path) else fate(task)


def test_every_call_has_its_own_fate(engine, tmp_path):
    path = tmp_path / "tried"
    tasks = [4, -1, path] if engine.name == "slurm" else [4, path, -1, -3, 9]  # A process for each
    outcomes = dict(run_calls(engine(), many_fates, tasks, stop=[]))
    assert outcomes[path] == "here"
    assert outcomes[-1] == Failure("mend this")
    assert outcomes[4] == 2
    if engine.name != "slurm":
        assert outcomes[9] == 3
        assert outcomes[-3].error.startswith("ValueError: ")
        assert "Traceback" in outcomes[-3].details
    children = [" ".join(p.cmdline()) for p in psutil.Process().children(recursive=True)]
    assert not [line for line in children if "resource_tracker" not in line]


def test_a_call_that_kills_its_worker_every_time_fails():
    engine = make_engine("local", 1, {"retries": "0"}, Path())
    outcomes = dict(run_calls(engine, fate, [-2, 4], stop=[]))
    assert outcomes == {-2: Failure("the process died, exit code 7"), 4: 2}


def test_nothing_runs_once_told_to_stop(engine):
    assert list(run_calls(engine(), fate, [4, 9], stop=[2])) == []


def test_no_work(engine):
    assert list(run_calls(engine(jobs=2), fate, [], stop=[])) == []


@pytest.mark.slow
def test_calls_that_run_are_ended(engine):
    stop, seen = [], []

    def tick():
        seen.append(time.monotonic())
        if len(seen) == 10:
            stop.append(signal.SIGTERM)

    assert list(run_calls(engine(), time.sleep, [3600], stop, tick)) == []


def test_workers_end_with_whoever_started_them(tmp_path):
    program = (
        "import os, time; from pathlib import Path; from discorl.engines import *\n"
        f"from test_engines import tell_and_sleep\n"
        f"engine = make_engine('local', 1, {{}}, Path('.'))\n"
        f"list(run_calls(engine, tell_and_sleep, [Path({str(tmp_path / 'pid')!r})], []))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        worker = int(_wait_for(lambda: (tmp_path / "pid").exists() and _read(tmp_path / "pid")))
    finally:
        process.kill()
        process.wait()
    _wait_for(lambda: not _runs(worker))


def tell_and_sleep(path):
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(3600)


def _read(path):
    return path.read_text()


def _runs(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def _wait_for(condition):
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("lcoal", {}, "Did you mean local"),
        ("local", {"retry": "1"}, "unknown setting of --engine local: 'retry'"),
        ("local", {"retries": "-1"}, "retries=-1: expected at least 0"),
        ("ray", {"adress": "x"}, "Did you mean address"),
        ("slurm", {"cluster": "local", "partitoin": "x"}, "--engine slurm: "),
        ("slurm", {"cluster": "local", "timeout_min": "soon"}, "timeout_min"),
    ],
)
def test_mistakes_are_explained(name, options, words, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    with pytest.raises(DiscorlError, match=words):
        make_engine(name, None, options, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["ray", "slurm"])
def test_a_missing_package_is_named(name, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, f"discorl.engines.{name}", raising=False)
    monkeypatch.setitem(sys.modules, NEEDS[name], None)
    with pytest.raises(DiscorlError, match=re.escape(install_line(name))):
        make_engine(name, None, {}, tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("submitit") is None, reason="needs the extra: discorl[slurm]"
)
def test_without_slurm_there_are_no_jobs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DiscorlError, match=r"--engine slurm: .*slurm"):
        make_engine("slurm", None, {}, tmp_path)
