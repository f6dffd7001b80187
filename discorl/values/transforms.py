"""Scalar squashing functions and the two-hot code of a scalar over evenly spaced bins."""

from __future__ import annotations

import torch
from torch import Tensor

_HYPERBOLIC_EPS = 1e-3
_TWO_HOT_EPS = 1e-5


def signed_hyperbolic(x: Tensor, eps: float = _HYPERBOLIC_EPS) -> Tensor:
    """`h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x`, any shape (Pohlen et al., 2018)."""
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + eps * x


def signed_parabolic(x: Tensor, eps: float = _HYPERBOLIC_EPS) -> Tensor:
    """The inverse of `signed_hyperbolic`, any shape.

    The textbook form, `sign(x) (w^2 - 1)` with `w = (root - 1) / (2 eps)`, subtracts nearly
    equal numbers twice and loses four digits in float32. Rationalised, `w - 1` is |x| times a
    positive factor, and `w^2 - 1 = (w - 1)(w + 1)`: no difference is left.
    """
    magnitude, offset = torch.abs(x), 1 + 2 * eps
    factor = 2 / (torch.sqrt(magnitude * (4 * eps) + offset**2) + offset)
    return x * factor * (magnitude * factor + 2)


def signed_log(x: Tensor) -> Tensor:
    """`sign(x) log(1 + |x|)`, any shape."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def two_hot_encode(x: Tensor, num_bins: int, max_abs_value: float) -> Tensor:
    """Spread each scalar over its two neighbouring bins.

    Args:
      x: [...] scalars; those outside [-max_abs_value, max_abs_value] are clipped.
      num_bins: how many evenly spaced bins cover the range, ends included.
      max_abs_value: the last bin's value.

    Returns:
      [..., num_bins] non-negative weights that sum to one. The weight of the lower neighbour l
      of x is `(u - x) / (u - l + 1e-5)`, as published: not exactly linear.
    """
    index, weight = two_hot_neighbours(x, num_bins, max_abs_value)
    code = torch.zeros(*x.shape, num_bins, dtype=x.dtype, device=x.device)
    return code.scatter_add(-1, index, weight)


def two_hot_neighbours(x: Tensor, num_bins: int, max_abs_value: float) -> tuple[Tensor, Tensor]:
    """`two_hot_encode` without the zeros: the two bins and their weights, each [..., 2]."""
    check_bins(num_bins, max_abs_value)
    x = x.clamp(-max_abs_value, max_abs_value)
    position = (x + max_abs_value) / (2 * max_abs_value) * (num_bins - 1)
    lower = position.floor().clamp(0, num_bins - 1)
    upper = position.ceil().clamp(0, num_bins - 1)
    spacing = 2 * max_abs_value / (num_bins - 1)
    lower_value = lower * spacing - max_abs_value
    upper_value = upper * spacing - max_abs_value
    # On a bin exactly, lower and upper coincide and their weights add up to one there.
    lower_weight = (upper_value - x) / (upper_value - lower_value + _TWO_HOT_EPS)
    # A NaN stays in the weights, where it can be seen; as an index it would be out of range.
    index = torch.stack([lower, upper], dim=-1).nan_to_num().long()
    return index, torch.stack([lower_weight, 1 - lower_weight], dim=-1)


def two_hot_decode(probs: Tensor, max_abs_value: float) -> Tensor:
    """The mean of a distribution [..., N] over N evenly spaced bins of [-max, max]: [...]."""
    num_bins = probs.shape[-1]
    check_bins(num_bins, max_abs_value)
    bins = torch.linspace(
        -max_abs_value, max_abs_value, num_bins, dtype=probs.dtype, device=probs.device
    )
    return probs @ bins


def check_bins(num_bins: int, max_abs_value: float) -> None:
    """Raise ValueError if no evenly spaced bins can be laid out."""
    if num_bins < 2:
        raise ValueError(f"num_bins: expected at least 2, got {num_bins}")
    if not max_abs_value > 0:
        raise ValueError(f"max_abs_value: expected a positive number, got {max_abs_value}")
