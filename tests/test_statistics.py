"""Interquartile means, profiles, who beats whom, and their intervals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.statistics import (
    _t_quantile,
    difference_estimate,
    improvement_estimate,
    interquartile_estimate,
    interquartile_mean,
    mean_estimate,
    normalize,
    performance_profile,
)

few = settings(max_examples=40, deadline=None)
numbers = st.floats(-100, 100)
stratum = st.lists(numbers, min_size=1, max_size=6)
strata = st.lists(stratum, min_size=1, max_size=4)


def arrays(lists):
    return [np.array(values) for values in lists]


def test_by_hand():
    # Of eight, two are cut off at each end; of five, one.
    assert interquartile_mean(np.array([8.0, 1, 2, 7, 3, 4, 5, 6])) == 4.5
    assert interquartile_mean(np.array([50.0, 1, 2, 6, -9])) == 3.0
    # Of three, none.
    assert interquartile_mean(np.array([1.0, 2, 6])) == 3.0


def test_over_the_last_dimension():
    scores = np.array([[1.0, 2, 3, 100], [0, 0, 4, 4]])
    np.testing.assert_array_equal(interquartile_mean(scores), [2.5, 2])


@few
@given(numbers, st.integers(1, 40))
def test_of_a_constant_is_the_constant(value, count):
    assert interquartile_mean(np.full(count, value)) == pytest.approx(value)
    estimate = interquartile_estimate([np.full(count, value)], resamples=50)
    assert estimate.low == pytest.approx(value)
    assert estimate.high == pytest.approx(value)


@few
@given(st.lists(numbers, min_size=1, max_size=30), st.randoms())
def test_order_does_not_matter(scores, random):
    shuffled = random.sample(scores, len(scores))
    assert interquartile_mean(np.array(shuffled)) == interquartile_mean(np.array(scores))
    estimates = [interquartile_estimate([np.array(s)], 50) for s in (scores, shuffled)]
    assert estimates[0] == estimates[1]


@few
@given(st.integers(1, 6), st.data())
def test_a_quarter_of_outliers_does_not_matter(quarter, data):
    sound = data.draw(st.lists(numbers, min_size=3 * quarter, max_size=3 * quarter))
    outliers = data.draw(st.lists(st.sampled_from([-1e9, 1e9]), min_size=quarter, max_size=quarter))
    found = interquartile_mean(np.array(sound + outliers))
    assert min(sound) - 1e-9 <= found <= max(sound) + 1e-9


@few
@given(strata)
def test_the_interval_holds_the_estimate_and_lies_within_the_scores(lists):
    estimate = interquartile_estimate(arrays(lists), resamples=100)
    pooled = np.concatenate(arrays(lists))
    assert estimate.value == interquartile_mean(pooled)
    assert estimate.low <= estimate.value <= estimate.high
    assert pooled.min() - 1e-9 <= estimate.low
    assert estimate.high <= pooled.max() + 1e-9


@few
@given(st.lists(numbers, min_size=1, max_size=9))
def test_one_seed_gives_an_interval_of_no_width(scores):
    estimate = interquartile_estimate([np.array([score]) for score in scores], resamples=50)
    assert estimate.low == pytest.approx(estimate.value)
    assert estimate.high == pytest.approx(estimate.value)


def test_seeds_are_drawn_within_their_environment():
    # Two environments that differ, seeds that do not: nothing to be uncertain of.
    estimate = interquartile_estimate([np.zeros(4), np.ones(4)])
    assert (estimate.low, estimate.value, estimate.high) == (0.5, 0.5, 0.5)


def test_the_interval_of_normal_scores_is_as_wide_as_it_should_be():
    scores = np.random.default_rng(1).normal(size=(10, 20))
    estimate = interquartile_estimate(list(scores))
    # The interquartile mean's deviation is near that of the mean, 1 / sqrt(200), times 1.09.
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * 1.09 / 200**0.5, rel=0.2)
    assert estimate == interquartile_estimate(list(scores))


@few
@given(numbers, st.floats(0.01, 100))
def test_normalize(zero, width):
    returns = np.array([zero, zero + width])
    np.testing.assert_allclose(normalize(returns, zero, zero + width), [0, 1], atol=1e-9)


def test_what_cannot_be():
    with pytest.raises(ValueError, match="one: expected more than zero"):
        normalize(np.array([1.0]), 1.0, 1.0)
    with pytest.raises(ValueError, match="at least one"):
        interquartile_mean(np.array([]))


def test_t_intervals_are_students():
    # Quantiles from printed tables
    for freedom, quantile in ((1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042)):
        assert _t_quantile(freedom) == pytest.approx(quantile, abs=6e-4)
    estimate = mean_estimate(np.array([1.0, 2.0, 3.0]))
    margin = 4.3027 / np.sqrt(3)
    assert estimate.value == 2
    assert (estimate.low, estimate.high) == pytest.approx((2 - margin, 2 + margin), abs=1e-3)
    assert mean_estimate(np.array([1.0])) is None


def test_differences_have_welchs_interval():
    few, many = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    estimate = difference_estimate(few, many)
    # Equal spreads and numbers: four degrees of freedom
    margin = 2.7764 * np.sqrt(2 / 3)
    assert estimate.value == -3
    assert (estimate.low, estimate.high) == pytest.approx((-3 - margin, -3 + margin), abs=1e-3)
    # If one has no spread, those of the other are left
    fixed = difference_estimate(few, np.full(3, 2.0))
    assert fixed.high == pytest.approx(mean_estimate(few).high - 2)
    # Nothing varies, or too little is known
    same = difference_estimate(np.ones(3), np.zeros(3))
    assert (same.low, same.value, same.high) == (1, 1, 1)
    assert difference_estimate(few, np.ones(1)) is None


def test_a_profile_is_the_share_of_runs_above_each_threshold():
    # Two environments count alike, though one has more runs
    scores = [np.array([0.0, 1.0]), np.array([0.5, 0.5, 0.5, 2.0])]
    profile = performance_profile(scores, np.array([-1.0, 0.25, 0.5, 1.5, 2.0]))
    assert [e.value for e in profile] == [1.0, 0.75, 0.375, 0.125, 0.0]
    assert all(e.low <= e.value <= e.high for e in profile)
    assert (profile[0].low, profile[0].high) == (1.0, 1.0)
    assert profile[2].low < profile[2].high


def test_improvement_counts_pairs_in_the_same_environment():
    better, worse = [np.array([3.0, 4.0]), np.array([1.0])], [np.array([1.0, 2.0]), np.array([0.0])]
    certain = improvement_estimate(better, worse)
    assert (certain.value, certain.low, certain.high) == (1.0, 1.0, 1.0)
    assert improvement_estimate(worse, better).value == 0.0
    # One pair of four is lost and one is a draw; the other environment is all draws
    mixed = improvement_estimate(
        [np.array([1.0, 3.0]), np.array([5.0])], [np.array([1.0, 2.0]), np.array([5.0])]
    )
    assert mixed.value == pytest.approx((2.5 / 4 + 0.5) / 2)
    assert mixed.low <= mixed.value <= mixed.high
