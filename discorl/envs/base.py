"""What training asks of an environment: many copies at once, which reset themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class TimeStep:
    """What B copies hand out together.

    When an episode ends, its last reward arrives together with the first observation of the
    next one, and the discount of 0 says so. There is no separate reset step.
    """

    observation: Tensor
    """[B, *observation_shape], any dtype."""
    reward: Tensor
    """[B] float: the outcome of the action before this observation."""
    discount: Tensor
    """[B] float: 0 on the first observation after an episode's end, else 1."""


class Environment(Protocol):
    """B copies of a task with A discrete actions."""

    num_envs: int
    num_actions: int
    observation_shape: tuple[int, ...]

    def reset(self, seed: int) -> TimeStep:
        """Begin anew, every random choice fixed by the seed; discounts are 1."""
        ...

    def step(self, actions: Tensor) -> TimeStep:
        """Act in every copy: integer actions [B]."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Everything needed to go on exactly from here."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` gave."""
        ...
