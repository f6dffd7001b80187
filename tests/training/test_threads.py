"""How many threads a run computes on, and who decides."""

import json

import pytest
import torch

import discorl
from discorl import runtime
from discorl.cli.__main__ import main

SMALL = ("catch:rows=5,columns=5", "actor_critic")
SHORT = {"steps": 2, "log_every": 1, "eval_episodes": 1}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """As in a process that nobody has told anything, on two cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(runtime, "_threads_by_size", False)
    torch.set_num_threads(2)


def train(folder, *flags):
    words = ["train", SMALL[0], "--rule", SMALL[1], "--out", str(folder), "--eval-episodes", "1"]
    assert main([*words, "--steps", "2", "--log-every", "1", *flags]) == 0
    return json.loads((folder / "result.json").read_text())["threads"]


def test_a_command_takes_one_thread_for_small_updates(tmp_path):
    assert train(tmp_path / "run") == 1
    assert torch.get_num_threads() == 2


def test_large_updates_keep_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "SMALL_WORK", 0)
    assert train(tmp_path / "run") == 2


def test_the_flag_decides_and_is_no_obstacle_to_resuming(tmp_path):
    folder = tmp_path / "run"
    assert train(folder, "--threads", "2") == 2
    assert json.loads((folder / "config.json").read_text())["threads"] == 2
    assert main(["resume", str(folder), "--steps", "3", "--threads", "1"]) == 0
    assert json.loads((folder / "result.json").read_text())["threads"] == 1
    assert main(["evaluate", str(folder), "--episodes", "1", "--threads", "2"]) == 0


def test_the_environment_decides(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert train(tmp_path / "run") == 2


def test_python_keeps_its_threads_unless_told(tmp_path):
    assert discorl.train(*SMALL, tmp_path / "a", **SHORT)["threads"] == 2
    assert discorl.train(*SMALL, tmp_path / "b", threads=1, **SHORT)["threads"] == 1
    assert torch.get_num_threads() == 2


def test_published_networks_are_not_small():
    config = discorl.make_config("catch", "actor_critic", "published", torso=(512, 512))
    small = discorl.make_config(*SMALL)
    works = []
    for each in (small, config):
        trainer = discorl.Trainer(each, discorl.load_rule(each.rule))
        works.append(trainer.life.work)
        trainer.close()
    assert works[0] < runtime.SMALL_WORK < works[1]
