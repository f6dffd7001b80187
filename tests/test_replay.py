"""The ring of trajectories: order, sampling, memory, and going on from a saved state."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.envs import make_environment
from discorl.group import Group
from discorl.observations import ArraySpec, spec_entries
from discorl.replay import Replay, ReplaySpec, concatenate, deal_out, first_trajectories
from discorl.rollout import Rollout
from discorl.tree import flatten

SPEC = ReplaySpec(ArraySpec((2, 3), torch.uint8), num_actions=4)
LENGTH = 3


def rollout(*tags, length=LENGTH, shape=(2, 3), actions=4):
    """Trajectories that carry their tag in every field."""
    row = torch.tensor(tags, dtype=torch.float32).expand(length, len(tags))
    return Rollout(
        observations=row.long()
        .to(torch.uint8)
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
    shown = tags.to(batch.observations.dtype)  # Bytes begin again after 255.
    assert torch.equal(batch.observations, shown.reshape(1, -1, 1, 1).expand_as(batch.observations))
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
        assert_same(one, other)


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
        Replay(8, LENGTH, ReplaySpec(ArraySpec((5,), torch.uint8), 4)).load_state_dict(
            big.state_dict()
        )


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
        ReplaySpec(ArraySpec(()), 2),
        ReplaySpec(ArraySpec((7,), torch.int64), 18, reward_dtype=torch.float64),
        ReplaySpec(ArraySpec((7,)), 3, final=True),
        ReplaySpec(ArraySpec((7,)), 3, memory={"hidden": (5,), "cell": (2, 3)}),
        ReplaySpec({"board": ArraySpec((4, 4, 2), torch.uint8), "clock": ArraySpec(())}, 3),
    ],
)
def test_memory_is_what_is_really_taken(spec):
    replay = Replay(6, 5, spec)
    entries = {
        name: torch.zeros(5, 6, *entry.shape, dtype=entry.dtype)
        for name, entry in spec_entries(spec.observation).items()
    }
    replay.add(
        Rollout(
            observations=entries if isinstance(spec.observation, dict) else entries["observations"],
            actions=torch.zeros(5, 6, dtype=torch.int64),
            rewards=torch.zeros(5, 6),
            discounts=torch.zeros(5, 6),
            logits=torch.zeros(5, 6, spec.num_actions),
            final=torch.zeros(5, 6, dtype=torch.bool) if spec.final else None,
            memory={k: torch.zeros(1, 6, *shape) for k, shape in spec.memory.items()} or None,
        )
    )
    state = replay.state_dict()
    del state["position"]
    taken = sum(tensor.nbytes for tensor in state.values())
    assert replay.memory() == taken
    remembered = sum(4 * torch.Size(shape).numel() for shape in spec.memory.values())
    assert 6 * (5 * spec.bytes_per_step() + remembered) == taken


def test_catch_takes_a_fiftieth_of_storing_every_head():
    env = make_environment("catch", 1)
    spec = ReplaySpec(env.observation_spec, env.num_actions)
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


RICH = ReplaySpec(
    {"board": ArraySpec((2, 3), torch.uint8), "clock": ArraySpec(())},
    num_actions=4,
    final=True,
    memory={"hidden": (5,)},
)


def rich_rollout(*tags):
    """Trajectories with a dictionary, flags and memory, which all carry the tag."""
    plain = rollout(*tags)
    row = plain.actions
    return replace(
        plain,
        observations={"board": plain.observations, "clock": plain.rewards},
        final=(row + torch.arange(LENGTH).unsqueeze(1)) % 2 == 0,
        memory={"hidden": row[:1].unsqueeze(-1) + torch.arange(5) / 10},
    )


def assert_same(one, other):
    first, second = flatten(one), flatten(other)
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert torch.equal(tensor, second[name]), name


def test_dictionaries_flags_and_memory_come_back_with_their_trajectory():
    replay = Replay(4, LENGTH, RICH)
    replay.add(rich_rollout(1, 2, 3))
    replay.add(rich_rollout(4, 5, 6))
    batch = replay.sample(200, torch.Generator().manual_seed(0))
    tags = batch.actions[0].tolist()
    assert set(tags) == {3, 4, 5, 6}
    assert_same(batch, rich_rollout(*tags))
    assert batch.inputs().memory["hidden"].shape == (200, 5)


@pytest.mark.parametrize("added", [3, 8, 11])
def test_a_restored_replay_has_dictionaries_flags_and_memory(added):
    first, second = Replay(8, LENGTH, RICH), Replay(8, LENGTH, RICH)
    for tag in range(added):
        first.add(rich_rollout(tag))
    state = first.state_dict()
    assert state["memory/hidden"].shape == (1, min(added, 8), 5)
    assert state["observations/board"].dtype == torch.uint8
    second.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
    for replay in (first, second):
        replay.add(rich_rollout(100, 101))
    one, other = (r.sample(50, torch.Generator().manual_seed(5)) for r in (first, second))
    assert_same(one, other)
    assert_same(one, rich_rollout(*one.actions[0].tolist()))


@pytest.mark.parametrize(
    ("spec", "given", "match"),
    [
        (RICH, replace(rich_rollout(1), final=None), "final: missing"),
        (RICH, replace(rich_rollout(1), memory=None), "memory/hidden: missing"),
        (
            RICH,
            replace(rich_rollout(1), memory={"hidden": torch.zeros(1, 1, 4)}),
            r"memory/hidden: .*\[5\], got \[4\]",
        ),
        (
            RICH,
            replace(rich_rollout(1), observations={"board": rollout(1).observations}),
            "observations/clock: missing",
        ),
        (
            SPEC,
            replace(rollout(1), final=torch.zeros(LENGTH, 1, dtype=torch.bool)),
            "final: no room was made for it",
        ),
        (SPEC, replace(rollout(1), memory={"cell": torch.zeros(1, 1, 2)}), "memory/cell: no room"),
        (SPEC, replace(rollout(1), observations={"a": torch.zeros(LENGTH, 1)}), "observations"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(spec, given, match):
    replay = Replay(2, LENGTH, spec)
    with pytest.raises(ValueError, match=f"^{match}"):
        replay.add(given)
    assert replay.size == 0
    assert replay.state_dict()["position"].tolist() == [0, 0]


def test_concatenate_and_first_trajectories_keep_everything():
    joined = concatenate([rich_rollout(1, 2), rich_rollout(3)])
    assert_same(joined, rich_rollout(1, 2, 3))
    assert_same(first_trajectories(joined, 2), rich_rollout(1, 2))


def member(rank, size):
    """A process of a group that never talks."""
    group = Group()
    group.rank, group.size = rank, size
    return group


@given(
    before=st.integers(1, 4),
    now=st.integers(1, 4),
    envs=st.integers(1, 3),
    rollouts=st.integers(1, 9),
)
@settings(max_examples=40, deadline=None)
def test_what_was_stored_is_dealt_out(before, now, envs, rollouts):
    """The newest of all, oldest first, each to one process, and equally many to each."""
    total, capacity = before * now * envs, 4 * before * now * envs
    old, tags = [Replay(capacity // before, LENGTH, SPEC) for _ in range(before)], []
    for _ in range(rollouts):
        for replay in old:
            own = range(len(tags), len(tags) + total // before)
            replay.add(rollout(*own))
            tags += own
    new = []
    for rank in range(now):
        new.append(Replay(capacity // now, LENGTH, SPEC))
        deal_out(old, new[-1], member(rank, now), total // now)
    found = [tags_of(replay.read(replay.oldest_first())) for replay in new]
    kept = min(len(tags), capacity)
    assert [len(own) for own in found] == [kept // now] * now
    assert sorted(tag for own in found for tag in own) == tags[-kept:]
    batches = [[tag // total for tag in own] for own in found]
    assert all(own == sorted(own) for own in batches)


def test_a_few_of_the_oldest_are_left_out_where_the_numbers_do_not_fit():
    old = Replay(7, LENGTH, SPEC)
    for start in range(0, 12, 4):
        old.add(rollout(*range(start, start + 4)))
    new = [Replay(4, LENGTH, SPEC) for _ in range(2)]
    for rank, replay in enumerate(new):
        deal_out([old], replay, member(rank, 2), 2)
    assert [tags_of(replay.read(replay.oldest_first())) for replay in new] == [[9, 11], [8, 10]]
