"""`discorl train` in several processes: stopped, resumed on as many or fewer, and broken."""

import json
import os
import shutil
import signal
import time
import tomllib
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import programs
import pytest
import torch
from programs import TWO, last_tensors, rank, timeless

from discorl.cli.__main__ import main
from discorl.group import Group
from discorl.runs.checkpoint import list_checkpoints
from discorl.runs.metrics import read_metrics
from discorl.training import start as beginning
from discorl.training import together

ROOT = Path(__file__).parents[2]
STEPS = 30
TRAIN = [
    *("train", "cartpole", "--rule", "actor_critic", "--steps", STEPS),
    *("--num-envs", 4, "--torso", 8, "--batch-size", 8, "--replay-capacity", 32),
    *("--replay-fraction", 0.5, "--rollout-length", 6, "--memory", "gru", "--memory-size", 4),
    *("--normalize-observations", "--normalize-rewards", 1),
    *("--log-every", 1, "--checkpoint-every", 10, "--eval-every", 15, "--eval-episodes", 4),
]
start = partial(programs.start, program=TWO)
finish = partial(programs.finish, timeout=240)


def wait_for_records(process, folder, count, timeout=180):
    path, deadline = folder / "metrics.jsonl", time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.read_text().count("\n") >= count:
            return
        time.sleep(0.005)
    raise AssertionError(finish(process))


def assert_same_tensors(one, other):
    """Bit for bit, in the newest checkpoints."""
    first, second = last_tensors(one), last_tensors(other)
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two processes that nothing interrupts, and what it printed."""
    folder = tmp_path_factory.mktemp("train") / "whole"
    code, out, err = finish(start(*TRAIN, "--json", "--out", folder))
    assert code == 0, err
    return folder, out, err


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """One that a signal to its second process stopped, and what it printed."""
    folder = tmp_path_factory.mktemp("train") / "stopped"
    process = start(*TRAIN, "--out", folder)
    wait_for_records(process, folder, 12)
    os.kill(rank(process, 1), signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 0, err
    return folder, out + err


def test_one_process_writes_and_speaks(whole):
    folder, out, err = whole
    result = json.loads(out)
    assert result == json.loads((folder / "result.json").read_text())
    assert (result["processes"], result["steps"]) == (2, STEPS)
    assert result["env_steps"] == STEPS * 4 * 6
    assert [record["step"] for record in read_metrics(folder)] == list(range(1, STEPS + 1))
    assert all(0 < r["time/communication_share"] < 1 for r in read_metrics(folder))
    assert err.count(f"step {STEPS}/{STEPS}") == 1
    assert "2 processes with 2 of these each" in err
    tensors = last_tensors(folder)
    assert tensors["process_0001/replay/position"].tolist() == [16, 60 % 16]
    assert not torch.equal(tensors["replay/actions"], tensors["process_0001/replay/actions"])
    assert not any("learner" in name for name in tensors if name.startswith("process_"))


def test_a_signal_to_one_process_stops_all_of_them(stopped):
    folder, said = stopped
    assert said.count(f"Resume with: discorl resume {folder}") == 1
    assert "Traceback" not in said
    assert not (folder / "result.json").exists()


def test_two_processes_resume_to_the_bit(whole, stopped, tmp_path):
    folder = shutil.copytree(stopped[0], tmp_path / "run")
    code, _, err = finish(start("resume", folder))
    assert code == 0, err
    assert_same_tensors(whole[0], folder)
    assert timeless(folder) == timeless(whole[0])


def test_one_process_goes_on_from_two(stopped, tmp_path, capsys):
    folder = shutil.copytree(stopped[0], tmp_path / "run")
    before = last_tensors(folder)
    assert main(["resume", str(folder)]) == 0
    out, _ = capsys.readouterr()
    assert "processes: 1, before 2" in out
    assert "the environments begin new episodes" in " ".join(out.split())
    records = read_metrics(folder)
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    counts = [record["charts/episodes"] for record in records]
    assert counts == sorted(counts)
    after = last_tensors(folder)
    assert not any(name.startswith("process_") for name in after)
    assert after["replay/position"][0] == 32
    seen = before["env/normalizer/observations/count"]
    assert after["env/normalizer/observations/count"] > seen


def assert_stops_quietly(process, folder):
    """A signal to the launcher is all that happens to it."""
    wait_for_records(process, folder, 2)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 143, err
    assert f"Resume with: discorl resume {folder}" in out
    assert "Traceback" not in out + err
    assert list_checkpoints(folder / "checkpoints")


def test_a_signal_to_the_launcher_stops_it_quietly(tmp_path):
    folder = tmp_path / "run"
    assert_stops_quietly(start(*TRAIN, "--out", folder), folder)


DISCOVER = [
    *("discover", "--meta-steps", 3000, "--agents", 2, "--envs", "catch:rows=4,columns=3"),
    *("--widths", 8, "--model-size", 4, "--head-hidden", 4, "--value-torso", 8),
    *("--num-envs", 2, "--rollout-length", 4, "--lifetimes", 4, 8, "--predictions", 12),
    *("--hidden", 8, "--meta-hidden", 4, "--num-bins", 11, "--max-abs-value", 5),
    *("--log-every", 1),
]


@pytest.fixture
def torchrun(tmp_path):
    """Starts a command in two processes of plain `torchrun`, discorl being installed as its
    project file says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = tmp_path / f"discorl-{project['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: discorl\nVersion: {project['version']}\n")
    entries = "".join(
        f"{n} = {v}\n" for n, v in project["entry-points"]["torchrun.handlers"].items()
    )
    (installed / "entry_points.txt").write_text(f"[torchrun.handlers]\n{entries}")
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return partial(
        programs.start,
        program=(*words, "-m", "discorl.cli"),
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )


