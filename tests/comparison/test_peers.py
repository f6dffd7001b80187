"""Peers in comparisons: whole runs of stable-baselines3, tiny."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from discorl.cli.__main__ import main
from discorl.comparison.cells import Cell
from discorl.comparison.config import CompareConfig
from discorl.comparison.peers import PeerConfig
from discorl.comparison.run import resume_comparison, start_comparison
from discorl.comparison.stable_baselines import ImageFeatures, _make, check_peer, run_peer
from discorl.envs.base import EnvironmentConfig
from discorl.errors import DiscorlError
from discorl.extras import install_line

vec_env = pytest.importorskip(
    "stable_baselines3.common.vec_env",
    reason="stable-baselines3 is not here: pip install 'discorl[bench]'",
)

sys.path.append(str(Path(__file__).parents[1] / "envs"))  # Environments by name.

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
        ("zoo/ppo:n_stepz=8", "unknown setting in --rules zoo/ppo: 'n_stepz'. Did you mean n_step"),
        ("zoo/ppo:normalize=8", "--rules zoo/ppo: normalize: expected true or false, got 8"),
        ("zoo/ppo:learning_rate=lin_x", "learning_rate: expected lin_NUMBER, got lin_x"),
        ("zoo/dqn:net_arch=8,none", "net_arch: expected numbers of units, got 8,none"),
        ("zoo/pp0", "unknown algorithm 'zoo/pp0'. Did you mean zoo/ppo"),
        ("zoo/a2c", "unknown algorithm 'zoo/a2c'"),
    ],
)
def test_mistakes_are_explained_before_anything_runs(name, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--rules", name, "--envs", ENV, "--env-steps", "100"]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(DiscorlError, match=re.escape(install_line("bench"))):
        check_peer(peer("ppo", ENV))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_small_images_in_dictionaries_can_be_read(algorithm):
    pytest.importorskip("minigrid")
    for settings in ({}, {"normalize": True}):
        check_peer(peer(algorithm, "minigrid:MiniGrid-DoorKey-5x5-v0", **settings))


def test_normalising_leaves_the_returns_as_they_are():
    # Every reward of CartPole is 1, so a return is the length of its episode.
    settings = {"normalize": True, "n_steps": 32, "batch_size": 32}
    episodes = []
    model = _make(peer("ppo", "CartPole-v1", **settings), episodes, "sb3/ppo")
    assert isinstance(model.get_env(), vec_env.VecNormalize)
    assert model.get_env().gamma == 0.99
    model.learn(256)
    assert len(episodes) > 3
    assert all(episode.total_reward == episode.length for episode in episodes)
    # What the algorithm learned from was scaled.
    assert not np.isin(model.rollout_buffer.rewards, (0, 1)).all()
    other = _make(peer("ppo", "CartPole-v1", gamma=0.9, **settings), [], None)
    assert other.get_env().gamma == 0.9


def test_linear_schedules_end_at_nothing():
    settings = {"learning_rate": "lin_0.002", "clip_range": "lin_0.2", "n_steps": 32}
    model = _make(peer("ppo", ENV, env_steps=40, batch_size=32, **settings), [], None)
    assert [model.lr_schedule(left) for left in (1, 0.5, 0, -0.1)] == [0.002, 0.001, 0, 0]
    assert model.clip_range(0.5) == 0.1
    # Two rollouts: the second ends beyond the last step.
    model.learn(40)
    assert model.num_timesteps == 64
    assert model.policy.optimizer.param_groups[0]["lr"] == 0


@pytest.mark.parametrize(("value", "units"), [((32, 16), [32, 16]), ("32,16", [32, 16]), (8, [8])])
def test_layers_can_be_chosen(value, units):
    model = _make(peer("dqn", "CartPole-v1", net_arch=value), [], None)
    layers = [m.out_features for m in model.q_net.modules() if isinstance(m, torch.nn.Linear)]
    assert layers == [*units, 2]


@pytest.mark.parametrize("name", ["zoo/ppo", "zoo/dqn:net_arch=16,16"])
def test_tuned_peers_run(name, tmp_path):
    config = CompareConfig(rules=(name,), envs=("CartPole-v1",), seeds=1, env_steps=300)
    start_comparison(config, tmp_path / "cmp", jobs=1)
    ((_, cell),) = cells(tmp_path / "cmp").items()
    assert cell["env_steps"] == 512  # Whole rollouts, of 256 steps both.
    assert cell["episodes"] > 0
    settings = cell["config"]["settings"]
    if name == "zoo/ppo":
        assert (settings["learning_rate"], settings["gae_lambda"]) == ("lin_0.001", 0.8)
    else:
        assert (settings["net_arch"], settings["train_freq"]) == ("16,16", 256)


@pytest.mark.parametrize("kind", ["InDictionary", "InInfo", "ByMethod"])
def test_a_peer_keeps_to_legal_actions(kind):
    """The environments raise at the first one that is not."""
    pytest.importorskip("sb3_contrib", reason="needs pip install 'discorl[bench]'")
    options = EnvironmentConfig(mask_actions=kind != "InDictionary")
    settings = {"num_envs": 2, "n_steps": 16, "batch_size": 16}
    config = peer("maskable_ppo", f"locked_envs:{kind}", 128, options, **settings)
    result = run_peer(Cell("sb3/maskable_ppo", config, ""))
    assert result.env_steps == 128
    assert result.episodes > 10


def test_a_peer_without_masks_learns_of_the_one_that_has_them():
    config = peer("ppo", "locked_envs:InDictionary", n_steps=16, batch_size=16)
    with pytest.raises(DiscorlError, match=r"door \d is locked.*sb3/maskable_ppo keeps to legal"):
        run_peer(Cell("sb3/ppo", config, ""))


@pytest.mark.parametrize("name", ["Labels", "Words", "Stacks"])
def test_names_texts_and_stacks_are_read_like_our_agents_do(name):
    settings = {"n_steps": 16, "batch_size": 16}
    model = _make(peer("ppo", f"named_envs:{name}", **settings), [], "sb3/ppo")
    model.learn(32)
    kinds = {"Labels": 2, "Words": 1, "Stacks": 0}[name]
    torsos = [m for m in model.policy.modules() if isinstance(m, nn.Embedding)]
    assert len(torsos) >= kinds
    model.get_env().close()


@pytest.mark.parametrize("name", ["DottedKeys", "DottedKinds"])
@pytest.mark.parametrize("normalize", [False, True])
def test_entries_have_names_that_learners_can_take(name, normalize):
    settings = {"n_steps": 16, "batch_size": 16, "normalize": normalize}
    result = run_peer(Cell("sb3/ppo", peer("ppo", f"named_envs:{name}", **settings), ""))
    assert result.episodes > 0


def test_names_are_not_normalised():
    config = peer("ppo", "named_envs:Labels", normalize=True, n_steps=16, batch_size=16)
    env = _make(config, [], "sb3/ppo").get_env()
    shown = env.reset()
    assert shown["map"].max() >= 3
    assert np.array_equal(shown["map"], shown["map"].round())


def test_what_episodes_came_to_is_in_the_result():
    config = peer("ppo", "named_envs:Labels", n_steps=16, batch_size=16)
    result = run_peer(Cell("sb3/ppo", config, ""))
    assert result.outcomes == {"won": pytest.approx(0.5, abs=0.5)}
