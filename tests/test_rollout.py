"""Rollouts and agent outputs: alignment, masks, and errors that name the argument."""

from dataclasses import fields, replace

import pytest
import torch

from discorl.rollout import AgentOutputs, HeadSpec, Rollout, TakenOutputs, Transitions

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
