"""Cart-pole: the classic balancing task."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least

_GRAVITY = 9.8
_CART_MASS = 1.0
_POLE_MASS = 0.1
_SECONDS = 0.02
"""Simulated time of a step."""
_LIMIT = 2.4
"""The cart's furthest position."""
_ANGLE_LIMIT = math.radians(12)


@dataclass(frozen=True)
class CartPole(StackableGame):
    """Keep a pole upright on a cart that is pushed left or right.

    Each step pays 1. The episode ends when the cart is more than 2.4 from the middle, when the
    pole leans more than 12 degrees, or at the time limit. Constants and Euler steps are those of
    Gymnasium's CartPole; after Barto, Sutton and Anderson (1983).
    """

    steps: int = 200
    """Length of the longest episode."""
    force: float = 10.0
    """Force that the cart is pushed with."""
    pole: float = 0.5
    """Half the pole's length."""

    num_actions = 2
    shows_end = True
    action_names = ("left", "right")

    def __post_init__(self) -> None:
        check_least(self, steps=1, force=0)
        if not 0 < self.pole < math.inf:
            raise ValueError(f"pole: expected more than 0, got {self.pole}")

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Position and speed of the cart, angle and turning speed of the pole."""
        return (4,)

    @property
    def optimal_return(self) -> float:
        """An upper bound: balanced to the end."""
        return float(self.steps)

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        device = generator.device
        body = torch.rand(num_envs, 4, generator=generator, device=device, dtype=torch.float32)
        time = torch.zeros(num_envs, dtype=torch.int64, device=device)
        return {"body": 0.1 * body - 0.05, "time": time}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        speed, angle, turning = state["body"][:, 1:].unbind(dim=1)
        body = state["body"] + _SECONDS * self._changes(speed, angle, turning, actions)
        time = state["time"] + 1
        fallen = (body[:, 0].abs() > _LIMIT) | (body[:, 2].abs() > _ANGLE_LIMIT)
        reward = torch.ones_like(angle)
        return {"body": body, "time": time}, reward, fallen | (time == self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: float32."""
        return state["body"].clone()

    def _changes(self, speed: Tensor, angle: Tensor, turning: Tensor, actions: Tensor) -> Tensor:
        """Time derivatives of the body, [B, 4]."""
        mass = _CART_MASS + _POLE_MASS
        force = self.force * (2 * actions - 1)
        cos, sin = angle.cos(), angle.sin()
        pushed = (force + _POLE_MASS * self.pole * turning.square() * sin) / mass
        inertia = self.pole * (4 / 3 - _POLE_MASS * cos.square() / mass)
        spin = (_GRAVITY * sin - cos * pushed) / inertia
        push = pushed - _POLE_MASS * self.pole * spin * cos / mass
        return torch.stack([speed, push, turning, spin], dim=1)
