"""Acting, episodes that are cut off, and statistics that are exact across rollouts."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.agents import Network, NetworkConfig
from discorl.agents.base import initial_memory
from discorl.envs import TimeStep, make_environment
from discorl.envs.base import Boundary
from discorl.life.acting import Acted, act, burn_in, choose
from discorl.life.episodes import EpisodeTracker
from discorl.observations import ArraySpec
from discorl.rules.actor_critic import ActorCritic

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


def received(rewards, discounts, idle=None):
    """What acting in an environment without cut-off episodes brings, as far as a tracker reads."""
    return Acted(
        rollout=None,
        step=None,
        memory=None,
        rewards=rewards,
        ended=discounts == 0,
        idle=torch.zeros_like(discounts, dtype=torch.bool) if idle is None else idle,
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
    tracker, episodes, start = EpisodeTracker(envs), [], 0
    for length in lengths:
        part = slice(start, start + length)
        episodes += tracker.update(received(rewards[part], discounts[part]))
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
        acted = act(AGENT, PARAMS, env, step, 3, generator)
        step, episodes = acted.step, episodes + tracker.update(acted)
    # 30 stored steps: the first is a start, so 29 outcomes of episodes of 4.
    assert len(episodes) == 3 * (29 // 4)
    assert {e.length for e in episodes} == {4}
    assert {e.total_reward for e in episodes} <= {-1.0, 1.0}


def test_a_tracker_state_is_a_copy():
    tracker = EpisodeTracker(1)
    state = tracker.state_dict()
    tracker.update(received(torch.ones(2, 1), torch.ones(2, 1)))
    assert state["returns"].item() == 0


def test_many_small_rewards_do_not_drift():
    tracker = EpisodeTracker(1)
    tracker.update(received(torch.full((20_000, 1), 0.1), torch.ones(20_000, 1)))
    (episode,) = tracker.update(received(torch.zeros(1, 1), torch.zeros(1, 1)))
    assert episode.total_reward == pytest.approx(20_000 * torch.tensor(0.1).item(), rel=1e-9)


def test_a_rollout_holds_what_the_actor_had_in_hand():
    env, twin = (make_environment("catch:rows=5,columns=5", 2) for _ in range(2))
    step = env.reset(3)
    acted = act(AGENT, PARAMS, env, step, 7, torch.Generator().manual_seed(1))
    rollout = acted.rollout
    expected = twin.reset(3)
    for t in range(7):
        assert torch.equal(rollout.observations[t], expected.observation)
        assert torch.equal(rollout.rewards[t], expected.reward)
        assert torch.equal(rollout.discounts[t], expected.discount)
        torch.testing.assert_close(rollout.logits[t], AGENT.policy(PARAMS, expected.observation))
        expected = twin.step(rollout.actions[t])
    assert torch.equal(acted.step.observation, expected.observation)
    assert (acted.memory, rollout.memory, rollout.final) == (None, None, None)
    assert not rollout.logits.requires_grad


def test_rollouts_join_without_a_gap():
    env, twin = (make_environment("catch:rows=5,columns=5", 2) for _ in range(2))
    whole = act(AGENT, PARAMS, env, env.reset(3), 10, torch.Generator().manual_seed(1)).rollout
    generator, step, parts = torch.Generator().manual_seed(1), twin.reset(3), []
    for length in (4, 6):
        acted = act(AGENT, PARAMS, twin, step, length, generator)
        step = acted.step
        parts.append(acted.rollout)
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


# --- episodes that are cut off, or take a step to reset


class Scripted:
    """Hands out given steps, whatever is done."""

    num_envs, num_actions, observation_spec = 2, 3, ArraySpec((1,))

    def __init__(self, *steps):
        self.steps = list(steps)

    def reset(self, seed=0):
        return self.steps.pop(0)

    def step(self, actions):
        return self.steps.pop(0)


def scripted_step(seen, discount=1, reward=1.0, stored=None, final=0, ended=0, idle=0):
    """What two copies hand out; the second one's episode just goes on."""

    def flags(value):
        return torch.tensor([bool(value), False])

    def observation(value):
        return torch.tensor([[float(value)], [5.0]])

    boundary = Boundary(
        flags(final), flags(ended), flags(idle), None if stored is None else observation(stored)
    )
    rewards, discounts = torch.tensor([reward, 1.0]), torch.tensor([float(discount), 1.0])
    return TimeStep(observation(seen), rewards, discounts, boundary)


