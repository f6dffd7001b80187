"""Debiased moving averages."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.values import MovingAverage

f64 = torch.float64
few = settings(max_examples=40, deadline=None)


def test_first_update_by_hand():
    x = torch.tensor([[1.0, 3.0]], dtype=f64)
    average = MovingAverage.initial(f64).update(x, decay=0.9)
    assert average.first.item() == pytest.approx(0.2)
    assert average.second.item() == pytest.approx(0.5)
    assert average.decay_product.item() == pytest.approx(0.9)
    # The mean is 2 and the variance 5 - 4, once the bias is gone.
    deviation = (1 + 1e-12) ** 0.5 + 1e-6
    torch.testing.assert_close(average.normalize(x), (x - 2) / deviation)
    torch.testing.assert_close(average.scale(x), x / deviation)


def test_second_update_by_hand():
    average = MovingAverage.initial(f64)
    for value in (1.0, 4.0):
        average = average.update(torch.tensor([value], dtype=f64), decay=0.5)
    # Weights 1/4 and 1/2 of a missing 1/4: mean (1/4 + 2) / (3/4), square (1/4 + 8) / (3/4).
    assert average.decay_product.item() == pytest.approx(0.25)
    mean, variance = 3.0, 11.0 - 9.0
    expected = (10 - mean) / variance**0.5
    assert average.normalize(torch.tensor(10.0, dtype=f64)).item() == pytest.approx(expected, 1e-5)


@few
@given(st.floats(-100, 100), st.integers(1, 30), st.floats(0.5, 0.999))
def test_a_constant_stream_has_that_mean_at_once(value, updates, decay):
    average = MovingAverage.initial(f64)
    for _ in range(updates):
        average = average.update(torch.full((2, 3), value, dtype=f64), decay)
    weight = 1 - average.decay_product
    assert (average.first / weight).item() == pytest.approx(value, abs=1e-9)
    assert (average.second / weight).item() == pytest.approx(value**2, abs=1e-7)
    assert average.normalize(torch.full((), value, dtype=f64)).abs() < 1e-3


@few
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=10))
def test_first_update_centres_and_scales(values):
    x = torch.tensor(values, dtype=f64)
    normalized = MovingAverage.initial(f64).update(x, 0.99).normalize(x)
    assert abs(normalized.mean().item()) < 1e-4
    assert normalized.std(correction=0) <= 1 + 1e-6
    if x.std(correction=0) > 1e-1:
        assert normalized.std(correction=0).item() == pytest.approx(1, abs=1e-3)


def test_zeros_stay_finite_and_differentiable():
    x = torch.zeros(3, 2, dtype=f64, requires_grad=True)
    average = MovingAverage.initial(f64).update(x, 0.99)
    (average.normalize(x).sum() + average.scale(x).sum()).backward()
    assert torch.isfinite(x.grad).all()


def test_update_leaves_the_old_average_alone_and_keeps_its_type():
    old = MovingAverage.initial(torch.float32)
    new = old.update(torch.ones(2), 0.9)
    assert old.first == 0
    assert old.decay_product == 1
    assert {new.first.dtype, new.second.dtype, new.decay_product.dtype} == {torch.float32}
    assert new.first.shape == ()
