"""The ring of trajectories: order, sampling, memory, and going on from a saved state."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.envs import Catch, make_environment
from discorl.replay import Replay, ReplaySpec, concatenate
from discorl.rollout import Rollout
from discorl.tree import flatten

SPEC = ReplaySpec((2, 3), torch.uint8, num_actions=4)
LENGTH = 3


def rollout(*tags, length=LENGTH, shape=(2, 3), actions=4):
    """Trajectories that carry their tag in every field."""
    row = torch.tensor(tags, dtype=torch.float32).expand(length, len(tags))
    return Rollout(
        observations=row.to(torch.uint8)
        .reshape(*row.shape, *[1] * len(shape))
        .expand(*row.shape, *shape),
        actions=row.long(),
        rewards=row + torch.arange(length).unsqueeze(1) / 10,
        discounts=torch.ones(length, len(tags)),
        logits=row.unsqueeze(-1) + torch.arange(actions),
    )


def tags_of(batch):
    """The tags of a batch, after checking that no trajectory is a mixture."""
    tags = batch.actions[0]
    assert torch.equal(batch.actions, tags.expand_as(batch.actions))
    assert torch.equal(
        batch.observations.float(), tags.float().reshape(1, -1, 1, 1).expand_as(batch.observations)
    )
    assert torch.equal(batch.logits[..., 0], tags.float().expand(LENGTH, -1))
    times = torch.arange(LENGTH).unsqueeze(1) / 10
    assert torch.equal(batch.rewards, tags.float() + times)
    return tags.tolist()


def contents(replay, draws=400):
    return set(tags_of(replay.sample(draws, torch.Generator().manual_seed(0))))


@given(capacity=st.integers(1, 9), batches=st.lists(st.integers(1, 9), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_the_newest_stay(capacity, batches):
    replay, stored = Replay(capacity, LENGTH, SPEC), []
    for count in batches:
        count = min(count, capacity)
        tags = list(range(len(stored), len(stored) + count))
        replay.add(rollout(*tags))
        stored += tags
    assert replay.size == min(capacity, len(stored))
    assert contents(replay) == set(stored[-capacity:])


def test_nothing_but_what_was_stored_is_sampled():
    replay = Replay(100, LENGTH, SPEC)
    with pytest.raises(ValueError, match="nothing is stored"):
        replay.sample(1, torch.Generator())
    replay.add(rollout(7, 8))
    assert contents(replay) == {7, 8}


def test_sampling_is_uniform():
    replay = Replay(20, LENGTH, SPEC)
    replay.add(rollout(*range(15)))
    replay.add(rollout(*range(15, 25)))
    draws = 20_000
    batch = replay.sample(draws, torch.Generator().manual_seed(1))
    counts = torch.bincount(batch.actions[0], minlength=25)[5:].double()
    expected = draws / 20
    # 19 degrees of freedom: above 44 once in a thousand, below 5 likewise.
    assert 5 < ((counts - expected) ** 2 / expected).sum() < 44


def test_the_seed_fixes_the_sample():
    replay = Replay(50, LENGTH, SPEC)
    replay.add(rollout(*range(50)))

    def draw(seed):
        return tags_of(replay.sample(10, torch.Generator().manual_seed(seed)))

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_types_stay_what_they_are():
    replay = Replay(4, LENGTH, SPEC)
    replay.add(rollout(1, 2))
    batch = replay.sample(3, torch.Generator())
    assert batch.observations.dtype == torch.uint8
    assert batch.actions.dtype == torch.int64
    assert batch.rewards.dtype == batch.discounts.dtype == batch.logits.dtype == torch.float32


def test_a_sample_is_a_copy():
    replay = Replay(1, LENGTH, SPEC)
    replay.add(rollout(1))
    replay.sample(1, torch.Generator()).rewards.fill_(99)
    assert contents(replay) == {1}


@pytest.mark.parametrize("added", [3, 8, 11])
def test_a_restored_replay_goes_on_the_same(added):
    first = Replay(8, LENGTH, SPEC)
    for tag in range(added):
        first.add(rollout(tag))
    state = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    second = Replay(8, LENGTH, SPEC)
    second.load_state_dict(state)
    assert second.size == first.size
    for replay in (first, second):
        replay.add(rollout(100, 101, 102))
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(3):
        one = first.sample(6, generators[0])
        other = second.sample(6, generators[1])
        for field in fields(Rollout):
            assert torch.equal(getattr(one, field.name), getattr(other, field.name))


def test_a_state_dict_holds_only_what_is_filled():
    replay = Replay(1000, LENGTH, SPEC)
    replay.add(rollout(1, 2))
    assert replay.state_dict()["actions"].shape == (LENGTH, 2)


def test_a_state_of_another_size_is_refused():
    big = Replay(8, LENGTH, SPEC)
    big.add(rollout(*range(8)))
    with pytest.raises(ValueError, match=r"actions|observations"):
        Replay(4, LENGTH, SPEC).load_state_dict(big.state_dict())
    with pytest.raises(ValueError, match="observations"):
        Replay(8, LENGTH, ReplaySpec((5,), torch.uint8, 4)).load_state_dict(big.state_dict())


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (rollout(1, length=4), "rollout: expected 3 steps"),
        (rollout(*range(6)), "at most 5 trajectories"),
        (rollout(1, shape=(3, 2)), r"observations: .*\[2, 3\], got \[3, 2\]"),
        (rollout(1, actions=3), r"logits: .*\[4\], got \[3\]"),
    ],
)
def test_wrong_shapes_are_named_and_change_nothing(bad, match):
    replay = Replay(5, LENGTH, SPEC)
    replay.add(rollout(*range(10, 15)))
    with pytest.raises(ValueError, match=match):
        replay.add(bad)
    assert replay.size == 5
    assert contents(replay) == set(range(10, 15))


@pytest.mark.parametrize(("capacity", "length"), [(0, 3), (3, 1)])
def test_senseless_sizes_are_refused(capacity, length):
    with pytest.raises(ValueError, match="capacity >= 1 and length >= 2"):
        Replay(capacity, length, SPEC)


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        ReplaySpec((), torch.float32, 2),
        ReplaySpec((7,), torch.int64, 18, reward_dtype=torch.float64),
    ],
)
def test_memory_is_what_is_really_taken(spec):
    replay = Replay(6, 5, spec)
    replay.add(
        Rollout(
            observations=torch.zeros(5, 6, *spec.observation_shape, dtype=spec.observation_dtype),
            actions=torch.zeros(5, 6, dtype=torch.int64),
            rewards=torch.zeros(5, 6),
            discounts=torch.zeros(5, 6),
            logits=torch.zeros(5, 6, spec.num_actions),
        )
    )
    state = replay.state_dict()
    del state["position"]
    taken = sum(tensor.nbytes for tensor in state.values())
    assert Replay.memory(6, 5, spec) == taken
    assert spec.bytes_per_step() * 30 == taken


def test_catch_takes_a_fiftieth_of_storing_every_head():
    step = make_environment("catch", 1).reset(0)
    spec = ReplaySpec(Catch().observation_shape, step.observation.dtype, Catch.num_actions)
    assert spec.bytes_per_step() <= 17_000 / 50


def test_concatenate_puts_trajectories_side_by_side():
    joined = concatenate([rollout(1, 2), rollout(3)])
    assert tags_of(joined) == [1, 2, 3]


def test_concatenate_joins_dictionaries():
    def with_dict(tag):
        plain = rollout(tag)
        leaves = {"board": plain.observations, "clock": plain.rewards}
        return Rollout(leaves, plain.actions, plain.rewards, plain.discounts, plain.logits)

    joined = concatenate([with_dict(1), with_dict(2)])
    assert set(joined.observations) == {"board", "clock"}
    assert flatten(joined)["observations/board"][0, :, 0, 0].tolist() == [1, 2]