SCRIPTS = {
    "cut, then a reset step": [
        scripted_step(10, reward=0.0),
        scripted_step(11),
        scripted_step(12, final=1, ended=1),
        scripted_step(20, discount=0, reward=0.0, idle=1),
        scripted_step(21),
        scripted_step(22),
    ],
    "end, then a reset step": [
        scripted_step(10, reward=0.0),
        scripted_step(11),
        scripted_step(12, discount=0, final=1, ended=1),
        scripted_step(20, discount=0, reward=0.0, idle=1),
        scripted_step(21),
        scripted_step(22),
    ],
    "cut and reset at once": [
        scripted_step(10, reward=0.0),
        scripted_step(11),
        scripted_step(20, stored=12, final=1, ended=1),
        scripted_step(21),
        scripted_step(22),
        scripted_step(23),
    ],
    "end and reset at once": [
        scripted_step(10, reward=0.0),
        scripted_step(11),
        scripted_step(20, discount=0, ended=1),
        scripted_step(21),
        scripted_step(22),
        scripted_step(23),
    ],
}
RECORDS = {
    # observations, discounts, final
    "cut, then a reset step": ([10, 11, 12, 20, 21], [1, 1, 1, 0, 1], [0, 0, 1, 0, 0]),
    "end, then a reset step": ([10, 11, 12, 20, 21], [1, 1, 0, 0, 1], [0, 0, 1, 0, 0]),
    "cut and reset at once": ([10, 11, 12, 21, 22], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]),
    "end and reset at once": ([10, 11, 20, 21, 22], [1, 1, 0, 1, 1], [0, 0, 0, 0, 0]),
}
RECORDS_WITH_MEMORY = RECORDS | {
    "cut and reset at once": ([10, 11, 20, 21, 22], [1, 1, 0, 1, 1], [0, 1, 0, 0, 0]),
}
RULE = ActorCritic(num_bins=5)
PLAIN = Network.mlp((1,), RULE.heads(3), NetworkConfig(torso=(8,), head_std=1.0))
MINDFUL = Network.for_observations(
    ArraySpec((1,)),
    RULE.heads(3),
    NetworkConfig(torso=(8,), memory="gru", memory_size=6, head_std=1.0),
)


def act_scripted(agent, steps, length=5):
    """Acting with fresh parameters, which come back too."""
    env = Scripted(*steps)
    params = agent.init(torch.Generator().manual_seed(0))
    memory = initial_memory(agent, 2, "cpu")
    acted = act(agent, params, env, env.reset(), length, torch.Generator().manual_seed(1), memory)
    return acted, params


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("remembers", [False, True])
def test_what_is_stored_where_episodes_end(name, remembers):
    acted, _ = act_scripted(MINDFUL if remembers else PLAIN, SCRIPTS[name])
    observations, discounts, final = (RECORDS_WITH_MEMORY if remembers else RECORDS)[name]
    rollout = acted.rollout
    assert rollout.observations[:, 0, 0].tolist() == observations
    assert rollout.discounts[:, 0].tolist() == discounts
    assert rollout.final[:, 0].tolist() == [bool(flag) for flag in final]
    # Rewards are what came, and the other copy is left alone.
    assert torch.equal(rollout.rewards, torch.stack([s.reward for s in SCRIPTS[name][:5]]))
    assert rollout.observations[:, 1, 0].tolist() == [5.0] * 5
    assert rollout.discounts[:, 1].all()
    assert not rollout.final[:, 1].any()
    assert acted.step is SCRIPTS[name][5]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_policy_is_that_of_what_was_seen(name):
    acted, params = act_scripted(PLAIN, SCRIPTS[name])
    seen = torch.stack([step.observation for step in SCRIPTS[name][:5]])
    torch.testing.assert_close(acted.rollout.logits, PLAIN.policy(params, seen))


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_a_learner_with_memory_reads_what_the_actor_read(name, length):
    # Given a rollout and the parameters that acted
    acted, params = act_scripted(MINDFUL, SCRIPTS[name], length)
    window = acted.rollout.inputs()
    # When the learner goes through it
    logits = MINDFUL.outputs(params, window).logits
    # Then it thinks what the actor thought, and remembers as much at the end
    torch.testing.assert_close(logits, acted.rollout.logits)
    after = MINDFUL.remember(params, window)
    for key, tensor in acted.memory.items():
        torch.testing.assert_close(after[key], tensor)
    # It forgot the old episode at the new one's first step, and the other copy's never.
    forgets = 2 if name.endswith("at once") else 3
    first = acted.rollout.firsts()
    assert first[:, 0].tolist() == [t == forgets for t in range(length)]
    assert not first[:, 1].any()


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_burning_in_remembers_what_the_agent_would_now(name, steps):
    # Given a rollout with the memory of an agent that has changed since
    acted, params = act_scripted(MINDFUL, SCRIPTS[name])
    # When its first steps are only read, by the agent that acted or by another
    rest = burn_in(MINDFUL, params, acted.rollout, steps)
    other = burn_in(MINDFUL, {k: 2 * p for k, p in params.items()}, acted.rollout, steps)
    # Then the agent that acted thinks what it thought, and the other remembers otherwise
    assert torch.equal(rest.actions, acted.rollout.actions[steps:])
    logits = MINDFUL.outputs(params, rest.inputs()).logits
    torch.testing.assert_close(logits, acted.rollout.logits[steps:])
    assert not torch.allclose(other.memory["hidden"], rest.memory["hidden"])


