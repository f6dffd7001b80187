"""Rewards are shrunk by what returns deviate by, and by nothing else."""

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discorl.envs.sources import find_environment
from discorl.library.catalogue import load_rule
from discorl.life.rewards import RewardScaler
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer


def returns_by_hand(rewards, ended, discount=0.99):
    """Discounted sums since each episode's beginning, one copy after another."""
    found = []
    for copy in range(rewards.shape[1]):
        total = 0.0
        for reward, end in zip(rewards[:, copy], ended[:, copy], strict=True):
            total = discount * total + float(reward)
            found.append(total)
            total = 0.0 if end else total
    return np.array(found)


@given(seed=st.integers(0, 10_000), size=st.floats(0.01, 100), cut=st.integers(1, 11))
def test_the_scale_is_the_deviation_of_all_returns_so_far(seed, size, cut):
    generator = torch.Generator().manual_seed(seed)
    rewards = size * torch.randn(12, 3, generator=generator)
    ended = torch.rand(12, 3, generator=generator) < 0.3
    # Given the same steps in two parts, with a new scaler in between that is told of the first
    scaler, other = RewardScaler(3), RewardScaler(3)
    scaler.observe(rewards[:cut], ended[:cut])
    other.load_state_dict(scaler.state_dict())
    other.observe(rewards[cut:], ended[cut:])
    found = other.shrink(rewards[cut:])
    # Then the second part is divided by the deviation of both, if that is above one
    scale = max(returns_by_hand(rewards, ended).std(), 1.0)
    expected = (rewards[cut:].double() / scale).clamp(-10, 10)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    # And, if asked for, any rewards are brought to where returns have a given deviation
    factor = 7 / returns_by_hand(rewards, ended).std()
    expected = (rewards.double() * factor).clamp(-70, 70)
    found = other.normalize(rewards, 7.0)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_small_rewards_are_not_made_larger_by_shrinking():
    scaler = RewardScaler(2)
    rewards = torch.tensor([[0.0, 1.0], [-1.0, 0.0], [1.0, 0.5]])
    scaler.observe(rewards, torch.ones(3, 2, dtype=torch.bool))
    assert torch.equal(scaler.shrink(rewards), rewards)


def test_without_any_reward_nothing_is_scaled():
    scaler, rewards = RewardScaler(2), torch.zeros(3, 2)
    scaler.observe(rewards, torch.ones(3, 2, dtype=torch.bool))
    assert torch.equal(scaler.normalize(rewards, 10.0), rewards)


def test_replayed_rewards_have_the_scale_of_new_ones():
    settings = {"num_envs": 4, "rollout_length": 8, "batch_size": 64, "torso": [4]}
    rule = "actor_critic:num_bins=11"
    runs = {
        deviation: Trainer(
            make_config(
                "cartpole",
                rule,
                replay_fraction=1.0,
                shrink_rewards=False,
                normalize_rewards=deviation,
                **settings,
            ),
            load_rule(rule),
        )
        for deviation in (0.0, 5.0)
    }
    for trainer in runs.values():
        for _ in range(20):
            rollout = trainer.life.act()
            trainer.life.batch(rollout)
    rewards = {d: trainer.life.batch(rollout, store=False).rewards for d, trainer in runs.items()}
    paid = {d: r[r != 0].unique() for d, r in rewards.items()}
    # The game pays 1 for every step: stored as it is, and all of it on one scale when learned from
    assert paid[0.0].tolist() == [1.0]
    assert len(paid[5.0]) == 1
    assert float(paid[5.0]) < 1


class Wages(gymnasium.Env):
    """It pays 1 for each step, and never ends."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def begun(env):
    """A trainer whose agent has played one rollout, and one that was restored from it."""
    settings = {"num_envs": 2, "rollout_length": 5, "torso": (4,)}
    settings |= {"shrink_rewards": True, "normalize_rewards": 0.0}
    rule, source = "actor_critic:num_bins=5", find_environment(env)
    config = make_config(source.name, rule, **settings)
    trainer, again = (Trainer(config, load_rule(rule), source) for _ in range(2))
    trainer.life.act()
    again.restore(trainer.checkpoint())
    return trainer, again


def running_returns(trainer):
    return trainer.life.state_dict()["rewards"]["returns"].tolist()


def test_returns_begin_anew_where_the_environment_does():
    """Simulators cannot be restored: new episodes begin, which have earned nothing yet."""
    trainer, again = begun(Wages)
    returns = [sum(0.99**time for time in range(steps)) for steps in range(5)]
    assert running_returns(trainer) == pytest.approx(returns[-1:] * 2)
    assert running_returns(again) == [0.0, 0.0]
    again.life.act()
    assert running_returns(again) == pytest.approx(returns[-1:] * 2)
    # The same returns for a second time leave their deviation as it was
    scaler, rewards = RewardScaler(2), torch.ones(1, 2)
    scaler.load_state_dict(again.life.state_dict()["rewards"])
    expected = rewards / np.std(returns)
    torch.testing.assert_close(scaler.normalize(rewards, 1.0).double(), expected.double())


def test_returns_go_on_where_the_environment_does():
    trainer, again = begun("cartpole")
    assert running_returns(again) == running_returns(trainer) != [0.0, 0.0]
    for life in (trainer.life, again.life):
        life.act()
    assert running_returns(again) == running_returns(trainer)


def test_large_returns_are_learned_from_small_and_reported_whole():
    # Given agents by the rule that ships, in a game that pays 1 for each of many steps
    settings = {"num_envs": 8, "rollout_length": 30, "steps": 6, "torso": (8,)}
    trainer = Trainer(make_config("cartpole", "sprout", **settings), load_rule("sprout"))
    batches, learn = [], trainer.life.mind.learn
    trainer.life.mind.learn = lambda batch, *args: batches.append(batch) or learn(batch, *args)
    for _ in range(6):
        trainer.train_step()
    # Then the last batch holds small rewards, and the returns are as long as the episodes
    rewards = batches[-1].rewards
    assert 0 < rewards.max() < 0.5
    assert all(e.total_reward == e.length for e in trainer.life.episodes.recent)
    # And the scale goes into the checkpoint
    again = Trainer(trainer.config, load_rule("sprout"))
    again.restore(trainer.checkpoint())
    scale, same = (t.life.state_dict()["rewards"] for t in (trainer, again))
    assert scale
    for name, tensor in scale.items():
        assert torch.equal(same[name], tensor), name
    assert again.train_step()["total_loss"] == pytest.approx(
        float(trainer.train_step()["total_loss"])
    )
