"""Targets beside episodes that are cut off: what lies beyond the cut is not read."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_rules import SMALL

from discorl.outputs import AgentOutputs
from discorl.rollout import Rollout
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.disco import DiscoConfig, DiscoRule, DiscoState
from discorl.rules.meta_network import MetaRNNState
from discorl.tree import flatten, tree_map
from discorl.values import MovingAverage

f64 = torch.float64
few = settings(max_examples=15, deadline=None)
BATCH, ACTIONS = 3, 4
ACTOR_CRITIC = ActorCritic(num_bins=11, max_abs_value=5.0)
KINDS = ("cut and reset", "cut", "end and reset", "end")
"""A final observation after a cut-off or an end; then a reset step, or the next episode's second
observation."""
lengths = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))


def disco_rule(seed, moving_average_decay=0.99):
    """A small rule of which no part is silent."""
    normal = Normal(seed)
    params = {name: normal(*shape, scale=0.5) for name, shape in SMALL.shapes().items()}
    config = DiscoConfig(
        sizes=SMALL,
        num_bins=11,
        max_abs_value=5.0,
        moving_average_decay=moving_average_decay,
    )
    return DiscoRule(config, params)


class Normal:
    """Random numbers of a seed, in float64."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape, scale=1.0):
        return scale * torch.randn(shape, generator=self.generator, dtype=f64)


def random_outputs(rule, length, normal):
    heads = rule.heads(ACTIONS)
    return AgentOutputs(
        {name: normal(length, BATCH, *shape) for name, shape in heads.state.items()},
        {name: normal(length, BATCH, ACTIONS, *shape) for name, shape in heads.action.items()},
    )


def experience(rule, cut, after, seed, kind="cut and reset"):
    """A rollout whose step `cut` shows an episode's last observation, and the agent on it.

    Returns the rollout, the agent's outputs and its target network's.
    """
    normal, length = Normal(seed), cut + 1 + after
    discounts, final = torch.ones(length, BATCH, dtype=f64), torch.zeros(length, BATCH).bool()
    final[cut] = True
    if kind.startswith("end"):
        discounts[cut] = 0
    if kind.endswith("reset") and after:
        discounts[cut + 1] = 0
    rollout = Rollout(
        observations=normal(length, BATCH),
        actions=torch.randint(ACTIONS, (length, BATCH), generator=normal.generator),
        rewards=normal(length, BATCH),
        discounts=discounts,
        logits=normal(length, BATCH, ACTIONS),
        final=final,
    )
    return rollout, *(random_outputs(rule, length, normal) for _ in range(2))


def up_to(experience, stop):
    """The shorter rollout, whose last state is the final observation; nothing is flagged."""
    rollout, *outputs = (tree_map(lambda t: t[:stop], part) for part in experience)
    return replace(rollout, final=None), *outputs


def with_other_future(experience, other, step):
    """Whatever is stored after `step` replaced, except for where episodes begin and end.

    Action, reward and policy beside `step` itself belong to a transition that is none.
    """
    parts = [
        tree_map(torch.clone, replace_after(one, two, step + 1))
        for one, two in zip(experience, other, strict=True)
    ]
    rollout = parts[0]
    rollout.actions[step], rollout.logits[step] = other[0].actions[step], other[0].logits[step]
    kept = {"discounts": experience[0].discounts, "final": experience[0].final}
    return replace(rollout, **kept), *parts[1:]


def replace_after(one, two, start):
    others = iter(flatten(two).values())
    return tree_map(lambda t: torch.cat([t[:start], next(others)[start:]]), one)


def targets_of(rule, experience, state=None):
    rollout, outputs, target_outputs = experience
    state = state or rule.initial_state(f64, "cpu")
    return rule.targets(outputs, target_outputs, rollout.transitions(), state)


def returns_of(targets):
    """What hangs on no moving average, each [T, B, ...]."""
    if hasattr(targets, "raw_advantage"):
        return {"advantage": targets.raw_advantage, "td": targets.td}
    names = ("q_target", "advantage", "q_td")
    return {name: getattr(targets.returns, name) for name in names}


def midlife(seed):
    """A state in which the rule's moving averages and memory are full."""
    normal = Normal(seed)
    return DiscoState(
        rnn=MetaRNNState(normal(SMALL.meta_hidden), normal(SMALL.meta_hidden)),
        advantage=MovingAverage(*torch.tensor([0.3, 1.7, 0.5], dtype=f64)),
        td=MovingAverage(*torch.tensor([-0.2, 2.1, 0.5], dtype=f64)),
    )


