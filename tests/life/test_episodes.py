"""Statistics of episodes are exact across rollouts, whatever ends or cuts them off."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import SCRIPTS, Scripted, scripted_step, waiting_step

from discorl.agents import Network, NetworkConfig
from discorl.envs import make_environment
from discorl.life.acting import Acted, act
from discorl.life.episodes import RECENT_EPISODES, EpisodeLog
from discorl.rules.actor_critic import ActorCritic


def make_agent(*shape):
    """A small agent for observations of this shape, and its parameters."""
    heads = ActorCritic(num_bins=5).heads(3)
    agent = Network.mlp(shape, heads, NetworkConfig(torso=(8,)))
    return agent, agent.init(torch.Generator().manual_seed(0))


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


def received(rewards, discounts):
    """What acting in an environment without cut-off episodes brings, as far as a log reads."""
    return Acted(
        rollout=SimpleNamespace(rewards=rewards),
        step=None,
        memory=None,
        ended=discounts == 0,
        idle=torch.zeros_like(discounts, dtype=torch.bool),
        env_seconds=0.0,
    )


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
    log, episodes, start = EpisodeLog(envs), [], 0
    for length in lengths:
        part = slice(start, start + length)
        episodes += log.update(received(rewards[part], discounts[part]))
        start += length
        if restore:
            state, log = log.state_dict(), EpisodeLog(envs)
            log.load_state_dict(state)
    expected = [e[2:] for e in plain_episodes(rewards, discounts)]
    assert [(e.total_reward, e.length) for e in episodes] == expected
    assert log.count == len(expected)
    assert list(log.recent) == episodes[-RECENT_EPISODES:]


def test_catch_episodes_have_their_length_and_a_return_of_one():
    env = make_environment("catch:rows=5,columns=5", 3)
    step, log, episodes = env.reset(0), EpisodeLog(3), []
    agent, params = make_agent(5, 5, 1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        acted = act(agent, params, env, step, 3, generator)
        step, episodes = acted.step, episodes + log.update(acted)
    # 30 stored steps: the first is a start, so 29 outcomes of episodes of 4.
    assert len(episodes) == 3 * (29 // 4)
    assert {e.length for e in episodes} == {4}
    assert {e.total_reward for e in episodes} <= {-1.0, 1.0}


def test_the_state_of_a_log_is_a_copy():
    log = EpisodeLog(1)
    state = log.state_dict()
    log.update(received(torch.ones(2, 1), torch.ones(2, 1)))
    assert state["returns"].item() == 0


def test_many_small_rewards_do_not_drift():
    log = EpisodeLog(1)
    log.update(received(torch.full((20_000, 1), 0.1), torch.ones(20_000, 1)))
    (episode,) = log.update(received(torch.zeros(1, 1), torch.zeros(1, 1)))
    assert episode.total_reward == pytest.approx(20_000 * torch.tensor(0.1).item(), rel=1e-9)


def test_the_means_are_those_of_the_newest_episodes():
    log = EpisodeLog(1)
    assert math.isnan(log.mean_return())
    assert math.isnan(log.mean_length())
    # Given more episodes of one step than are kept, the n-th with a reward of n
    rewards = torch.arange(RECENT_EPISODES + 51.0).unsqueeze(1)
    log.update(received(rewards, torch.zeros_like(rewards)))
    assert log.count == RECENT_EPISODES + 51
    assert len(log.recent) == RECENT_EPISODES
    assert log.mean_return() == rewards[-RECENT_EPISODES:].mean()
    assert log.mean_length() == 1


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("cut", [2, 3])
def test_resets_are_no_steps_of_an_episode(name, cut):
    # Given an episode of two steps, a reset of some kind, and two steps more, in two rollouts
    before = SCRIPTS[name][: 4 if "then" in name else 3]
    step_of = waiting_step if "then" in name else scripted_step
    env = Scripted(*before, step_of(21), step_of(30, terminated=True), step_of(31))
    log, episodes, step = EpisodeLog(2), [], env.reset()
    agent, params = make_agent(1)
    generator = torch.Generator().manual_seed(0)
    for length in (cut, len(env.steps) - cut):
        acted = act(agent, params, env, step, length, generator)
        step, episodes = acted.step, episodes + log.update(acted)
    # Then resets make neither longer
    assert [(e.total_reward, e.length) for e in episodes] == [(2.0, 2), (2.0, 2)]
