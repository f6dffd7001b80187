"""Scores over runs: interquartile means, profiles, who beats whom, and their uncertainty.

After Agarwal et al., Deep reinforcement learning at the edge of the statistical precipice,
NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CONFIDENCE = 0.95
_RESAMPLES = 2000
_SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A number and the interval that holds it with 95% confidence."""

    value: float
    low: float
    high: float


def normalize(returns: np.ndarray, zero: float, one: float) -> np.ndarray:
    """Returns of any shape, shifted and scaled so that `zero` becomes 0 and `one` becomes 1."""
    if not one > zero:
        raise ValueError(f"one: expected more than zero = {zero}, got {one}")
    return (returns - zero) / (one - zero)


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Mean [...] of the middle half of scores [..., N]: floor(N / 4) are cut off at each end.

    Robust to a quarter of outliers, like the median, but with less variance.
    """
    if scores.shape[-1] == 0:
        raise ValueError("scores: expected at least one")
    cut = scores.shape[-1] // 4
    middle = np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut]
    return np.asarray(middle.mean(axis=-1))


def interquartile_estimate(scores: Sequence[np.ndarray], resamples: int = _RESAMPLES) -> Estimate:
    """Interquartile mean over all runs, with a stratified bootstrap interval.

    Runs are resampled, with replacement, within each environment. The same scores give the same
    interval. Where the percentiles of few runs miss the estimate, the interval is widened to it.

    Args:
      scores: for each environment the scores [n] of its runs, in any order.
    """
    value = float(interquartile_mean(np.concatenate(scores)))
    generator = np.random.default_rng(_SEED)
    drawn = [_resample(np.sort(part), resamples, generator) for part in scores]
    return _interval(value, interquartile_mean(np.concatenate(drawn, axis=1)))


def performance_profile(
    scores: Sequence[np.ndarray], thresholds: np.ndarray, resamples: int = _RESAMPLES
) -> list[Estimate]:
    """For each threshold the share of runs that score above it, with a stratified bootstrap
    interval. Environments count alike, however many runs each has.

    Args:
      scores: for each environment the scores [n] of its runs, in any order.
      thresholds: [m].
    """
    generator = np.random.default_rng(_SEED)
    shares = _mean([_above(part, thresholds) for part in scores])
    drawn = [_resample(np.sort(part), resamples, generator) for part in scores]
    resampled = _mean([_above(part, thresholds) for part in drawn])
    columns = zip(shares, resampled.T, strict=True)
    return [_interval(float(share), column) for share, column in columns]


def improvement_estimate(
    scores: Sequence[np.ndarray], others: Sequence[np.ndarray], resamples: int = _RESAMPLES
) -> Estimate:
    """How likely a run scores more than a run of the others in the same environment, with a
    stratified bootstrap interval. A draw counts half; environments count alike.

    Args:
      scores: for each environment the scores [n] of its runs, in any order.
      others: likewise, for the same environments in the same order.
    """
    generator = np.random.default_rng(_SEED)
    pairs = list(zip(scores, others, strict=True))
    value = float(_mean([_wins(own, other) for own, other in pairs]))
    drawn = [
        _wins(
            _resample(np.sort(own), resamples, generator),
            _resample(np.sort(other), resamples, generator),
        )
        for own, other in pairs
    ]
    return _interval(value, _mean(drawn))


def mean_estimate(values: np.ndarray) -> Estimate | None:
    """Mean of values [n] with its t-interval; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / np.sqrt(len(values))
    margin = _t_quantile(len(values) - 1) * error
    return Estimate(mean, mean - margin, mean + margin)


def difference_estimate(values: np.ndarray, others: np.ndarray) -> Estimate | None:
    """Mean of values [n] minus that of others [m], with Welch's t-interval, which takes neither
    equal spreads nor equal numbers for granted; None if either has fewer than two."""
    if min(len(values), len(others)) < 2:
        return None
    difference = float(values.mean() - others.mean())
    parts = [part.var(ddof=1) / len(part) for part in (values, others)]
    total = sum(parts)
    if total == 0:
        return Estimate(difference, difference, difference)
    shares = [(part / total) ** 2 for part in parts]
    freedom = 1 / (shares[0] / (len(values) - 1) + shares[1] / (len(others) - 1))
    margin = _t_quantile(freedom) * float(np.sqrt(total))
    return Estimate(difference, difference - margin, difference + margin)


def _t_quantile(freedom: float) -> float:
    """How many standard errors hold 95% of Student's distribution, for at least 1 degree of
    freedom. With x = sqrt(freedom) tan(a), its density is a power of cos(a)."""
    angles = np.linspace(0, np.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    below = np.cumsum((density[1:] + density[:-1]) / 2)
    angle = np.interp(_CONFIDENCE, below / below[-1], angles[1:])
    return float(np.sqrt(freedom) * np.tan(angle))


def _resample(scores: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """[resamples, n] drawn from scores [n]."""
    return scores[generator.integers(len(scores), size=(resamples, len(scores)))]


def _interval(value: float, resampled: np.ndarray) -> Estimate:
    """The percentiles of estimates [resamples], widened to the value where they miss it."""
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(value, min(float(low), value), max(float(high), value))


def _mean(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(np.mean(np.stack(parts), axis=0))


def _above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Shares [..., m] of scores [..., n] that are above thresholds [m]."""
    return np.stack([(scores > threshold).mean(axis=-1) for threshold in thresholds], axis=-1)


def _wins(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The share [...] of pairs from scores [..., n] and others [..., m] that the first wins."""
    difference = scores[..., :, None] - others[..., None, :]
    return np.asarray(((np.sign(difference) + 1) / 2).mean(axis=(-2, -1)))
