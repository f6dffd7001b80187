"""Acting, and episode statistics that are exact across rollout boundaries."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.agents import Network, NetworkConfig
from discorl.envs import make_environment
from discorl.rules.actor_critic import ActorCritic
from discorl.training.actor import EpisodeTracker, act, choose

AGENT = Network.mlp((5, 5, 1), ActorCritic(num_bins=5).heads(3), NetworkConfig(torso=(8,)))
PARAMS = AGENT.init(torch.Generator().manual_seed(0))


def plain_episodes(rewards, discounts):
    """(time, environment, return, length) of every finished episode, one number at a time."""
    finished = []
    for b in range(rewards.shape[1]):
        total, length = 0.0, 0
        for t in range(rewards.shape[0]):
            total += rewards[t, b].item()
            length += t > 0  # Nothing was done before the first observation.
            if discounts[t, b] == 0:
                finished.append((t, b, total, length))
                total, length = 0.0, 0
    return sorted(finished)


def stream(seed, steps, envs):
    generator = torch.Generator().manual_seed(seed)
    # Eighths add up exactly in floating point.
    rewards = torch.randint(-16, 17, (steps, envs), generator=generator) / 8
    discounts = (torch.rand(steps, envs, generator=generator) > 0.3).float()
    rewards[0], discounts[0] = 0, 1
    return rewards, discounts


@given(
    seed=st.integers(0, 10_000),
    envs=st.integers(1, 4),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    restore=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_episodes_are_exact_however_the_stream_is_cut(seed, envs, lengths, restore):
    rewards, discounts = stream(seed, sum(lengths), envs)
    tracker, episodes, start = EpisodeTracker(envs), [], 0
    for length in lengths:
        part = slice(start, start + length)
        episodes += tracker.update(rewards[part], discounts[part])
        start += length
        if restore:
            state, tracker = tracker.state_dict(), EpisodeTracker(envs)
            tracker.load_state_dict(state)
    expected = plain_episodes(rewards, discounts)
    assert [(e.total_reward, e.length) for e in episodes] == [e[2:] for e in expected]


def test_catch_episodes_have_their_length_and_a_return_of_one():
    env = make_environment("catch:rows=5,columns=5", 3)
    step, tracker, episodes = env.reset(0), EpisodeTracker(3), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        rollout, step = act(AGENT, PARAMS, env, step, 3, generator)
        episodes += tracker.update(rollout.rewards, rollout.discounts)
    # 30 stored steps: the first is a start, so 29 outcomes of episodes of 4.
    assert len(episodes) == 3 * (29 // 4)
    assert {e.length for e in episodes} == {4}
    assert {e.total_reward for e in episodes} <= {-1.0, 1.0}


def test_a_tracker_state_is_a_copy():
    tracker = EpisodeTracker(1)
    state = tracker.state_dict()
    tracker.update(torch.ones(2, 1), torch.ones(2, 1))
    assert state["returns"].item() == 0


def test_many_small_rewards_do_not_drift():
    tracker = EpisodeTracker(1)
    tracker.update(torch.full((20_000, 1), 0.1), torch.ones(20_000, 1))
    (episode,) = tracker.update(torch.zeros(1, 1), torch.zeros(1, 1))
    assert episode.total_reward == pytest.approx(20_000 * torch.tensor(0.1).item(), rel=1e-9)


def test_a_rollout_holds_what_the_actor_had_in_hand():
    env, twin = (make_environment("catch:rows=5,columns=5", 2) for _ in range(2))
    step = env.reset(3)
    rollout, following = act(AGENT, PARAMS, env, step, 7, torch.Generator().manual_seed(1))
    expected = twin.reset(3)
    for t in range(7):
        assert torch.equal(rollout.observations[t], expected.observation)
        assert torch.equal(rollout.rewards[t], expected.reward)
        assert torch.equal(rollout.discounts[t], expected.discount)
        torch.testing.assert_close(rollout.logits[t], AGENT.policy(PARAMS, expected.observation))
        expected = twin.step(rollout.actions[t])
    assert torch.equal(following.observation, expected.observation)
    assert not rollout.logits.requires_grad


def test_rollouts_join_without_a_gap():
    env, twin = (make_environment("catch:rows=5,columns=5", 2) for _ in range(2))
    whole, _ = act(AGENT, PARAMS, env, env.reset(3), 10, torch.Generator().manual_seed(1))
    generator, step, parts = torch.Generator().manual_seed(1), twin.reset(3), []
    for length in (4, 6):
        part, step = act(AGENT, PARAMS, twin, step, length, generator)
        parts.append(part)
    for name in ("observations", "actions", "rewards", "discounts", "logits"):
        joined = torch.cat([getattr(p, name) for p in parts])
        assert torch.equal(joined, getattr(whole, name)), name


def test_choosing_follows_the_policy():
    logits = torch.tensor([[0.0, 3.0, 1.0]]).log_softmax(-1).expand(30_000, 3)
    actions = choose(logits, torch.Generator().manual_seed(0))
    shares = torch.bincount(actions, minlength=3) / 30_000
    torch.testing.assert_close(shares, torch.softmax(logits[0], -1), atol=0.015, rtol=0)
    assert (choose(logits, torch.Generator(), greedy=True) == 1).all()


@given(seed=st.integers(0, 2**31), actions=st.integers(1, 18))
@settings(max_examples=30, deadline=None)
def test_choosing_draws_what_multinomial_would(seed, actions):
    logits = 3 * torch.randn(50, actions, generator=torch.Generator().manual_seed(seed))
    first, second = (torch.Generator().manual_seed(seed) for _ in range(2))
    expected = torch.multinomial(torch.softmax(logits, -1), 1, generator=first).squeeze(-1)
    assert torch.equal(choose(logits, second), expected)


def test_a_broken_policy_still_gives_an_action():
    """It is the metrics' business to stop the run; an assertion on a GPU would end the process."""
    logits = torch.full((4, 3), torch.nan)
    assert set(choose(logits, torch.Generator()).tolist()) <= {0, 1, 2}
