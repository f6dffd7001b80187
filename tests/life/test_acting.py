"""Acting, and what is stored where episodes end or are cut off."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import SCRIPTS, Scripted

from discorl.agents import Network, NetworkConfig
from discorl.agents.base import initial_memory
from discorl.envs import make_environment
from discorl.life.acting import act, burn_in, choose
from discorl.observations import ArraySpec
from discorl.rules.actor_critic import ActorCritic

AGENT = Network.mlp((5, 5, 1), ActorCritic(num_bins=5).heads(3), NetworkConfig(torso=(8,)))
PARAMS = AGENT.init(torch.Generator().manual_seed(0))


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

        last = None if step.last is None else named(step.last)
        return replace(step, observation=named(step.observation), last=last)

    class Reader:
        def policy(self, params, observations):
            return observations["a"] * torch.tensor([0.0, 1.0, 2.0])

    steps = [with_names(step) for step in SCRIPTS["cut and reset at once"]]
    env = Scripted(*steps)
    rollout = act(Reader(), {}, env, env.reset(), 5, torch.Generator()).rollout
    assert rollout.observations["a"][:, 0, 0].tolist() == [10, 11, 12, 21, 22]
    assert torch.equal(rollout.observations["b"], -rollout.observations["a"])
    assert rollout.logits[2, 0].tolist() == [0, 20, 40]
