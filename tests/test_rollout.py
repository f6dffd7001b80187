"""Rollouts and agent outputs: alignment, masks, and errors that name the argument."""

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Rollout, TimeStep, Transitions, Window

HEADS = HeadSpec(
    state={"logits": (2,), "y": (3,)},
    action={"q": (4,), "aux": (2,)},
    loss_only=frozenset({"aux"}),
)


def rollout(**changes):
    """Three steps of two trajectories; the second one's episode ends with the last step."""
    values = {
        "observations": torch.arange(3 * 2 * 5).reshape(3, 2, 5),
        "actions": torch.tensor([[0, 1], [1, 0], [1, 1]]),
        "rewards": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        "discounts": torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]),
        "logits": torch.arange(3 * 2 * 2.0).reshape(3, 2, 2),
    }
    return Rollout(**(values | changes))


def transitions(**changes):
    values = {field.name: getattr(rollout().transitions(), field.name) for field in FIELDS}
    return Transitions(**(values | changes))


FIELDS = fields(Transitions)


def outputs(steps=3, batch=2):
    return AgentOutputs(
        state={"logits": torch.zeros(steps, batch, 2), "y": torch.zeros(steps, batch, 3)},
        action={
            "q": torch.arange(steps * batch * 2 * 4.0).reshape(steps, batch, 2, 4),
            "aux": torch.zeros(steps, batch, 2, 2),
        },
    )


def test_a_reward_belongs_to_the_action_before_it():
    steps = rollout().transitions()
    assert steps.actions.tolist() == [[0, 1], [1, 0]]
    assert steps.rewards.tolist() == [[3, 4], [5, 6]]
    assert steps.terminals.tolist() == [[False, False], [False, True]]
    assert steps.terminals.dtype == torch.bool
    assert steps.continues.tolist() == [[1, 1], [1, 0]]
    assert torch.equal(steps.behaviour_logits, rollout().logits[:2])
    assert steps.advantages is None


def test_first_steps_of_an_episode_do_not_count():
    assert rollout().loss_mask().tolist() == [[0, 1], [1, 1]]
    assert rollout().to(torch.float64).loss_mask().dtype == torch.float64


def test_other_float_types_leave_integers_alone():
    moved = rollout().to(torch.float64)
    assert moved.rewards.dtype == moved.discounts.dtype == moved.logits.dtype == torch.float64
    assert moved.actions.dtype == moved.observations.dtype == torch.int64
    assert moved.num_actions == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rewards", torch.zeros(3, 1)),
        ("rewards", torch.zeros(2, 2)),
        ("discounts", torch.zeros(3)),
        ("logits", torch.zeros(3, 2)),
        ("logits", torch.zeros(2, 2, 2)),
        ("logits", torch.zeros(3, 2, 2, 1)),
        ("observations", torch.zeros(3, 3, 5)),
        ("observations", torch.zeros(3)),
        ("actions", torch.zeros(1, 2, dtype=torch.int64)),
        ("actions", torch.zeros(3, 2, 1, dtype=torch.int64)),
        ("final", torch.zeros(2, 2, dtype=torch.bool)),
    ],
)
def test_rollout_shape_errors_name_the_argument_and_both_shapes(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected .*got ") as error:
        rollout(**{name: value})
    assert str(list(value.shape)) in str(error.value)


def test_dictionary_observations():
    leaves = {"board": torch.zeros(3, 2, 4), "clock": torch.zeros(3, 2)}
    assert rollout(observations=leaves).observations is leaves
    with pytest.raises(ValueError, match=r"^clock: .*got \[2, 2\]"):
        rollout(observations=leaves | {"clock": torch.zeros(2, 2)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_actions_must_be_integers(dtype):
    with pytest.raises(TypeError, match=r"^actions: expected integers"):
        rollout(actions=torch.zeros(3, 2, dtype=dtype))
    with pytest.raises(TypeError, match=r"^actions: expected integers"):
        transitions(actions=torch.zeros(2, 2, dtype=dtype))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actions", torch.zeros(3, 2, dtype=torch.int64)),
        ("rewards", torch.zeros(2)),
        ("rewards", torch.zeros(0, 2)),
        ("terminals", torch.zeros(2, 1, dtype=torch.bool)),
        ("behaviour_logits", torch.zeros(3, 2, 2)),
        ("behaviour_logits", torch.zeros(2, 2)),
        ("advantages", torch.zeros(3, 2)),
        ("gaps", torch.zeros(3, 2, dtype=torch.bool)),
        ("linked", torch.zeros(3, 2, dtype=torch.bool)),
    ],
)
def test_transition_shape_errors_name_the_argument(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        transitions(**{name: value})


def test_taken_keeps_the_action_taken_of_all_but_the_last_step():
    every = outputs()
    taken = every.taken(torch.tensor([[0, 1], [1, 0]]))
    assert taken.action["q"].shape == (2, 2, 4)
    for t, b, a in [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]:
        assert torch.equal(taken.action["q"][t, b], every.action["q"][t, b, a])
    assert taken.state["y"].shape == (3, 2, 3)
    taken.check(HEADS, steps=2, batch=2)


def test_for_targets_leaves_out_what_only_the_loss_reads():
    assert list(HEADS.for_targets().action) == ["q"]
    assert HEADS.for_targets().state == HEADS.state


def test_from_dict_sorts_heads_and_names_missing_ones():
    flat = outputs().state | outputs().action | {"unasked": torch.zeros(1)}
    sorted_outputs = AgentOutputs.from_dict(flat, HEADS)
    assert list(sorted_outputs.state) == ["logits", "y"]
    assert list(sorted_outputs.action) == ["q", "aux"]
    del flat["q"], flat["y"]
    with pytest.raises(ValueError, match=r"lacks the heads \['y', 'q'\].*needs"):
        AgentOutputs.from_dict(flat, HEADS)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("y", (3, 2, 4)), ("y", (2, 2, 3)), ("q", (3, 2, 4)), ("q", (3, 2, 3, 4)), ("aux", (3, 2, 2))],
)
def test_wrong_head_shapes_are_named(name, shape):
    good = outputs()
    good.check(HEADS, steps=3, batch=2)
    group = "state" if name in good.state else "action"
    bad = replace(good, **{group: getattr(good, group) | {name: torch.zeros(shape)}})
    with pytest.raises(ValueError, match=f"^{name}: .*{list(shape)}".replace("[", r"\[")):
        bad.check(HEADS, steps=3, batch=2)


