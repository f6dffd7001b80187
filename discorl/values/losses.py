"""How a network output is read as a value, and the losses that move it to a target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.values.transforms import (
    signed_hyperbolic,
    signed_parabolic,
    two_hot_decode,
    two_hot_neighbours,
)


@dataclass(frozen=True)
class ValueReading:
    """How the last dimension of a value head stands for a scalar."""

    max_abs_value: float | None = None
    """Categorical over evenly spaced bins of [-max, max] if given; else the one number itself."""
    nonlinear: bool = False
    """The number is `signed_hyperbolic` of the value."""

    def __call__(self, net_out: Tensor) -> Tensor:
        """Read values: [..., 1 or N] -> [...]."""
        if self.max_abs_value is None:
            if net_out.shape[-1] != 1:
                raise ValueError(
                    "net_out: expected a last dimension of 1 for a scalar value, "
                    f"got {list(net_out.shape)}"
                )
            value = net_out.squeeze(-1)
        else:
            value = two_hot_decode(torch.softmax(net_out, dim=-1), self.max_abs_value)
        return signed_parabolic(value) if self.nonlinear else value


def value_loss_from_target(net_out: Tensor, target: Tensor, reading: ValueReading) -> Tensor:
    """Per-step loss of a value head against scalar targets.

    Half the squared error for a scalar head, cross-entropy with the two-hot code for a
    categorical one. Gradients flow into the target unless the caller detaches it.

    Args:
      net_out: [..., 1 or N].
      target: [...].
    """
    if net_out.shape[:-1] != target.shape:
        raise ValueError(
            f"target: expected {list(net_out.shape[:-1])} to go with net_out "
            f"{list(net_out.shape)}, got {list(target.shape)}"
        )
    if reading.nonlinear:
        target = signed_hyperbolic(target)
    if reading.max_abs_value is None:
        return 0.5 * (ValueReading()(net_out) - target).square()
    bins, weights = two_hot_neighbours(target, net_out.shape[-1], reading.max_abs_value)
    log_probs = torch.log_softmax(net_out, dim=-1).gather(-1, bins)
    return -(weights * log_probs).sum(dim=-1)


def value_loss_from_td(net_out: Tensor, td: Tensor, reading: ValueReading) -> Tensor:
    """Per-step loss whose target is the head's own value plus a (normalised) TD error.

    Args:
      net_out: [..., 1 or N].
      td: [...]; the target `value + td` carries no gradient.
    """
    return value_loss_from_target(net_out, (reading(net_out) + td).detach(), reading)
