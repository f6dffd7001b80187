"""Squashing functions and the two-hot code."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.values import (
    signed_hyperbolic,
    signed_log,
    signed_parabolic,
    two_hot_decode,
    two_hot_encode,
)

f64 = torch.float64
numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8)
ranges = st.tuples(st.integers(2, 601), st.floats(0.5, 300))
few = settings(max_examples=40, deadline=None)


def tensor(x, dtype=f64):
    return torch.tensor(x, dtype=dtype)


@pytest.mark.parametrize(
    ("x", "squashed"), [(0.0, 0.0), (3.0, 1.003), (-8.0, -2.008), (99.0, 9.099)]
)
def test_signed_hyperbolic_by_hand(x, squashed):
    assert signed_hyperbolic(tensor(x)).item() == pytest.approx(squashed, abs=1e-12)
    assert signed_parabolic(tensor(squashed)).item() == pytest.approx(x, abs=1e-10)


def test_signed_log_by_hand():
    x = tensor([0.0, math.e - 1, 1 - math.e, math.e**2 - 1])
    torch.testing.assert_close(signed_log(x), tensor([0.0, 1.0, -1.0, 2.0]))


@few
@given(numbers)
def test_signed_parabolic_inverts_signed_hyperbolic(x):
    for dtype, precision in ((f64, 1e-10), (torch.float32, 1e-5)):
        original = tensor(x, dtype)
        back = signed_parabolic(signed_hyperbolic(original))
        assert back.dtype == dtype
        assert ((back - original).abs() <= precision * original.abs().clamp(min=1)).all()


@few
@given(numbers)
def test_squashing_is_odd_and_shrinks(x):
    original = tensor(x)
    for squash in (signed_hyperbolic, signed_log):
        torch.testing.assert_close(squash(-original), -squash(original))
        assert (squash(original).abs() <= original.abs() + 1e-12).all()


def test_two_hot_by_hand():
    code = two_hot_encode(tensor([0.25, -0.5, 0.0, 1.0, -1.0]), 3, 1.0)
    quarter, half = 0.75 / 1.00001, 0.5 / 1.00001
    expected = [[0, quarter, 1 - quarter], [half, 1 - half, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    torch.testing.assert_close(code, tensor(expected), rtol=0, atol=1e-12)


def test_two_hot_decode_is_the_expectation():
    probs = tensor([[0.5, 0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.0, 0.75]])
    torch.testing.assert_close(two_hot_decode(probs, 4.0), tensor([-2.0, 3.0]))


@few
@given(ranges, st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_two_hot_round_trip(bins_and_max, fractions):
    num_bins, largest = bins_and_max
    x = tensor(fractions) * largest
    code = two_hot_encode(x, num_bins, largest)
    assert (code >= -1e-9).all()
    assert ((code != 0).sum(dim=-1) <= 2).all()
    torch.testing.assert_close(code.sum(dim=-1), torch.ones_like(x))
    # The 1e-5 in the published weight moves a value up, by less than itself.
    excess = two_hot_decode(code, largest) - x
    assert (excess >= -1e-9).all()
    assert (excess <= 1.001e-5).all()


@few
@given(ranges, st.floats(0, 1e3))
def test_two_hot_clips_to_the_range(bins_and_max, beyond):
    num_bins, largest = bins_and_max
    code = two_hot_encode(tensor([largest + beyond, -largest - beyond]), num_bins, largest)
    assert code[0, -1] == pytest.approx(1, abs=2e-5)
    assert code[1, 0] == pytest.approx(1, abs=2e-5)


def test_two_hot_puts_all_weight_on_a_bin_it_meets():
    bins = torch.linspace(-8, 8, 17, dtype=f64)
    torch.testing.assert_close(
        two_hot_encode(bins, 17, 8.0), torch.eye(17, dtype=f64), rtol=0, atol=0
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_two_hot_keeps_leading_dimensions(shape):
    code = two_hot_encode(torch.zeros(shape), 5, 1.0)
    assert code.shape == (*shape, 5)
    assert two_hot_decode(code, 1.0).shape == shape


@pytest.mark.parametrize(
    ("num_bins", "largest", "message"),
    [(1, 1.0, "num_bins: expected at least 2, got 1"), (3, 0.0, "max_abs_value"), (3, -1.0, "max")],
)
def test_bins_that_cannot_be_laid(num_bins, largest, message):
    with pytest.raises(ValueError, match=message):
        two_hot_encode(torch.zeros(2), num_bins, largest)
    with pytest.raises(ValueError, match=message):
        two_hot_decode(torch.zeros(2, num_bins), largest)
