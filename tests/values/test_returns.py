"""V-trace and Retrace."""

from dataclasses import astuple, fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.values import importance_weights, lookup, retrace, vtrace

f64 = torch.float64
few = settings(max_examples=30, deadline=None)
sizes = st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(2, 4), st.integers(0, 10**6))


def column(*numbers):
    """[T, 1]."""
    return torch.tensor(numbers, dtype=f64).unsqueeze(-1)


def experience(steps, batch, actions, seed):
    """Random arguments of `vtrace` and `retrace`, of which each takes a part; nothing ends."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=f64)

    return {
        "rewards": normal(steps, batch),
        "discounts": torch.full((steps, batch), 0.9, dtype=f64),
        "rho": normal(steps, batch).exp(),
        "actions": torch.randint(actions, (steps, batch), generator=generator),
        "values": normal(steps + 1, batch),
        "target_values": normal(steps + 1, batch),
        "q_values": normal(steps + 1, batch, actions),
        "target_q_values": normal(steps + 1, batch, actions),
        "lambda_": 0.95,
    }


def vtrace_part(case):
    return {k: v for k, v in case.items() if k != "actions" and "q_values" not in k}


def retrace_part(case):
    return {k: v for k, v in case.items() if k != "values"}


def test_vtrace_by_hand():
    returns = vtrace(
        rewards=column(1, 2),
        discounts=column(0.5, 0.5),
        rho=column(2, 0.5),
        values=column(3, 9, 0),
        target_values=column(4, 10, 20),
        lambda_=0.5,
    )
    # Errors: 0.5 (2 + 10 - 10) = 1, then (1 + 5 - 4) + 0.5 * 0.5 * 1 = 2.25.
    torch.testing.assert_close(returns.value_target, column(6.25, 11))
    torch.testing.assert_close(returns.td, column(3.25, 2))
    # Bootstraps: 20, and 0.5 * 11 + 0.5 * 10 = 10.5.
    torch.testing.assert_close(returns.advantage, column(1 + 5.25 - 4, 1))


def test_retrace_by_hand():
    actions = torch.tensor([[0], [1]])
    nothing = [0.0, 0.0]
    returns = retrace(
        rewards=column(1, 2),
        discounts=column(0.5, 0.5),
        rho=column(9, 0.5),
        actions=actions,
        target_values=column(4, 10, 20),
        q_values=torch.tensor([[[6.0, 0.0]], [[0.0, 11.0]], [nothing]], dtype=f64),
        target_q_values=torch.tensor([[[5.0, 1.0]], [[7.0, 8.0]], [nothing]], dtype=f64),
        lambda_=0.5,
    )
    # 2 + 0.5 * 20 = 12, then 1 + 0.5 (10 + 0.25 (12 - 8)) = 6.5.
    torch.testing.assert_close(returns.q_target, column(6.5, 12))
    torch.testing.assert_close(returns.advantage, column(2.5, 2))
    torch.testing.assert_close(returns.q_td, column(0.5, 1))
    expected = torch.tensor([[[1.0, -3.0]], [[-3.0, -2.0]], [[-20.0, -20.0]]], dtype=f64)
    torch.testing.assert_close(returns.qv_advantage, expected)


@few
@given(sizes)
def test_vtrace_on_policy_without_decay_is_the_discounted_return(size):
    case = vtrace_part(experience(*size)) | {"lambda_": 1.0}
    case["rho"] = torch.ones_like(case["rho"])
    expected = case["target_values"][-1]
    for t in reversed(range(size[0])):
        expected = case["rewards"][t] + case["discounts"][t] * expected
        torch.testing.assert_close(vtrace(**case).value_target[t], expected)


@few
@given(sizes)
def test_retrace_without_traces_is_one_step(size):
    case = experience(*size) | {"lambda_": 0.0}
    expected = case["rewards"] + case["discounts"] * case["target_values"][1:]
    torch.testing.assert_close(retrace(**retrace_part(case)).q_target, expected)


@few
@given(sizes)
def test_vtrace_without_decay_of_rho_or_traces_is_one_step(size):
    case = vtrace_part(experience(*size)) | {"lambda_": 0.0}
    case["rho"] = 1 + case["rho"]
    expected = case["rewards"] + case["discounts"] * case["target_values"][1:]
    torch.testing.assert_close(vtrace(**case).value_target, expected)


@few
@given(sizes)
def test_retrace_finds_nothing_to_mend_in_consistent_values(size):
    case = experience(*size)
    consistent = case["rewards"] + case["discounts"] * case["target_values"][1:]
    index = case["actions"].unsqueeze(-1)
    target_q = case["target_q_values"]
    target_q[:-1] = target_q[:-1].scatter(2, index, consistent.unsqueeze(-1))
    case["q_values"] = target_q
    returns = retrace(**retrace_part(case))
    torch.testing.assert_close(returns.q_target, lookup(target_q[:-1], case["actions"]))
    assert returns.q_td.abs().max() < 1e-9


@few
@given(sizes, st.data())
def test_terminals_cut(size, data):
    """What follows a terminal transition, its successor's value included, is never read."""
    steps, _, _, seed = size
    case, other = experience(*size), experience(*size[:3], seed + 1)
    end = data.draw(st.integers(0, steps - 1))
    case["discounts"][end] = 0
    changed = dict(case)
    for name, value in case.items():
        if isinstance(value, torch.Tensor):
            changed[name] = torch.cat([value[: end + 1], other[name][end + 1 :]])
    first, second = vtrace(**vtrace_part(case)), vtrace(**vtrace_part(changed))
    for ours, theirs in zip(astuple(first), astuple(second), strict=True):
        torch.testing.assert_close(ours[: end + 1], theirs[: end + 1])
    first, second = retrace(**retrace_part(case)), retrace(**retrace_part(changed))
    for name in ("q_target", "advantage", "q_td", "qv_advantage"):
        ours, theirs = getattr(first, name), getattr(second, name)
        torch.testing.assert_close(ours[: end + 1], theirs[: end + 1])
    torch.testing.assert_close(first.q_target[end], case["rewards"][end])