def test_a_missing_head_is_named():
    state = outputs().state
    with pytest.raises(ValueError, match=r"^q: "):
        AgentOutputs(state).check(HEADS, steps=3, batch=2)
    with pytest.raises(ValueError, match=r"^q: "):
        TakenOutputs(state, {}).check(HEADS, steps=2, batch=2)


# --- final observations


def one_trajectory(discounts, final=None):
    """A rollout of one trajectory; `final` names the steps with an episode's last observation."""
    length = len(discounts)
    flags = None
    if final is not None:
        flags = torch.zeros(length, 1, dtype=torch.bool)
        flags[list(final)] = True
    return Rollout(
        observations=torch.zeros(length, 1),
        actions=torch.zeros(length, 1, dtype=torch.int64),
        rewards=torch.arange(length * 1.0).unsqueeze(1),
        discounts=torch.tensor(discounts, dtype=torch.float32).unsqueeze(1),
        logits=torch.zeros(length, 1, 2),
        final=flags,
    )


BOUNDARIES = {
    # name: discounts, final, then what follows: continues, links, firsts, loss masks without
    # and with first steps
    "plain end": ([1, 1, 1, 0, 1, 1], None, "11011", "11011", "000100", "11101", "11111"),
    "no end": ([1, 1, 1, 1, 1, 1], (), "11111", "11111", "000000", "11111", "11111"),
    "plain end, flags": ([1, 1, 1, 0, 1, 1], (), "11011", "11011", "000100", "11101", "11111"),
    "cut, reset": ([1, 1, 1, 0, 1, 1], (2,), "11011", "10011", "000100", "11001", "11011"),
    "cut, no reset": ([1, 1, 1, 1, 1, 1], (2,), "11011", "10011", "000100", "11011", "11011"),
    "end, reset": ([1, 1, 0, 0, 1, 1], (2,), "10011", "10011", "000100", "11001", "11011"),
    "end, no reset": ([1, 1, 0, 1, 1, 1], (2,), "10011", "10011", "000100", "11011", "11011"),
    "cut at the start": ([1, 0, 1, 1], (0,), "011", "011", "0100", "001", "011"),
    "end at the start": ([0, 0, 1, 1], (0,), "011", "011", "0100", "001", "011"),
    "cut at the stop": ([1, 1, 1], (2,), "11", "10", "000", "11", "11"),
    "end at the stop": ([1, 1, 0], (2,), "10", "10", "000", "11", "11"),
    "two cuts": ([1, 1, 0, 1, 0, 1], (1, 3), "10101", "00001", "001010", "10000", "10101"),
}


def text_of(column):
    return "".join(str(int(number)) for number in column[:, 0])


