"""Runs of two processes that are hurt again and again, and resumed each time.

`python tests/cli/process_faults.py` does it to a training run and to a discovery, and prints what
happened as tables.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import programs
import torch

from discorl.runs.checkpoint import list_checkpoints, load_latest

FAULTS = 20
TIMEOUT, SHUTDOWN = 6, 4
"""Seconds: how long processes wait for one that hangs, and how long it has after a signal."""
LIMIT = 300
LAUNCH = ("-m", "discorl.cli", "launch", "--processes", "2", "--shutdown-timeout", str(SHUTDOWN))
OFTEN = ("--log-every", 1, "--checkpoint-every", 5, "--process-timeout", TIMEOUT)
RUNS = {
    "train": (
        *("train", "catch:rows=4,columns=3", "--rule", "actor_critic", "--steps", 500),
        *("--num-envs", 4, "--torso", 8, "--batch-size", 8, "--replay-capacity", 32),
        *("--replay-fraction", 0.5, "--rollout-length", 6, "--memory", "gru", "--memory-size", 4),
        *("--normalize-rewards", 1, "--eval-episodes", 4, *OFTEN),
    ),
    "discover": (
        *("discover", "--meta-steps", 150, "--agents", 2, "--envs", "catch:rows=4,columns=3"),
        *("--widths", 8, "--model-size", 4, "--head-hidden", 4, "--value-torso", 8),
        *("--num-envs", 2, "--rollout-length", 4, "--lifetimes", 4, 8, "--predictions", 12),
        *("--hidden", 8, "--meta-hidden", 4, "--num-bins", 11, "--max-abs-value", 5),
        *("--eval-steps", 5, *OFTEN),
    ),
}
MOST = {"train": 20, "discover": 6}
"""How many more records are waited for at most, before something happens."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)


@dataclass(frozen=True)
class Fault:
    """What was done to a run, and what came of it."""

    what: str
    whom: str
    records: int
    """How many the run had written."""
    saved: int
    """The step of its newest checkpoint at that moment."""
    seconds: float
    """Until the launcher was gone, and everybody else."""
    code: int
    said: str
    """Who was named as missing, if anybody was."""
    step: int
    """Of the newest intact checkpoint afterwards."""


def hurt(name: str, folder: Path, rng: random.Random) -> Fault | None:
    """Start or resume a run and hurt it at some moment; None if it ended before."""
    mark = uuid.uuid4().hex
    process = start(name, folder, mark)
    before = programs.records(folder)
    if rng.random() < 0.2:  # Perhaps before it has begun.
        moment, awaited = time.monotonic() + rng.uniform(2, 15), 0
    else:
        moment, awaited = 0.0, before + rng.randint(1, MOST[name])

    def now() -> bool:
        there = len(ranks(mark)) == 2 and programs.records(folder) >= awaited
        return there and time.monotonic() >= moment

    if not programs.wait_until(process, now, LIMIT, pause=0.02):
        programs.finish(process, LIMIT)
        return None
    whom = rng.choice(("0", "1", "0", "1", "launcher"))
    what = rng.choice(SIGNALS[:2] if whom == "launcher" else SIGNALS)
    count, saved = programs.records(folder), newest(folder)
    target = process.pid if whom == "launcher" else ranks(mark)[whom]
    begun = time.monotonic()
    with suppress(ProcessLookupError):
        os.kill(target, what)
    code, _, err = programs.finish(process, LIMIT)
    assert "Traceback" not in err, err
    while living(mark):
        assert time.monotonic() < begun + LIMIT, "processes are left over"
        time.sleep(0.05)
    seconds = time.monotonic() - begun
    checkpoint = load_latest(folder / "checkpoints")  # It warns of one that is broken.
    step = checkpoint.step if checkpoint else 0
    assert step >= saved, "a checkpoint was lost"
    said = err.partition(" gave up: ")[2].partition(".")[0]
    said = said or "they did not meet" * ("did not meet" in err)
    return Fault(what.name, whom, count, saved, seconds, code, said, step)


def start(name, folder, mark, *flags):
    """A run in two processes, from its start if there is nothing to resume."""
    begun = (folder / "config.json").exists()
    words = ("resume", folder) if begun else (*RUNS[name], *flags, "--out", folder)
    return programs.start(*words, program=LAUNCH, DISCORL_MARK=mark)


def finish(name, folder, *flags, attempts=5):
    """Let a run end. On a busy machine, a process may again be taken for one that hangs."""
    for _ in range(attempts):
        code, _, err = programs.finish(start(name, folder, "none", *flags), 3 * LIMIT)
        if code == 0:
            return
    raise AssertionError(err)


def newest(folder):
    """The step of the newest checkpoint, 0 if there is none."""
    found = list_checkpoints(folder / "checkpoints")
    return int(found[-1].name.removeprefix("step_")) if found else 0


def living(mark):
    """The environment of every process of a run, by process id; also of those nobody owns."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            variables = path.read_bytes().decode(errors="replace").split("\0")
            if f"DISCORL_MARK={mark}" in variables:
                found[int(path.parent.name)] = dict(v.split("=", 1) for v in variables if "=" in v)
    return found


def ranks(mark):
    """Process ids by rank."""
    return {v["RANK"]: pid for pid, v in living(mark).items() if "RANK" in v}


def hurt_often(name: str, place: Path, faults: int, seed: int = 0) -> list[Fault]:
    """Hurt a run, resume it each time and let it end; it must come to what an unhurt one does."""
    rng, happened, hurt_run, whole = random.Random(seed), [], place / "hurt", place / "whole"
    while len(happened) < faults:
        fault = hurt(name, hurt_run, rng)
        if fault is None:
            break
        happened.append(fault)
        print(row(fault), flush=True)
    finish(name, hurt_run)
    finish(name, whole, "--process-timeout", 600)
    first, second = programs.last_tensors(whole), programs.last_tensors(hurt_run)
    assert list(first) == list(second)
    for key, tensor in first.items():
        assert torch.equal(tensor, second[key]), key
    assert programs.timeless(whole) == programs.timeless(hurt_run)
    return happened


HEAD = (
    "| signal | to process | records | checkpoint before | after | all gone after | exit code | "
    "named |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def row(fault: Fault) -> str:
    """A line of the table."""
    cells = (fault.what, fault.whom, fault.records, fault.saved, fault.step)
    cells += (f"{fault.seconds:.1f} s", fault.code, fault.said)
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    names = sys.argv[1:] or list(RUNS)
    for kind in names:
        print(f"\n{kind}\n\n{HEAD}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            done = hurt_often(kind, Path(folder), FAULTS)
        print(f"\n{len(done)} faults; the run ended as one that nothing happened to", flush=True)
