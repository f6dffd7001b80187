"""Clipped Adam against numbers worked by hand and against PyTorch's own Adam."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.optim import ClippedAdam, Schedule, apply_updates, global_norm

f64 = torch.float64


def adam(learning_rate=0.1, fall_steps=None, final_fraction=0.0, **options):
    return ClippedAdam(Schedule(learning_rate, fall_steps, final_fraction), **options)


def single(*numbers):
    return {"p": torch.tensor(numbers, dtype=f64)}


def run(optimiser, params, gradients):
    """Parameters after every gradient in turn, and the last state."""
    state = optimiser.init(params)
    for grads in gradients:
        updates, state = optimiser.update(grads, state, params)
        params = apply_updates(params, updates)
    return params, state


def test_two_steps_by_hand():
    optimiser = adam(0.1, beta1=0.5, beta2=0.75, eps=0.0, max_step=100.0)
    params = single(1.0)
    state = optimiser.init(params)
    updates, state = optimiser.update(single(2.0), state, params)
    # First moment 0.5 * 2 = 1, second 0.25 * 4 = 1; debiased 2 and 4: 2 / 2 = 1.
    assert state.first["p"].item() == 1.0
    assert state.second["p"].item() == 1.0
    assert updates["p"].item() == pytest.approx(-0.1)
    updates, state = optimiser.update(single(-4.0), state, params)
    # First 0.5 * 1 - 0.5 * 4 = -1.5 over 0.75; second 0.75 * 1 + 0.25 * 16 = 4.75 over 7 / 16.
    assert state.first["p"].item() == -1.5
    assert state.second["p"].item() == 4.75
    assert updates["p"].item() == pytest.approx(0.1 * 2 / math.sqrt(4.75 * 16 / 7))


@given(seed=st.integers(0, 2**31), learning_rate=st.floats(1e-5, 1.0), steps=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_equals_torch_adam_where_no_clip_binds(seed, learning_rate, steps):
    generator = torch.Generator().manual_seed(seed)

    def draw():
        return {
            "w": torch.randn(3, 2, generator=generator, dtype=f64),
            "b": torch.randn(2, generator=generator, dtype=f64),
        }

    start, gradients = draw(), [draw() for _ in range(steps)]
    ours, _ = run(adam(learning_rate, max_step=math.inf), start, gradients)
    theirs = {name: p.clone().requires_grad_() for name, p in start.items()}
    reference = torch.optim.Adam(theirs.values(), lr=learning_rate)
    for grads in gradients:
        for name, p in theirs.items():
            p.grad = grads[name]
        reference.step()
    for name, p in ours.items():
        torch.testing.assert_close(p, theirs[name].detach(), rtol=1e-10, atol=1e-12)


def test_a_sudden_gradient_is_clipped_element_by_element():
    tiny, sudden = single(1e-3, 1e-3), single(1.0, 1e-3)
    gradients = [tiny] * 200 + [sudden]
    params = single(0.0, 0.0)
    free = adam(0.1, max_step=math.inf)
    before, state = run(free, params, gradients[:-1])
    unclipped, _ = free.update(sudden, state, before)
    clipped, clipped_state = adam(0.1, max_step=0.7).update(sudden, state, before)
    assert unclipped["p"][0] < -0.1  # else this tests nothing
    assert clipped["p"][0].item() == pytest.approx(-0.07, rel=1e-12)
    # The neighbour's own step is about 1, above 0.7 too; its sign is its own.
    assert clipped["p"][1].item() == pytest.approx(-0.07, rel=1e-12)
    up, _ = adam(0.1, max_step=0.7).update(single(-1.0, 1e-3), state, before)
    assert up["p"][0] > 0
    # Only the step is clipped, never what is remembered.
    torch.testing.assert_close(clipped_state.first["p"], 0.9 * state.first["p"] + 0.1 * sudden["p"])


@given(scale=st.floats(1e-12, 1e12), learning_rate=st.floats(1e-6, 1.0))
@settings(max_examples=50, deadline=None)
def test_no_element_moves_further_than_the_learning_rate(scale, learning_rate):
    gradients = [single(1e-9, -1.0, 0.0), single(scale, -scale, scale)]
    optimiser, params = adam(learning_rate), single(0.0, 0.0, 0.0)
    before, state = run(optimiser, params, gradients[:1])
    updates, _ = optimiser.update(gradients[1], state, before)
    assert torch.isfinite(updates["p"]).all()
    assert updates["p"].abs().max() <= learning_rate


def test_a_gradient_of_zero_moves_nothing():
    params, state = run(adam(), single(1.0, -2.0), [single(0.0, 0.0)] * 3)
    torch.testing.assert_close(params["p"], single(1.0, -2.0)["p"], rtol=0, atol=0)
    assert state.count.item() == 3


def test_weight_decay_is_decoupled():
    params = single(3.0, -4.0)
    grads = single(0.5, 1e-4)
    plain = adam(0.1)
    decayed = adam(0.1, weight_decay=0.2)
    without, plain_state = plain.update(grads, plain.init(params), params)
    with_decay, decayed_state = decayed.update(grads, decayed.init(params), params)
    # 0.1 * 0.2 of each parameter, whatever the gradients and outside of the clip.
    torch.testing.assert_close(with_decay["p"] - without["p"], -0.02 * params["p"])
    torch.testing.assert_close(decayed_state.first["p"], plain_state.first["p"])
    torch.testing.assert_close(decayed_state.second["p"], plain_state.second["p"])


def test_weight_decay_equals_torch_adamw():
    start = single(3.0, -4.0)
    gradients = [single(0.5, 1.0), single(-0.1, 2.0), single(0.3, 0.3)]
    ours, _ = run(adam(0.05, weight_decay=0.3, max_step=math.inf), start, gradients)
    theirs = start["p"].clone().requires_grad_()
    reference = torch.optim.AdamW([theirs], lr=0.05, weight_decay=0.3)
    for grads in gradients:
        theirs.grad = grads["p"]
        reference.step()
    torch.testing.assert_close(ours["p"], theirs.detach())


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, 0.4), (25, 0.1 + 0.3 * (2 + math.sqrt(2)) / 4), (50, 0.25), (100, 0.1), (1000, 0.1)],
)
def test_cosine_schedule(count, expected):
    schedule = Schedule(0.4, fall_steps=100, final_fraction=0.25)
    assert float(schedule(torch.tensor(count))) == pytest.approx(expected, rel=1e-6)


def test_cosine_schedule_falls_to_zero_by_default():
    schedule = Schedule(0.4, fall_steps=10)
    rates = [float(schedule(torch.tensor(count))) for count in range(12)]
    assert rates[0] == pytest.approx(0.4)
    assert rates[10:] == pytest.approx([0, 0], abs=1e-8)
    assert all(a > b for a, b in itertools.pairwise(rates[:11]))


@pytest.mark.parametrize(
    ("count", "expected"), [(0, 0.4), (25, 0.325), (50, 0.25), (100, 0.1), (1000, 0.1)]
)
def test_linear_schedule(count, expected):
    schedule = Schedule(0.4, fall_steps=100, final_fraction=0.25, shape="linear")
    assert float(schedule(torch.tensor(count))) == pytest.approx(expected, rel=1e-6)


def test_the_learning_rate_rises_over_the_warm_up_and_then_stays():
    schedule = Schedule(0.4, warmup_steps=4)
    rates = [float(schedule(torch.tensor(count))) for count in range(6)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_a_warm_up_and_a_fall_multiply():
    schedule = Schedule(0.4, fall_steps=10, shape="linear", warmup_steps=2)
    rates = [float(schedule(torch.tensor(count))) for count in (0, 1, 5, 10)]
    assert rates == pytest.approx([0.2, 0.36, 0.2, 0.0], abs=1e-6)


def test_a_schedule_counts_earlier_updates():
    # Steps of a constant gradient are the learning rate itself: 1, then 1/2, then 0.
    optimiser = adam(1.0, fall_steps=2, eps=0.0)
    params, state = single(0.0), optimiser.init(single(0.0))
    moves = []
    for _ in range(3):
        updates, state = optimiser.update(single(2.0), state, params)
        moves.append(-updates["p"].item())
    assert moves == pytest.approx([1, 0.5, 0], abs=1e-6)


def test_the_count_is_a_tensor_and_states_are_new():
    optimiser, params = adam(), single(1.0)
    first = optimiser.init(params)
    _, second = optimiser.update(single(2.0), first, params)
    assert first.count.shape == ()
    assert first.count.dtype == second.count.dtype == torch.int64
    assert (first.count.item(), second.count.item()) == (0, 1)
    assert first.first["p"].item() == 0.0


def test_denominators_carry_no_gradient():
    optimiser = adam(0.1, beta1=0.9, beta2=0.99, max_step=10.0)
    params = single(1.0, 1.0)
    _, state = run(optimiser, params, [single(0.3, -0.2), single(0.1, 0.4)])
    grad = torch.tensor([0.25, -0.5], dtype=f64, requires_grad=True)
    updates, new_state = optimiser.update({"p": grad}, state, params)
    (found,) = torch.autograd.grad(updates["p"].sum(), grad, retain_graph=True)
    second = 0.99 * state.second["p"] + 0.01 * grad.detach() ** 2
    denominator = torch.sqrt(second / (1 - 0.99**3)) + 1e-8
    torch.testing.assert_close(found, -0.1 * 0.1 / (1 - 0.9**3) / denominator)
    assert new_state.first["p"].requires_grad
    assert not new_state.second["p"].requires_grad


def test_a_clipped_step_carries_no_gradient():
    optimiser = adam(0.1, max_step=0.5)
    params = single(1.0)
    grad = torch.tensor([2.0], dtype=f64, requires_grad=True)
    updates, _ = optimiser.update({"p": grad}, optimiser.init(params), params)
    (found,) = torch.autograd.grad(updates["p"].sum(), grad)
    assert found.item() == 0.0


def test_updates_differentiate_through_several_steps():
    optimiser = adam(0.1, max_step=10.0)
    target = torch.tensor([2.0], dtype=f64, requires_grad=True)
    params = {"p": torch.zeros(1, dtype=f64)}
    state = optimiser.init(params)
    for _ in range(2):
        updates, state = optimiser.update({"p": params["p"] - target}, state, params)
        params = apply_updates(params, updates)
    (found,) = torch.autograd.grad(params["p"].sum(), target)
    # p1 = -lr g1 / d1; p2 = p1 - lr (b1 (1 - b1) g1 + (1 - b1) g2) / (1 - b1^2) / d2,
    # with g1 = -t, g2 = p1 - t, and denominators as constants.
    d1 = 2.0 + 1e-8
    g2 = -2.0 + 0.1 * 2 / d1
    d2 = math.sqrt((0.999 * 0.001 * 4 + 0.001 * g2**2) / (1 - 0.999**2)) + 1e-8
    dp1 = 0.1 / d1
    expected = dp1 + 0.1 * (0.09 + 0.1 * (1 - dp1)) / 0.19 / d2
    assert found.item() == pytest.approx(expected, rel=1e-9)


def test_apply_updates_adds_and_global_norm_spans_all_tensors():
    params = {"a": torch.tensor([1.0]), "b": torch.tensor([[2.0]])}
    new = apply_updates(params, {"a": torch.tensor([3.0]), "b": torch.tensor([[-2.0]])})
    assert (new["a"].item(), new["b"].item()) == (4.0, 0.0)
    assert global_norm({"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]])}).item() == 5.0
