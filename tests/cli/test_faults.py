"""Two processes on one run folder, one of them killed at any moment: nothing is lost."""

import random
import shutil
import signal
import subprocess
import sys
import time
import warnings

import pytest

import discorl
from discorl.cli.__main__ import main
from discorl.runs.checkpoint import load_latest
from discorl.runs.metrics import read_metrics

STEPS = 4000
TRAIN = ["train", "catch:rows=3,columns=3", "--rule", "actor_critic", "--torso", "4",
         "--eval-episodes", "2", "--checkpoint-every", "20", "--log-every", "20"]  # fmt: skip
OTHERS = {
    "train": [*TRAIN, "--steps", "50", "--out", "FOLDER"],
    "resume": ["resume", "FOLDER"],
    "evaluate": ["evaluate", "FOLDER", "--episodes", "50"],
    "plot": ["plot", "FOLDER", "--out", "PICTURE"],
}


def start(args):
    command = [sys.executable, "-m", "discorl.cli", *args]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that was stopped early."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    assert main([*TRAIN, "--steps", "40", "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(2, 32))
def test_two_processes_and_a_kill_lose_nothing(begun, trial, tmp_path):
    disturb(begun, trial, tmp_path)


@pytest.mark.parametrize("trial", range(2))
def test_two_processes_and_a_kill_lose_nothing_twice(begun, trial, tmp_path):
    disturb(begun, trial, tmp_path)


def disturb(begun, trial, tmp_path):
    """A run that begins or resumes, another process on its folder, and a kill of either or both."""
    rng = random.Random(trial)
    folder = tmp_path / "run"
    words = {"FOLDER": str(folder), "PICTURE": str(tmp_path / "p.png")}
    first_args = [*TRAIN, "--steps", str(STEPS), "--out", str(folder)]
    if resumes := rng.random() < 0.6:
        shutil.copytree(begun, folder)
        first_args = ["resume", str(folder), "--steps", str(STEPS)]
    other = rng.choice(sorted(OTHERS))
    first = start(first_args)
    time.sleep(rng.uniform(0, 4))
    second = start([words.get(word, word) for word in OTHERS[other]])
    time.sleep(rng.uniform(0, 5))
    before = known(folder)
    victims = rng.choice([[first], [second], [first, second]])
    for process in victims:
        process.send_signal(signal.SIGKILL)
    for process in (first, second):
        if process not in victims:
            time.sleep(rng.uniform(0, 1))
            process.send_signal(signal.SIGTERM)
    said = {process.pid: process.communicate()[1] for process in (first, second)}
    for process in (first, second):
        allowed = (0, 2, -signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM)
        assert process.returncode in allowed, said
        assert "Traceback" not in said[process.pid], said
    if not (folder / "config.json").exists():
        assert not resumes
        assert not before
        return
    # Whatever happened, the folder can be read, and has what it had.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint = load_latest(folder / "checkpoints")
    step = checkpoint.step if checkpoint else 0
    assert step >= max([40 if resumes else 0, *before])
    run = discorl.load_run(folder)
    if checkpoint:
        assert run.evaluate(2).episodes == 2
    if read_metrics(folder):  # It may have been stopped before its first record.
        assert run.plot(tmp_path / "after.png").exists()
    end = step + 20
    assert run.resume(end)["steps"] == end
    steps = [row["step"] for row in read_metrics(folder)]
    assert steps == list(range(20, end + 1, 20)) if step % 20 == 0 else steps == sorted(set(steps))
    assert steps[-1] == end


def known(folder):
    """The steps of the checkpoints that are whole at this moment."""
    return [int(path.name[5:]) for path in folder.glob("checkpoints/step_*")]
