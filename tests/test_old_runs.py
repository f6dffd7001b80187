"""Run folders of version 0.1, killed half-way: they are read, resumed, and come to the same end.

`tests/data/v0_1` was written by version 0.1, which also went on from there to what is expected.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import discorl
from discorl.life.rewards import RewardScaler

DATA = Path(__file__).parent / "data" / "v0_1"


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the old folders, beside the rule file that one of them was trained with."""
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(folder, step):
    return load_file(folder / "checkpoints" / f"step_{step:08d}" / "state.safetensors")


def assert_same(expected, found, renamed=lambda name: name):
    for name, tensor in expected.items():
        # The same bits on the machine that wrote them; others may round differently.
        torch.testing.assert_close(found[renamed(name)], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["train_disco", "train_gymnasium"])
def test_a_training_run_comes_to_the_same_end(old, name, monkeypatch):
    """But for one thing: version 0.1 added what a simulator's broken-off episodes had earned to
    those that it began on resuming, and so scaled rewards by other returns."""
    monkeypatch.setattr(RewardScaler, "begin", lambda scaler: None)
    run = discorl.load_run(old / name).resume()
    assert_same(load_file(old / f"{name}_expected.safetensors"), saved(old / name, 12))
    for key, value in json.loads((old / f"{name}_result.json").read_text()).items():
        assert run[key] == pytest.approx(value, abs=1e-3), key


def test_a_discovery_comes_to_the_same_end(old):
    discorl.load_run(old / "discover").resume()
    assert_same(
        load_file(old / "discover_expected.safetensors"),
        saved(old / "discover", 6),
        lambda name: name.replace("/state/params", "/learner/params"),
    )


def test_the_agent_of_an_old_run_acts(old):
    agent = discorl.load_agent(old / "train_gymnasium")
    assert agent.info["steps"] == 6
    actions, state = agent.act(torch.zeros(5, 4).numpy())
    assert actions.shape == (5,)
    assert state is None
    remembering = discorl.load_agent(old / "train_disco")
    _, state = remembering.act(torch.zeros(4, 3, 1, dtype=torch.uint8).numpy())
    assert set(state) == {"hidden"}


def test_the_agent_of_an_old_checkpoint_is_not_the_newest(old):
    folder = old / "train_gymnasium"
    discorl.load_run(folder).resume()
    (folder / "agent.json").unlink()  # As version 0.1 would have left it.
    for step in (6, 12):
        agent = discorl.load_agent(folder / "checkpoints" / f"step_{step:08d}")
        assert agent.info["steps"] == step
        weight = saved(folder, step)["learner/params/head.logits.weight"]
        assert torch.equal(agent.params["head.logits.weight"], weight)


def test_replay_of_an_old_discovery_is_a_share_of_the_copies(old):
    config = discorl.load_run(old / "discover").config
    assert config.life.experience.shares == (2, 2)
    assert [config.life_of(i).network.torso for i in range(3)] == [(8, 8), (6, 6), (8, 8)]


def test_the_shipped_discovery_can_be_repeated():
    path = Path(__file__).parents[1] / "discoveries" / "sprout" / "config.json"
    config = discorl.DiscoverConfig.from_json(json.loads(path.read_text()))
    assert config.life.experience.shares == (32, 0)
    assert config.life_of(0).network.torso == (64, 64)
    assert discorl.DiscoverConfig.from_json(config.to_json()) == config
