"""Categorical distributions: Kullback-Leibler divergence, entropy, looking up actions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.values import categorical_kl, entropy, lookup
from discorl.values.distributions import log_prob

f64 = torch.float64
few = settings(max_examples=40, deadline=None)
logit = st.floats(-20, 20)
pairs = st.integers(2, 9).flatmap(
    lambda n: st.tuples(*(st.lists(logit, min_size=n, max_size=n),) * 2)
)


def tensor(x):
    return torch.tensor(x, dtype=f64)


def test_kl_by_hand():
    p, q = tensor([0.5, 0.5]).log(), tensor([0.75, 0.25]).log()
    forward = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    backward = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert categorical_kl(p, q).item() == pytest.approx(forward)
    assert categorical_kl(q, p).item() == pytest.approx(backward)


@few
@given(pairs)
def test_kl_is_at_least_the_squared_distance(logits):
    """Pinsker's inequality: so it is never negative, and zero only between equals."""
    p, q = tensor(logits[0]), tensor(logits[1])
    distance = (p.softmax(-1) - q.softmax(-1)).abs().sum()
    assert categorical_kl(p, q) >= 0.5 * distance**2 - 1e-9


@few
@given(pairs, st.floats(-50, 50))
def test_kl_is_zero_between_equals_and_blind_to_shifts(logits, shift):
    p, q = tensor(logits[0]), tensor(logits[1])
    assert categorical_kl(p, p + shift).item() == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(categorical_kl(p, q + shift), categorical_kl(p, q))


@few
@given(pairs)
def test_entropy_lies_between_zero_and_uniform(logits):
    values = entropy(tensor(logits))
    assert (values >= 0).all()
    assert (values <= math.log(len(logits[0])) + 1e-9).all()


def test_entropy_by_hand():
    logits = torch.stack([torch.zeros(4, dtype=f64), tensor([0.5, 0.25, 0.125, 0.125]).log()])
    expected = tensor([math.log(4), 1.75 * math.log(2)])
    torch.testing.assert_close(entropy(logits), expected)
    assert entropy(tensor([1000.0, 0.0])).item() == 0


def test_lookup_takes_one_row_a_step():
    table = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    index = torch.tensor([[0, 3, 1], [2, 2, 0]])
    taken = lookup(table, index)
    assert taken.shape == (2, 3, 5)
    for t in range(2):
        for b in range(3):
            assert torch.equal(taken[t, b], table[t, b, index[t, b]])
    assert lookup(table[..., 0], index).shape == (2, 3)


def test_log_prob_by_hand():
    logits = tensor([[[0.2, 0.8], [0.5, 0.5]]]).log()
    expected = tensor([[math.log(0.8), math.log(0.5)]])
    torch.testing.assert_close(log_prob(logits, torch.tensor([[1, 0]])), expected)