@pytest.mark.parametrize("command", [TRAIN, DISCOVER], ids=["train", "discover"])
def test_torchrun_ends_as_quietly(torchrun, tmp_path, command):
    folder = tmp_path / "run"
    assert_stops_quietly(torchrun(*command, "--out", folder), folder)


def test_torchrun_tells_who_failed_in_a_line(torchrun, tmp_path):
    process = torchrun("train", "catch", "--num-envs", 3, "--out", tmp_path / "run")
    code, _, err = finish(process)
    assert code == 2, err
    assert "ended first, with exit code 2" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "signum", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_process_that_is_gone_stops_the_others(tmp_path, signum):
    folder = tmp_path / "run"
    process = start(*TRAIN, "--steps", 3000, "--process-timeout", 5, "--out", folder)
    wait_for_records(process, folder, 2)
    os.kill(rank(process, 1), signum)
    code, out, err = finish(process)
    assert code not in (0, 143), err
    assert "process 0 of 2 gave up: process 1 died or cannot be reached" in err
    assert "Traceback" not in out + err


def test_a_process_that_is_stopped_for_a_while_is_waited_for(whole, tmp_path):
    folder = tmp_path / "run"
    process = start(*TRAIN, "--out", folder)
    wait_for_records(process, folder, 2)
    os.kill(rank(process, 1), signal.SIGSTOP)
    time.sleep(3)
    os.kill(rank(process, 1), signal.SIGCONT)
    code, _, err = finish(process)
    assert code == 0, err
    assert_same_tensors(whole[0], folder)
    assert timeless(folder) == timeless(whole[0])


def test_a_run_resumes_itself_after_a_process_died(whole, tmp_path):
    folder = tmp_path / "run"
    process = start(*TRAIN, "--out", folder, program=(*TWO, "--restarts", "1"))
    wait_for_records(process, folder, 12)
    os.kill(rank(process, 1), signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0, err
    assert "resuming from step 10" in out
    assert_same_tensors(whole[0], folder)
    assert timeless(folder) == timeless(whole[0])


def test_nobody_is_left_over_when_the_launcher_is_gone(tmp_path):
    """They save, and end: nothing is lost."""
    folder = tmp_path / "run"
    process = start(*TRAIN, "--steps", 3000, "--checkpoint-every", 3000, "--out", folder)
    wait_for_records(process, folder, 2)
    ranks = [rank(process, number) for number in (0, 1)]
    process.kill()
    finish(process)
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() for pid in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list_checkpoints(folder / "checkpoints")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "catch"], "--processes"),
        (["--processes", "2"], "launch what? After the processes comes one of train, discover"),
        (["--processes", "2", "train", "catch"], "give --out: without it"),
        (["--processes", "2", "train", "--nmu-envs", "2"], "unknown: --nmu-envs"),
        (["--processes", "2", "--machines", "2", "train"], "--machines and --meet-at"),
    ],
)
def test_what_cannot_be_launched_is_said_once(args, words, capsys):
    assert main(["launch", *args]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--num-envs", "5"], "--num-envs 5: 2 processes cannot share it equally"),
        (["--batch-size", "6"], "3 new and 3 replayed trajectories"),
        (["--replay-capacity", "33"], "--replay-capacity 33"),
        (["--compile"], "--compile: not with several processes"),
        (["--seeds", "2", "--stacked"], "--stacked: not in several processes"),
    ],
)
def test_what_cannot_be_shared_is_said(flags, words, tmp_path, monkeypatch, capsys):
    """Without starting any: a group of two that never needs to talk."""

    class Two(Group):
        size = 2

    monkeypatch.setattr(beginning, "join_group", lambda *_: nullcontext(Two()))
    monkeypatch.setattr(together, "group_size", lambda: 2)
    args = [*TRAIN, "--batch-size", 8, *flags, "--out", tmp_path / "run"]
    assert main([str(arg) for arg in args]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
