"""Commands as processes of their own, and what they leave behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from discorl.runs.checkpoint import list_checkpoints
from discorl.runs.metrics import read_metrics

CLI = ("-m", "discorl.cli")
TWO = (*CLI, "launch", "--processes", "2", "--shutdown-timeout", "2")
"""What comes before a command in two processes."""
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def start(*arguments, program=CLI, **variables):
    """A command that runs, with more environment variables if given."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | variables,
    )


def finish(process, timeout):
    """Exit code, standard output and standard error."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_until(process, condition, timeout, pause=0.001):
    """Look often; True once it holds, False if the process ends before."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if condition():
            return True
        assert time.monotonic() < deadline, "the process hangs"
        time.sleep(pause)
    return False


def rank(process, number):
    """The process id of a rank, where the system tells."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not path.exists():
        pytest.skip("the system does not tell a process's children")
    for pid in map(int, path.read_text().split()):
        variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        if f"RANK={number}" in variables:
            return pid
    raise AssertionError("no such rank")


def records(folder):
    """How many records of metrics there are."""
    try:
        return (folder / "metrics.jsonl").read_text().count("\n")
    except FileNotFoundError:
        return 0


def is_writing(folder):
    """Whether a checkpoint is being written."""
    return any((folder / "checkpoints").glob(".tmp_*"))


def last_checkpoint(folder):
    """The folder of the newest checkpoint."""
    return list_checkpoints(folder / "checkpoints")[-1]


def last_tensors(folder):
    """What the newest checkpoint holds."""
    return load_file(last_checkpoint(folder) / "state.safetensors")


def timeless(folder):
    """The records of metrics without what depends on the machine's speed."""
    return [
        {name: value for name, value in record.items() if not name.startswith("time/")}
        for record in read_metrics(folder)
    ]
