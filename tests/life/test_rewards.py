"""Rewards are shrunk by what returns deviate by, and by nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
    scaler.scale(rewards[:cut], ended[:cut])
    other.load_state_dict(scaler.state_dict())
    found = other.scale(rewards[cut:], ended[cut:])
    # Then the second part is divided by the deviation of both, if that is above one
    scale = max(returns_by_hand(rewards, ended).std(), 1.0)
    expected = (rewards[cut:].double() / scale).clamp(-10, 10)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_small_rewards_stay_as_they_are():
    rewards = torch.tensor([[0.0, 1.0], [-1.0, 0.0], [1.0, 0.5]])
    scaled = RewardScaler(2).scale(rewards, torch.ones(3, 2, dtype=torch.bool))
    assert torch.equal(scaled, rewards)


def test_large_returns_are_learned_from_small_and_reported_whole():
    # Given agents by the rule that ships, in a game that pays 1 for each of many steps
    settings = {"num_envs": 8, "rollout_length": 30, "steps": 6, "torso": (8,)}
    trainer = Trainer(make_config("cartpole", "sprout", **settings), load_rule("sprout"))
    batches, learn = [], trainer.life.mind.learn
    trainer.life.mind.learn = lambda batch: batches.append(batch) or learn(batch)
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