def test_retrace_targets_carry_no_gradient():
    case = experience(4, 2, 3, seed=0)
    for name in ("target_values", "q_values", "target_q_values"):
        case[name].requires_grad_()
    assert not retrace(**retrace_part(case)).q_target.requires_grad


def test_importance_weights_by_hand():
    pi = torch.tensor([[[0.2, 0.8], [0.5, 0.5]]], dtype=f64).log().requires_grad_()
    mu = torch.tensor([[[0.4, 0.6], [0.9, 0.1]]], dtype=f64).log()
    rho = importance_weights(pi, mu, torch.tensor([[0, 1]]))
    torch.testing.assert_close(rho, torch.tensor([[0.5, 5.0]], dtype=f64))
    assert not rho.requires_grad


@pytest.mark.parametrize("name", ["discounts", "rho", "values", "target_values"])
def test_wrong_shapes_are_named_by_vtrace(name):
    case = experience(4, 2, 3, seed=0)
    case[name] = case[name][:-1]
    with pytest.raises(ValueError, match=rf"^{name}: expected \["):
        vtrace(**vtrace_part(case))


@pytest.mark.parametrize("name", ["discounts", "rho", "actions", "target_values"])
def test_wrong_shapes_are_named_by_retrace(name):
    case = experience(4, 2, 3, seed=0)
    case[name] = case[name][:-1]
    with pytest.raises(ValueError, match=rf"^{name}: expected \["):
        retrace(**retrace_part(case))


@pytest.mark.parametrize("rewards", [torch.zeros(3), torch.zeros(0, 2)])
def test_rewards_need_time_and_batch(rewards):
    case = experience(4, 2, 3, seed=0) | {"rewards": rewards}
    with pytest.raises(ValueError, match=r"rewards: expected \[T, B\]"):
        vtrace(**vtrace_part(case))


# --- a trace decay for each transition


def vtrace_and_retrace(case):
    """Every result [T, B] of both, by name."""
    both = {"vtrace": vtrace(**vtrace_part(case)), "retrace": retrace(**retrace_part(case))}
    return {
        f"{name} {field.name}": getattr(returns, field.name)
        for name, returns in both.items()
        for field in fields(returns)
        if field.name != "qv_advantage"
    }


@few
@given(sizes, st.floats(0, 1))
def test_a_constant_decay_is_the_number(size, decay):
    case = experience(*size)
    number = vtrace_and_retrace(case | {"lambda_": decay})
    tensor = vtrace_and_retrace(case | {"lambda_": torch.full_like(case["rewards"], decay)})
    for name, expected in number.items():
        torch.testing.assert_close(tensor[name], expected, rtol=1e-12, atol=1e-12)


@few
@given(sizes, st.data())
def test_no_decay_at_a_transition_bootstraps_there(size, data):
    case, steps = experience(*size), size[0]
    cut = data.draw(st.integers(0, steps - 1))
    decay = experience(*size[:3], size[3] + 1)["rewards"].sigmoid()
    decay[cut] = 0
    results = vtrace_and_retrace(case | {"lambda_": decay})
    one_step = case["rewards"] + case["discounts"] * case["target_values"][1:]
    values, weight = case["target_values"][:-1], case["rho"].clamp(max=1)
    error = weight * (one_step - values)
    torch.testing.assert_close(results["vtrace value_target"][cut], (values + error)[cut])
    torch.testing.assert_close(results["vtrace advantage"][cut], error[cut])
    torch.testing.assert_close(results["retrace q_target"][cut], one_step[cut])


@few
@given(sizes, st.data(), st.booleans())
def test_nothing_comes_back_over_a_transition_without_decay(size, data, cuts):
    # Given two experiences that are the same up to a transition and the state it led to
    steps, _, _, seed = size
    case, other = experience(*size), experience(*size[:3], seed + 1)
    cut = data.draw(st.integers(0, steps - 1))
    case["lambda_"] = torch.full_like(case["rewards"], 0.9)
    other["lambda_"] = torch.full_like(case["rewards"], 0.4)
    changed = {}
    for name, value in case.items():
        same = cut + 1 + len(value) - steps
        changed[name] = torch.cat([value[:same], other[name][same:]])
    if cuts:
        case["lambda_"][cut] = changed["lambda_"][cut] = 0
    # When their returns are computed
    first, second = vtrace_and_retrace(case), vtrace_and_retrace(changed)
    for name, ours in first.items():
        theirs = second[name]
        # Then they are the same up to there if the transition has no decay, else not
        if cuts:
            torch.testing.assert_close(ours[: cut + 1], theirs[: cut + 1])
        elif cut < steps - 1:
            assert not torch.allclose(ours[cut], theirs[cut]), name