def assert_same(ours, theirs, steps):
    assert ours
    for name, tensor in ours.items():
        torch.testing.assert_close(
            tensor[:steps], theirs[name][:steps], rtol=1e-11, atol=1e-11, msg=name
        )


@pytest.mark.parametrize("rule", [ACTOR_CRITIC, disco_rule(0)], ids=["actor_critic", "disco"])
@pytest.mark.parametrize("kind", KINDS)
@few
@given(size=lengths)
def test_returns_are_those_of_the_rollout_that_stops_there(rule, kind, size):
    cut, after, seed = size
    whole = experience(rule, cut, after, seed, kind)
    targets, _ = targets_of(rule, whole)
    short, _ = targets_of(rule, up_to(whole, cut + 1))
    assert_same(returns_of(targets), returns_of(short), cut)


@pytest.mark.parametrize("kind", KINDS)
@few
@given(size=lengths)
def test_the_meta_networks_targets_are_those_of_the_rollout_that_stops_there(kind, size):
    # Given a rule whose moving averages stand still, so that only the trajectory speaks
    cut, after, seed = size
    rule, state = disco_rule(seed, moving_average_decay=1.0), midlife(seed)
    whole = experience(rule, cut, after, seed, kind)
    targets, _ = targets_of(rule, whole, state)
    short, _ = targets_of(rule, up_to(whole, cut + 1), state)
    names = ("policy", "y", "z", "meta_input", "normalized_advantage", "normalized_q_td")
    ours, theirs = ({name: getattr(t, name) for name in names} for t in (targets, short))
    assert_same(ours, theirs, cut)


@pytest.mark.parametrize("rule", [ACTOR_CRITIC, disco_rule(0)], ids=["actor_critic", "disco"])
@pytest.mark.parametrize("kind", KINDS)
@few
@given(size=lengths)
def test_what_comes_after_the_cut_changes_nothing_before_it(rule, kind, size):
    cut, after, seed = size
    whole = experience(rule, cut, after, seed, kind)
    other = with_other_future(whole, experience(rule, cut, after, seed + 1, kind), cut)
    targets, _ = targets_of(rule, whole)
    changed, _ = targets_of(rule, other)
    assert_same(returns_of(targets), returns_of(changed), cut)


@pytest.mark.parametrize("rule", [ACTOR_CRITIC, disco_rule(0)], ids=["actor_critic", "disco"])
def test_without_the_flag_it_would(rule):
    whole = experience(rule, 3, 3, seed=0, kind="cut")
    unflagged = replace(whole[0], final=None)
    other = with_other_future(whole, experience(rule, 3, 3, 1, "cut"), 3)
    targets, _ = targets_of(rule, (unflagged, *whole[1:]))
    changed, _ = targets_of(rule, (replace(other[0], final=None), *other[1:]))
    for name, tensor in returns_of(targets).items():
        assert not torch.allclose(tensor[:3], returns_of(changed)[name][:3]), name


@pytest.mark.parametrize("rule", [ACTOR_CRITIC, disco_rule(0)], ids=["actor_critic", "disco"])
def test_a_cut_bootstraps_and_an_end_does_not(rule):
    # Given the same experience, cut off or ended, with the value of the last observation changed
    for kind, matters in (("cut and reset", True), ("end and reset", False)):
        rollout, *outputs = experience(rule, 2, 2, seed=0, kind=kind)
        others = [tree_map(torch.clone, part) for part in outputs]
        for part in others:
            for name, head in (part.state | part.action).items():
                if name in ("v", "q"):
                    head[2] = head[2].flip(-1)
        ours, _ = targets_of(rule, (rollout, *outputs))
        theirs, _ = targets_of(rule, (rollout, *others))
        first, second = (next(iter(returns_of(t).values())) for t in (ours, theirs))
        assert torch.allclose(first[1], second[1]) != matters


@pytest.mark.parametrize("rule", [ACTOR_CRITIC, disco_rule(0)], ids=["actor_critic", "disco"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_transition_is_not_in_the_moving_averages(rule, kind):
    # Given the reward, action and policy of the step from one episode to the next, changed
    rollout, *outputs = experience(rule, 2, 2, 0, kind)
    rewards, logits = rollout.rewards.clone(), rollout.logits.clone()
    actions = rollout.actions.clone()
    rewards[3] += 100
    logits[2] = logits[2].flip(-1)
    actions[2] = (actions[2] + 1) % ACTIONS
    changed = replace(rollout, rewards=rewards, logits=logits, actions=actions)
    _, state = targets_of(rule, (rollout, *outputs))
    _, other = targets_of(rule, (changed, *outputs))
    for name in ("advantage", "td"):
        ours, theirs = flatten(getattr(state, name)), flatten(getattr(other, name))
        for key, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[key])
