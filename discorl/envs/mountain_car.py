"""Mountain car: go the wrong way first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least

_GRAVITY = 0.0025
_LEAST, _MOST = -1.2, 0.6
"""Ends of the road."""
_GOAL = 0.5
_FASTEST = 0.07


@dataclass(frozen=True)
class MountainCar(StackableGame):
    """Swing a weak car out of a valley: it must go back to get up.

    The actions push back, not at all, or forth. Each step pays -1. The episode ends at the top or
    at the time limit. Constants are those of Gymnasium's MountainCar; after Moore (1990).
    """

    power: float = 0.001
    """What a push adds to the speed."""
    steps: int = 200
    """Length of the longest episode."""

    num_actions = 3
    shows_end = True
    action_names = ("back", "none", "forth")

    def __post_init__(self) -> None:
        check_least(self, power=0, steps=1)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Position and speed."""
        return (2,)

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: near the bottom, at rest."""
        device = generator.device
        place = torch.rand(num_envs, generator=generator, device=device, dtype=torch.float32)
        body = torch.stack([0.2 * place - 0.6, torch.zeros_like(place)], dim=1)
        return {"body": body, "time": torch.zeros(num_envs, dtype=torch.int64, device=device)}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        place, speed = state["body"].unbind(dim=1)
        speed = speed + (actions - 1) * self.power - _GRAVITY * (3 * place).cos()
        speed = speed.clamp(-_FASTEST, _FASTEST)
        place = (place + speed).clamp(_LEAST, _MOST)
        # The end of the road is a wall.
        speed = torch.where(place <= _LEAST, speed.clamp(min=0), speed)
        time = state["time"] + 1
        arrived = (place >= _GOAL) & (speed >= 0)
        body = torch.stack([place, speed], dim=1)
        return {"body": body, "time": time}, -torch.ones_like(place), arrived | (time == self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: float32."""
        return state["body"].clone()
