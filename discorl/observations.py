"""What an agent sees: a tensor or a dictionary of tensors, and what each looks like."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Observation = Tensor | dict[str, Tensor]

ACTION_MASK = "action_mask"
"""The entry of an observation that says which actions are legal: one where they are, else zero."""


@dataclass(frozen=True)
class ArraySpec:
    """What one observation, or one entry of it, looks like."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    scale: float = 1.0
    """Networks multiply by it: 1 / 255 for byte images."""
    stack: int = 1
    """How many consecutive frames the first dimension holds, the newest last, with zeros for those
    before an episode began; 1 if it holds none."""
    kinds: int = 0
    """How many kinds of things its numbers name; 0 if they are quantities."""

    @property
    def is_image(self) -> bool:
        """Whether it has rows, columns and channels, or is a stack of such."""
        return len(self.shape) == 3 or (len(self.shape) == 4 and self.stack > 1)

    @property
    def is_map(self) -> bool:
        """Whether it shows kinds of things in rows and columns."""
        return bool(self.kinds) and len(self.shape) == 2

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def bytes(self) -> int:
        """The memory that one takes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


ObservationSpec = ArraySpec | dict[str, ArraySpec]


def spec_entries(spec: ObservationSpec) -> dict[str, ArraySpec]:
    """The arrays of an observation by name; a plain one is called `observations`."""
    return {"observations": spec} if isinstance(spec, ArraySpec) else spec


def observation_leaves(observations: Observation) -> dict[str, Tensor]:
    """The tensors of an observation by name; a plain tensor is called `observations`."""
    return {"observations": observations} if isinstance(observations, Tensor) else observations


def batch_size(observations: Observation) -> int:
    """How many observations [B, ...] there are."""
    return len(next(iter(observation_leaves(observations).values())))
