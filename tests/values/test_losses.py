"""Reading values from network outputs, and the losses that move them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.values import (
    ValueReading,
    signed_hyperbolic,
    two_hot_encode,
    value_loss_from_target,
    value_loss_from_td,
)

f64 = torch.float64
few = settings(max_examples=40, deadline=None)
SCALAR = ValueReading()
SQUASHED = ValueReading(nonlinear=True)
CATEGORICAL = ValueReading(max_abs_value=4.0)
PUBLISHED = ValueReading(max_abs_value=4.0, nonlinear=True)


def tensor(x):
    return torch.tensor(x, dtype=f64)


def test_readings_by_hand():
    assert SCALAR(tensor([2.5])).item() == 2.5
    assert SQUASHED(tensor([1.003])).item() == pytest.approx(3)
    probs = tensor([0.0, 0.5, 0.0, 0.0, 0.5])  # half -2, half 4
    assert CATEGORICAL((probs + 1e-300).log()).item() == pytest.approx(1)
    on_a_bin = tensor([0.0, 0.0, 0.0, 1.0, 0.0])
    value = PUBLISHED((on_a_bin + 1e-300).log())
    assert signed_hyperbolic(value).item() == pytest.approx(2)


def test_scalar_losses_by_hand():
    assert value_loss_from_target(tensor([[2.0]]), tensor([5.0]), SCALAR).item() == 4.5
    loss = value_loss_from_target(tensor([[2.0]]), tensor([3.0]), SQUASHED)
    assert loss.item() == pytest.approx(0.5 * (2 - 1.003) ** 2)


def test_categorical_loss_of_a_uniform_head_is_the_log_of_its_bins():
    loss = value_loss_from_target(torch.zeros(3, 5, dtype=f64), tensor([-9.0, 0.3, 2.0]), PUBLISHED)
    torch.testing.assert_close(loss, torch.full((3,), math.log(5), dtype=f64))


def test_categorical_loss_by_hand():
    logits = tensor([[0.1, 0.2, 0.3, 0.15, 0.25]]).log()
    # 1 lies halfway between the bins 0 and 2.
    loss = value_loss_from_target(logits, tensor([1.0]), CATEGORICAL)
    assert loss.item() == pytest.approx(-0.5 * math.log(0.3) - 0.5 * math.log(0.15), abs=1e-5)


@few
@given(st.floats(-20, 20), st.floats(-20, 20))
def test_scalar_td_loss_pulls_by_the_td_error(value, td):
    net_out = tensor([[value]]).requires_grad_()
    loss = value_loss_from_td(net_out, tensor([td]), SCALAR)
    assert loss.item() == pytest.approx(0.5 * td**2, abs=1e-9)
    (gradient,) = torch.autograd.grad(loss.sum(), net_out)
    assert gradient.item() == pytest.approx(-td, abs=1e-9)


@few
@given(st.lists(st.floats(-5, 5), min_size=5, max_size=5), st.floats(-3, 3))
def test_categorical_gradient_is_prediction_minus_code(logits, td):
    net_out = tensor([logits]).requires_grad_()
    loss = value_loss_from_td(net_out, tensor([td]), PUBLISHED)
    (gradient,) = torch.autograd.grad(loss.sum(), net_out)
    target = signed_hyperbolic(PUBLISHED(net_out.detach()) + td)
    expected = net_out.detach().softmax(-1) - two_hot_encode(target, 5, 4.0)
    torch.testing.assert_close(gradient, expected)


def test_gradient_flows_into_a_target_but_not_into_a_td_error():
    net_out, given_number = torch.zeros(1, 5, dtype=f64), tensor([0.7]).requires_grad_()
    assert value_loss_from_target(net_out, given_number, CATEGORICAL).requires_grad
    assert not value_loss_from_td(net_out, given_number, CATEGORICAL).requires_grad


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"net_out: expected a last dimension of 1.*\[3, 2\]"):
        SCALAR(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"net_out: expected a last dimension of 1.*\[3, 3\]"):
        value_loss_from_target(torch.zeros(3, 3), torch.zeros(3), SCALAR)
    with pytest.raises(ValueError, match=r"target: expected \[3\].*got \[2\]"):
        value_loss_from_target(torch.zeros(3, 5), torch.zeros(2), CATEGORICAL)
    with pytest.raises(ValueError, match="num_bins: expected at least 2, got 1"):
        CATEGORICAL(torch.zeros(3, 1))
