"""What training asks of an environment: many copies at once, which reset themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from discorl.rollout import Observation
from discorl.tree import unflatten


@dataclass(frozen=True)
class ArraySpec:
    """What one observation, or one entry of it, looks like."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    scale: float = 1.0
    """Networks multiply by it: 1 / 255 for images of bytes."""

    @property
    def is_image(self) -> bool:
        """Whether it has rows, columns and channels."""
        return len(self.shape) == 3

    def bytes(self) -> int:
        """Memory of one."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


ObservationSpec = ArraySpec | dict[str, ArraySpec]


def spec_entries(spec: ObservationSpec) -> dict[str, ArraySpec]:
    """The arrays of an observation by name; a plain one is called `observations`."""
    return {"observations": spec} if isinstance(spec, ArraySpec) else spec


@dataclass(frozen=True)
class EnvironmentOptions:
    """How environments from outside are run; tensor environments need none of it."""

    workers: bool = False
    """Each copy in a process of its own."""
    timeout: float = 60.0
    """Seconds after which a process that does not answer is given up."""
    discretize_actions: int = 0
    """Values of each dimension of a continuous action to choose from; 0 refuses such actions."""


@dataclass(frozen=True)
class Boundary:
    """Where episodes are cut off, or take a step to reset: more than a discount can say.

    Each is [B] booleans.
    """

    final: Tensor
    """The observation to store is the last of its episode; the action on it will do nothing, or
    belongs to the next episode. See `Rollout.final`."""
    ended: Tensor
    """The last reward of an episode came with this step."""
    idle: Tensor
    """This step was a reset and nothing else."""
    stored: Observation | None = None
    """What to learn from, where that is not what to act on: [B, ...]."""


@dataclass(frozen=True)
class TimeStep:
    """What B copies hand out together.

    When an episode ends, its last reward arrives together with the first observation of the
    next one, and the discount of 0 says so. There is no separate reset step, unless `boundary`
    tells of one.
    """

    observation: Observation
    """[B, *shape], any dtype, or a dictionary of such."""
    reward: Tensor
    """[B] float: the outcome of the action before this observation."""
    discount: Tensor
    """[B] float: 0 on the first observation after an episode's end, else 1."""
    boundary: Boundary | None = None
    """From environments whose episodes can be cut off: with every step, or never."""

    @property
    def first(self) -> Tensor:
        """[B] booleans: the observation to act on is the first of an episode."""
        if self.boundary is None:
            return self.discount == 0
        final = self.boundary.final
        if self.boundary.stored is None:
            return (self.discount == 0) & ~final
        return (self.discount == 0) | final

    @property
    def ended(self) -> Tensor:
        """[B] booleans: the last reward of an episode came with this step."""
        return self.discount == 0 if self.boundary is None else self.boundary.ended

    @property
    def idle(self) -> Tensor:
        """[B] booleans: this step was a reset and nothing else."""
        return torch.zeros_like(self.ended) if self.boundary is None else self.boundary.idle


def restore_step(template: TimeStep, leaves: dict[str, Tensor]) -> TimeStep:
    """A time step from its tensors by path; `stored` is there in some steps and not in others."""
    boundary = template.boundary
    if boundary is not None:
        has_stored = any(name.startswith("boundary/stored") for name in leaves)
        boundary = replace(boundary, stored=template.observation if has_stored else None)
    return unflatten(replace(template, boundary=boundary), leaves)


class Environment(Protocol):
    """B copies of a task with A discrete actions."""

    num_envs: int
    num_actions: int
    observation_spec: ObservationSpec

    def reset(self, seed: int) -> TimeStep:
        """Begin anew, every random choice fixed by the seed; discounts are 1."""
        ...

    def step(self, actions: Tensor) -> TimeStep:
        """Act in every copy: integer actions [B]."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Everything needed to go on exactly from here, or as nearly as can be."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> TimeStep | None:
        """Go on from what `state_dict` gave.

        Returns nothing if everything is as it was. An environment that cannot be restored begins
        new episodes and returns their first step.
        """
        ...

    def close(self) -> None:
        """Free what the environment holds: processes, windows."""
        ...
