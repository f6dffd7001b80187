"""Debiased moving averages of the first two moments, to normalise advantages and TD errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.group import SOLO, Group

_EPS = 1e-6
_ROOT_EPS = 1e-12


@dataclass(frozen=True)
class MovingAverage:
    """Moments of a stream of numbers; each field is a scalar tensor [].

    `update` returns a new average; `normalize` and `scale` use the moments corrected for their
    start at zero, as Adam does. Two small constants, outside and inside the root, keep the
    gradient of the normalisation finite.
    """

    first: Tensor
    """Decayed mean of x."""
    second: Tensor
    """Decayed mean of x squared."""
    decay_product: Tensor
    """Product of all decays so far: what is still missing from the moments' weight."""

    @classmethod
    def initial(
        cls, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> MovingAverage:
        """An average that has seen nothing."""
        # Three tensors, not one shared: states are saved and compared by tensor.
        zero = torch.zeros((), dtype=dtype, device=device)
        return cls(first=zero, second=zero.clone(), decay_product=torch.ones_like(zero))

    def update(self, x: Tensor, decay: float) -> MovingAverage:
        """Take in the mean of x (any shape) and of its square."""
        return self._moved(x.mean(), x.square().mean(), decay)

    def normalize(self, x: Tensor) -> Tensor:
        """`(x - mean) / deviation`, the shape of x."""
        mean, deviation = self.mean_and_deviation()
        return (x - mean) / deviation

    def scale(self, x: Tensor) -> Tensor:
        """`x / deviation`, the shape of x: the mean is kept."""
        return x / self.mean_and_deviation()[1]

    def _moved(self, mean: Tensor, square: Tensor, decay: float) -> MovingAverage:
        return MovingAverage(
            first=torch.lerp(mean, self.first, decay),
            second=torch.lerp(square, self.second, decay),
            decay_product=self.decay_product * decay,
        )

    def mean_and_deviation(self) -> tuple[Tensor, Tensor]:
        """Of all that was taken in, as far as it is not forgotten; each []."""
        debias = 1 / (1 - self.decay_product)
        mean = self.first * debias
        variance = (self.second * debias - mean.square()).clamp(min=0)
        return mean, torch.sqrt(variance + _ROOT_EPS) + _EPS


def update_together(
    averages: Sequence[MovingAverage], xs: Sequence[Tensor], decay: float, group: Group = SOLO
) -> list[MovingAverage]:
    """`MovingAverage.update` of each with its own x, where each process has a part of every x."""
    own = [moment for x in xs for moment in (x.mean(), x.square().mean())]
    moments = group.means(own, [x.numel() for x in xs for _ in range(2)])
    return [
        average._moved(mean, square, decay)
        for average, mean, square in zip(averages, moments[::2], moments[1::2], strict=True)
    ]