@pytest.mark.parametrize("name", BOUNDARIES)
def test_where_episodes_end_and_are_cut_off(name):
    discounts, final, continues, links, firsts, mask, mask_with_firsts = BOUNDARIES[name]
    steps = one_trajectory(discounts, final)
    assert text_of(steps.transitions().continues) == continues
    assert text_of(steps.transitions().links) == links
    assert text_of(steps.firsts()) == firsts
    assert text_of(steps.loss_mask()) == mask
    assert text_of(steps.loss_mask(first_steps=True)) == mask_with_firsts
    assert steps.firsts().dtype == torch.bool
    assert steps.loss_mask(first_steps=True).dtype == steps.rewards.dtype


@given(
    discounts=st.lists(st.sampled_from([0, 1]), min_size=2, max_size=8),
    flags=st.lists(st.booleans(), min_size=8, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_what_holds_wherever_episodes_end(discounts, flags):
    final = [t for t in range(len(discounts)) if flags[t]]
    steps, plain = one_trajectory(discounts, final), one_trajectory(discounts)
    given_links, links = plain.transitions().links, steps.transitions().links
    # Flags only cut: nothing is linked or counts that was not before.
    assert (links <= given_links).all()
    assert (links <= steps.transitions().continues).all()
    assert (steps.loss_mask() <= plain.loss_mask()).all()
    assert (steps.loss_mask() <= steps.loss_mask(first_steps=True)).all()
    # A step that is no transition leads to a first one, and neither counts nor is linked.
    gaps = steps.final[:-1]
    assert steps.firsts()[1:][gaps & ~steps.final[1:]].all()
    assert not steps.loss_mask(first_steps=True)[gaps].any()
    assert not links[gaps].any()


# --- from an environment's steps


def flags(text):
    """[B] booleans from zeros and ones; None for None."""
    return None if text is None else torch.tensor([letter == "1" for letter in text])


@pytest.mark.parametrize(
    ("terminated", "truncated", "reset", "ended", "first", "discount"),
    [
        ("010", None, None, "010", "010", [1, 0, 1]),
        ("010", "001", None, "011", "011", [1, 0, 1]),
        ("010", "001", "100", "011", "100", [0, 0, 1]),
        ("000", "000", "000", "000", "000", [1, 1, 1]),
    ],
)
def test_what_a_step_says(terminated, truncated, reset, ended, first, discount):
    reward = torch.zeros(3, dtype=torch.float64)
    step = TimeStep(torch.zeros(3, 2), reward, flags(terminated), flags(truncated), flags(reset))
    assert torch.equal(step.ended, flags(ended))
    assert torch.equal(step.first, flags(first))
    assert torch.equal(step.idle, flags(reset or "000"))
    assert step.discount.tolist() == discount
    assert step.discount.dtype == reward.dtype


def steps_of(story, never_cut=False, instant=False):
    """Steps of one copy: `e` is an episode's end, `c` a cut, `r` a reset, `.` anything else.

    Observation and reward are the number of the step, and last observations 100 more.
    """
    for t, letter in enumerate(story):
        cut = letter == "c"
        yield TimeStep(
            observation=torch.tensor([[float(t)]]),
            reward=torch.tensor([float(t)]),
            terminated=torch.tensor([letter == "e"]),
            truncated=None if never_cut else torch.tensor([cut]),
            reset=None if never_cut or instant else torch.tensor([letter == "r"]),
            last=torch.tensor([[100.0 + t]]) if instant and cut else None,
        )


NEVER, INSTANT = {"never_cut": True}, {"instant": True}
STORIES = [
    # story, kind of environment, whether the agent remembers, and what is stored: discounts,
    # final observations, observations
    ("...e..", NEVER, False, [1, 1, 1, 0, 1, 1], None, [0, 1, 2, 3, 4, 5]),
    ("...e..", NEVER, True, [1, 1, 1, 0, 1, 1], None, [0, 1, 2, 3, 4, 5]),
    ("..er..", {}, False, [1, 1, 0, 0, 1, 1], (2,), [0, 1, 2, 3, 4, 5]),
    ("..cr..", {}, False, [1, 1, 1, 0, 1, 1], (2,), [0, 1, 2, 3, 4, 5]),
    ("..cr..", {}, True, [1, 1, 1, 0, 1, 1], (2,), [0, 1, 2, 3, 4, 5]),
    ("r..c", {}, False, [0, 1, 1, 1], (3,), [0, 1, 2, 3]),
    ("...e..", INSTANT, False, [1, 1, 1, 0, 1, 1], (), [0, 1, 2, 3, 4, 5]),
    ("..c...", INSTANT, False, [1, 1, 1, 1, 1, 1], (2,), [0, 1, 102, 3, 4, 5]),
    ("...c..", INSTANT, True, [1, 1, 1, 0, 1, 1], (2,), [0, 1, 2, 3, 4, 5]),
    ("c..c", INSTANT, False, [1, 1, 1, 1], (0, 3), [100, 1, 2, 103]),
    ("c..c", INSTANT, True, [0, 1, 1, 0], (2,), [0, 1, 2, 3]),
    (".ce.c", INSTANT, True, [1, 0, 0, 1, 0], (0, 3), [0, 1, 2, 3, 4]),
]


@pytest.mark.parametrize(("story", "kind", "remembers", "discounts", "final", "seen"), STORIES)
def test_what_is_stored_of_steps(story, kind, remembers, discounts, final, seen):
    steps = list(steps_of(story, **kind))
    actions = [torch.tensor([t % 2]) for t in range(len(steps))]
    logits = [torch.full((1, 2), float(t)) for t in range(len(steps))]
    memory = {"cell": torch.ones(1, 7)} if remembers else None
    stored = Rollout.from_steps(steps, actions, logits, memory)
    expected = one_trajectory(discounts, final)
    assert torch.equal(stored.discounts, expected.discounts)
    assert (stored.final is None) == (final is None)
    assert final is None or torch.equal(stored.final, expected.final)
    assert stored.observations.flatten().tolist() == seen
    # What was done and what it brought is stored as it was.
    assert torch.equal(stored.rewards, expected.rewards)
    assert torch.equal(stored.actions, torch.stack(actions))
    assert torch.equal(stored.logits, torch.stack(logits))
    assert (stored.memory is None) == (not remembers)
    if remembers:
        assert stored.memory["cell"].shape == (1, 1, 7)
        # An agent that remembers is told of every episode's first observation.
        firsts = torch.stack([step.first for step in steps])
        assert torch.equal(stored.firsts(), firsts)


def test_steps_of_dictionaries_keep_their_other_rows():
    def step(last=None, truncated=(False, False)):
        observation = {"a": torch.zeros(2, 1), "b": torch.zeros(2, dtype=torch.uint8)}
        nothing = torch.zeros(2)
        return TimeStep(observation, nothing, nothing.bool(), torch.tensor(truncated), last=last)

    last = {"a": torch.tensor([[0.0], [5.0]]), "b": torch.tensor([0, 7], dtype=torch.uint8)}
    steps = [step(), step(last, (False, True)), step()]
    acted = [torch.zeros(2, dtype=torch.int64)] * 3
    stored = Rollout.from_steps(steps, acted, [torch.zeros(2, 2)] * 3)
    assert stored.observations["a"].squeeze(-1).tolist() == [[0, 0], [0, 5], [0, 0]]
    assert stored.observations["b"].tolist() == [[0, 0], [0, 7], [0, 0]]
    assert stored.observations["b"].dtype == torch.uint8
    assert stored.final.tolist() == [[False, False], [False, True], [False, False]]


def test_decay_and_gaps_follow_the_links():
    plain = one_trajectory([1, 1, 1, 1]).transitions()
    assert plain.trace_decay(0.9) == 0.9
    assert plain.without_gaps(plain.rewards) is plain.rewards
    cut = one_trajectory([1, 1, 1, 0, 1], final=(2,)).transitions()
    torch.testing.assert_close(cut.trace_decay(0.9), 0.9 * cut.links)
    assert cut.without_gaps(cut.rewards).squeeze(1).tolist() == [1, 2, 0, 4]
    assert cut.trace_decay(0.9).dtype == cut.rewards.dtype


def test_double_precision_keeps_flags_and_memory():
    memory = {"cell": torch.ones(1, 2, 7)}
    final = torch.zeros(3, 2, dtype=torch.bool)
    moved = rollout(final=final, memory=memory).to(torch.float64)
    assert moved.final is final
    assert moved.memory is memory
    assert moved.transitions().links.dtype == torch.float64
    assert moved.transitions().trace_decay(0.5).dtype == torch.float64


def test_inputs_are_a_window_where_there_is_memory():
    plain = rollout()
    assert plain.inputs() is plain.observations
    memory = {"hidden": torch.rand(1, 2, 7), "cell": torch.rand(1, 2, 4, 3)}
    window = rollout(memory=memory).inputs()
    assert isinstance(window, Window)
    assert torch.equal(window.observations, plain.observations)
    assert torch.equal(window.firsts, plain.firsts())
    assert {k: m.shape for k, m in window.memory.items()} == {"hidden": (2, 7), "cell": (2, 4, 3)}
    assert torch.equal(window.memory["cell"], memory["cell"][0])


@pytest.mark.parametrize("shape", [(2, 7), (3, 2, 7), (1, 3, 7)])
def test_memory_of_the_wrong_shape_is_named(shape):
    with pytest.raises(ValueError, match=r"^cell: expected \[1, 2, '...'\], got"):
        rollout(memory={"cell": torch.zeros(shape)})