def test_a_rollout_with_memory_may_begin_where_an_episode_was_cut_off():
    steps = SCRIPTS["cut and reset at once"][2:]
    env, params = Scripted(*steps), MINDFUL.init(torch.Generator().manual_seed(0))
    memory = {"hidden": torch.ones(2, 6)}
    acted = act(MINDFUL, params, env, env.reset(), 3, torch.Generator(), memory)
    assert acted.rollout.observations[:, 0, 0].tolist() == [20, 21, 22]
    assert acted.rollout.discounts[:, 0].tolist() == [0, 1, 1]
    assert not acted.rollout.final.any()
    assert torch.equal(acted.rollout.memory["hidden"], memory["hidden"].unsqueeze(0))
    logits = MINDFUL.outputs(params, acted.rollout.inputs()).logits
    torch.testing.assert_close(logits, acted.rollout.logits)


def test_dictionaries_are_stored_by_name():
    def with_names(step):
        def named(observation):
            return {"a": observation, "b": -observation}

        stored = step.boundary.stored
        boundary = replace(step.boundary, stored=None if stored is None else named(stored))
        return replace(step, observation=named(step.observation), boundary=boundary)

    class Reader:
        def policy(self, params, observations):
            return observations["a"] * torch.tensor([0.0, 1.0, 2.0])

    steps = [with_names(step) for step in SCRIPTS["cut and reset at once"]]
    env = Scripted(*steps)
    rollout = act(Reader(), {}, env, env.reset(), 5, torch.Generator()).rollout
    assert rollout.observations["a"][:, 0, 0].tolist() == [10, 11, 12, 21, 22]
    assert torch.equal(rollout.observations["b"], -rollout.observations["a"])
    assert rollout.logits[2, 0].tolist() == [0, 20, 40]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("cut", [2, 3])
def test_resets_are_no_steps_of_an_episode(name, cut):
    # Given an episode of two steps, a reset of some kind, and two steps more, in two rollouts
    before = SCRIPTS[name][: 4 if "then" in name else 3]
    last = scripted_step(30, discount=0, ended=1)
    env = Scripted(*before, scripted_step(21), last, scripted_step(31))
    tracker, episodes, step = EpisodeTracker(2), [], env.reset()
    generator = torch.Generator().manual_seed(0)
    params = PLAIN.init(generator)
    for length in (cut, len(env.steps) - cut):
        acted = act(PLAIN, params, env, step, length, generator)
        step, episodes = acted.step, episodes + tracker.update(acted)
    # Then resets make neither longer
    assert [(e.total_reward, e.length) for e in episodes] == [(2.0, 2), (2.0, 2)]
