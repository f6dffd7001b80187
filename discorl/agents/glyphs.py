"""Network bodies for names of things: maps of glyphs, and texts as bags of bytes.

Each kind of thing has a vector that is learned. Those of a map go through convolutions; those of a
list are averaged, without zeros, which stand for nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from discorl.agents.torsos import MLPTorso, Torso, precision, redraw_layer_
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec

_VECTOR = 16
"""Numbers that describe a kind."""
_CHANNELS = (32, 32)
_WIDE = 16
"""Maps with a longer side are halved by each convolution."""


class MapTorso(Torso):
    """A map of kinds [..., rows, columns]: vectors, 3 x 3 convolutions, fully connected layers."""

    def __init__(self, spec: ArraySpec, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = spec.shape
        self.vectors = nn.Embedding(spec.kinds, _VECTOR)
        stride = 2 if max(spec.shape) > _WIDE else 1
        sides, inputs, layers = list(spec.shape), _VECTOR, []
        for outputs in _CHANNELS:
            layers.append(nn.Conv2d(inputs, outputs, 3, stride, padding=1))
            sides = [(side - 1) // stride + 1 for side in sides]
            inputs = outputs
        self.layers = nn.ModuleList(layers)
        self.head = MLPTorso((inputs * math.prod(sides),), sizes, activate_last=True)
        self.output_size = self.head.output_size

    def init_(self, generator: torch.Generator) -> None:
        """See `Torso.init_`."""
        _redraw_vectors_(self.vectors, generator)
        for layer in self.layers:
            redraw_layer_(layer, generator)
        self.head.init_(generator)

    def forward(self, observations: Tensor) -> Tensor:
        """[..., rows, columns] -> [..., output_size]."""
        prefix = observations.shape[:-2]
        x = self.vectors(observations.reshape(-1, *self.shape).long()).permute(0, 3, 1, 2)
        dtype = x.dtype
        with precision(x.device, self.in_bfloat16):
            for layer in self.layers:
                x = torch.relu(layer(x))
            features: Tensor = self.head(x.flatten(start_dim=1))
        return features.to(dtype).reshape(*prefix, self.output_size)


class BagTorso(Torso):
    """A list of kinds [..., length] as the mean of their vectors, whatever their order."""

    def __init__(self, spec: ArraySpec, size: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(spec.kinds, size)
        self.output_size = size

    def init_(self, generator: torch.Generator) -> None:
        """See `Torso.init_`."""
        _redraw_vectors_(self.vectors, generator)

    def forward(self, observations: Tensor) -> Tensor:
        """[..., length] -> [..., output_size]; zeros if there is nothing but zeros."""
        kinds, weight = observations.long(), self.vectors.weight
        number = (kinds != 0).sum(dim=-1, keepdim=True).clamp(min=1)
        if len(weight) > kinds.shape[-1] * self.output_size:
            return _sum_looked_up(weight, kinds) / number
        return _sum_counted(weight, kinds) / number


def _sum_looked_up(weight: Tensor, kinds: Tensor) -> Tensor:
    """The sum of all kinds' vectors, [..., length] -> [..., size]."""
    return (nn.functional.embedding(kinds, weight) * (kinds != 0).unsqueeze(-1)).sum(dim=-2)


def _sum_counted(weight: Tensor, kinds: Tensor) -> Tensor:
    """The same, by how often each kind is there: many times as fast where there are few kinds, as
    in texts."""
    counts = weight.new_zeros(*kinds.shape[:-1], len(weight))
    counts = counts.scatter_add(-1, kinds, weight.new_ones(()).expand(kinds.shape))
    return counts[..., 1:] @ weight[1:]  # Zeros stand for nothing.


def kinds_torso(spec: ArraySpec, sizes: tuple[int, ...]) -> Torso:
    """The torso for an array of kinds: a map or a list."""
    if len(spec.shape) == 1:
        return BagTorso(spec, sizes[-1])
    if len(spec.shape) == 2:
        return MapTorso(spec, sizes)
    raise DiscorlError(f"kinds of things: expected a list or a map, got shape {list(spec.shape)}")


def _redraw_vectors_(vectors: nn.Embedding, generator: torch.Generator) -> None:
    with torch.no_grad():
        vectors.weight.copy_(
            torch.randn(vectors.weight.shape, generator=generator, device=generator.device)
        )
