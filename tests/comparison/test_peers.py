"""Peers in comparisons: whole runs of stable-baselines3, tiny."""

import json
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from discorl.cli.__main__ import main
from discorl.comparison.cells import Cell
from discorl.comparison.config import CompareConfig
from discorl.comparison.peers import PeerConfig
from discorl.comparison.run import resume_comparison, start_comparison
from discorl.comparison.stable_baselines import ImageFeatures, check_peer, run_peer
from discorl.envs.base import EnvironmentConfig
from discorl.errors import DiscorlError

pytest.importorskip(
    "stable_baselines3", reason="stable-baselines3 is not here: pip install 'discorl[bench]'"
)

ENV = "catch:rows=3,columns=3"
PPO = "sb3/ppo:num_envs=4,n_steps=8,batch_size=16"
DQN = "sb3/dqn:learning_starts=10,buffer_size=100"
SMALL = ("num_envs=4", "rollout_length=9", "batch_size=4", "replay_capacity=16", "torso=8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    config = CompareConfig(
        rules=("actor_critic", PPO, DQN), envs=(ENV,), seeds=2, env_steps=200, set=SMALL
    )
    folder = tmp_path_factory.mktemp("peers") / "cmp"
    return start_comparison(config, folder, jobs=1), folder


def cells(folder):
    found = [json.loads(path.read_text()) for path in (folder / "cells").iterdir()]
    return {(cell["rule"], cell["seed"]): cell for cell in found}


def peer(algorithm, env, env_steps=64, options=None, **settings):
    settings = {"num_envs": 1} | settings
    return PeerConfig(env, 0, env_steps, algorithm, settings, options or EnvironmentConfig())


def test_rules_and_peers_take_as_many_environment_steps(whole):
    _, folder = whole
    found = cells(folder)
    # In whole rollouts: 6 of 4 x 9, 7 of 4 x 8, 50 of 4 x 1.
    steps = {rule: cell["env_steps"] for (rule, _), cell in found.items()}
    assert steps == {"actor_critic": 216, PPO: 224, DQN: 200}
    for (rule, _), cell in found.items():
        if rule != "actor_critic":
            assert cell["steps"] == cell["env_steps"]
            # Every episode of this board has two steps.
            assert cell["episodes"] == cell["env_steps"] / 2
        assert cell["curve"][-1] == [cell["steps"], cell["final_return"]]


def test_seeds_and_copies_differ(whole):
    curves = [whole[0].groups[DQN, ENV].runs[seed].curve for seed in range(2)]
    assert curves[0] != curves[1]


def test_the_table_says_what_was_equal(whole):
    _, folder = whole
    table = (folder / "table.md").read_text()
    assert "Runs have 200 environment steps, in whole rollouts." in table
    assert "differ in environment steps" not in table
    assert not (folder / "rules").exists()


def test_going_on_gives_the_same(whole):
    summary, folder = whole
    for path in (folder / "cells").glob("*sb3*s1*.json"):
        path.unlink()
    again = resume_comparison(folder, jobs=1)
    for rule in (PPO, DQN):
        ours, theirs = (part.groups[rule, ENV].returns.tolist() for part in (again, summary))
        assert ours == theirs


def test_the_curve_is_the_mean_of_the_newest_episodes():
    config = peer("a2c", ENV, env_steps=600, num_envs=2)
    result = run_peer(Cell("sb3/a2c", config, "sb3/a2c"))
    assert 60 <= len(result.curve) <= 101
    assert [steps for steps, _ in result.curve] == sorted({steps for steps, _ in result.curve})
    # Returns are -1 and 1: sums of 100 of them are even.
    assert result.final_return * 100 == pytest.approx(round(result.final_return * 50) * 2)


def test_the_body_for_small_images_is_ours():
    for shape in ((10, 10, 4), (10, 10, 10)):
        features = ImageFeatures(spaces.Box(0, 254, shape, np.uint8))
        (conv,) = (m for m in features.modules() if isinstance(m, torch.nn.Conv2d))
        assert (conv.in_channels, conv.out_channels, conv.kernel_size) == (shape[2], 16, (3, 3))
        assert features(torch.zeros(5, *shape)).shape == (5, 128)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_minatar(algorithm):
    pytest.importorskip("minatar")
    settings = {"ppo": {"n_steps": 64, "batch_size": 32}, "dqn": {"learning_starts": 8}}
    config = peer(algorithm, "minatar/breakout", **settings[algorithm])
    result = run_peer(Cell(f"sb3/{algorithm}", config, ""))
    assert result.env_steps == 64
    assert result.episodes > 0


def test_atari_and_continuous_actions_can_begin():
    check_peer(peer("dqn", "Pendulum-v1", options=EnvironmentConfig(discretize_actions=3)))
    pytest.importorskip("ale_py")
    check_peer(peer("ppo", "ALE/Pong-v5", num_envs=2))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sb3/ppo:n_stepz=8", "unknown setting in --rules sb3/ppo: 'n_stepz'. Did you mean n_step"),
        ("sb3/ppo:policy_kwargs=8", "'policy_kwargs'"),
        ("sb3/ppo:num_envs=0", "num_envs: expected at least 1"),
        ("sb3/ppo:n_steps=1,num_envs=1", "--rules sb3/ppo on catch"),
    ],
)
def test_mistakes_are_explained_before_anything_runs(name, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--rules", name, "--envs", ENV, "--env-steps", "100"]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(DiscorlError, match=r"pip install 'discorl\[bench\]'"):
        check_peer(peer("ppo", ENV))
