"""Stacks of frames that are stored once: built again to the bit, wherever episodes begin."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.envs import make_environment
from discorl.group import SOLO
from discorl.observations import ArraySpec
from discorl.replay import Replay, ReplaySpec, deal_out
from discorl.rollout import Rollout
from discorl.tree import flatten


def play(rollouts, length, batch, stack, seed, midway=False):
    """Rollouts of stacks [L, B, S, 2] from streams whose episodes begin at random."""
    generator = torch.Generator().manual_seed(seed)
    shown = torch.zeros(batch, stack, 2, dtype=torch.uint8)
    if midway:  # The first rollout begins within an episode.
        shown = torch.randint(1, 255, shown.shape, generator=generator).to(torch.uint8)
    for _ in range(rollouts):
        steps = []
        for _ in range(length):
            frame = torch.randint(0, 3, (batch, 1, 2), generator=generator).to(torch.uint8)
            begins = torch.rand(batch, generator=generator) < 0.2
            shown = torch.where(begins[:, None, None], 0, shown).to(torch.uint8)
            shown = torch.cat([shown[:, 1:], frame], dim=1)
            steps.append(shown)
        yield Rollout(
            observations=torch.stack(steps),
            actions=torch.zeros(length, batch, dtype=torch.int64),
            rewards=torch.rand(length, batch, generator=generator),
            discounts=torch.ones(length, batch),
            logits=torch.zeros(length, batch, 2),
        )


def both(capacity, length, stack):
    """A replay that knows of stacks, and one that stores them whole."""
    whole = ReplaySpec(ArraySpec((stack, 2), torch.uint8), num_actions=2)
    once = replace(whole, observation=replace(whole.observation, stack=stack))
    return Replay(capacity, length, once), Replay(capacity, length, whole)


def same_samples(first, second, draws=64):
    batches = (r.sample(draws, torch.Generator().manual_seed(1)) for r in (first, second))
    ours, theirs = map(flatten, batches)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@given(
    capacity=st.integers(1, 9),
    batch=st.integers(1, 4),
    rollouts=st.integers(1, 9),
    stack=st.integers(2, 4),
    seed=st.integers(0, 1000),
    midway=st.booleans(),
    skipped=st.sets(st.integers(0, 8)),
)
@settings(max_examples=80, deadline=None)
def test_what_is_read_is_what_was_stored(capacity, batch, rollouts, stack, seed, midway, skipped):
    capacity = max(capacity, batch)
    once, whole = both(capacity, 4, stack)
    for number, rollout in enumerate(play(rollouts, 4, batch, stack, seed, midway)):
        if number in skipped:  # As a discovery's validation rollouts are.
            continue
        once.add(rollout)
        whole.add(rollout)
        same_samples(once, whole)


def test_a_restored_replay_goes_on_alike():
    once, whole = both(5, 4, 3)
    for number, rollout in enumerate(play(9, 4, 2, 3, seed=0)):
        if number == 3:
            continue
        if number == 5:
            restored, _ = both(5, 4, 3)
            restored.load_state_dict({k: v.clone() for k, v in once.state_dict().items()})
            once = restored
        once.add(rollout)
        whole.add(rollout)
    same_samples(once, whole)


def test_stacks_that_are_dealt_out_stay_whole():
    """What continued another trajectory may be anywhere now."""
    streams = [both(5, 4, 3) for _ in range(2)]
    for seed, pair in enumerate(streams):
        for rollout in play(4, 4, 2, 3, seed, midway=True):
            for replay in pair:
                replay.add(rollout)
    joint = both(10, 4, 3)
    for new, old in zip(joint, zip(*streams, strict=True), strict=True):
        deal_out(old, new, SOLO, 5)
    same_samples(*joint)
    assert joint[0].size == 10


def test_frames_that_do_not_follow_are_refused():
    once, _ = both(5, 4, 3)
    first, second = play(2, 4, 2, 3, seed=0)
    once.add(first)
    with pytest.raises(ValueError, match="not those before it"):
        once.add(replace(second, observations=second.observations.clone().fill_(7).cumsum(2)))


def test_the_number_of_streams_stays():
    once, _ = both(5, 4, 3)
    once.add(next(play(1, 4, 2, 3, seed=0)))
    with pytest.raises(ValueError, match="expected 2 trajectories, got 1"):
        once.add(next(play(1, 4, 1, 3, seed=0)))


def test_atari_frames_are_kept_once():
    pytest.importorskip("ale_py")
    env = make_environment("ALE/Breakout-v5:frames=120", 2)
    spec = ReplaySpec(env.observation_spec, env.num_actions, final=True)
    assert spec.bytes_per_step() <= 7_500
    whole = replace(spec, observation=replace(env.observation_spec, stack=1))
    once, plain = Replay(6, 8, spec), Replay(6, 8, whole)
    generator = torch.Generator().manual_seed(0)
    step, episodes = env.reset(seed=0), 0
    for _ in range(12):
        steps, actions = [], []
        for _ in range(8):
            steps.append(step)
            actions.append(torch.randint(env.num_actions, (2,), generator=generator))
            step = env.step(actions[-1])
            episodes += int(step.ended.sum())
        rollout = Rollout.from_steps(steps, actions, [torch.zeros(2, env.num_actions)] * 8)
        once.add(rollout)
        plain.add(rollout)
        same_samples(once, plain, draws=12)
    env.close()
    assert episodes >= 4


def test_rollouts_shorter_than_a_stack_are_stored_whole():
    once, whole = both(5, 2, 4)
    for rollout in play(4, 2, 2, 4, seed=0):
        once.add(rollout)
        whole.add(rollout)
    same_samples(once, whole)
    assert once.memory() == whole.memory()
