"""Lander: come down softly, and on the pad."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least

_SECONDS = 0.1
"""Simulated time of a step."""
_SIDE, _TOP = 1.0, 1.5
"""How far to the side, and how high, the lander may be."""


@dataclass(frozen=True)
class Lander(StackableGame):
    """Bring a lander down on a pad, softly, against its weight.

    It begins at height 1 over a random place. The actions fire nothing, a small engine that pushes
    left, the main engine, or a small one that pushes right. An episode ends on the ground, out of
    bounds, or at the time limit. It pays 1 if the lander touched the pad at no more than the soft
    speed in either direction, else -1.
    """

    gravity: float = 0.4
    """How fast the lander is pulled down."""
    thrust: float = 0.8
    """How strong the main engine is; the small ones have half of it."""
    pad: float = 0.2
    """Half the width of the pad, which is in the middle."""
    soft: float = 0.3
    """Largest speed that the lander survives."""
    shaping: float = 0.0
    """What each step pays for coming nearer to the pad and to rest; 0 pays only at the end."""
    steps: int = 60
    """Length of the longest episode."""

    num_actions = 4
    shows_end = True
    action_names = ("none", "left", "up", "right")

    def __post_init__(self) -> None:
        check_least(self, gravity=0, thrust=0, pad=0, soft=0, shaping=0, steps=1)
        if self.thrust <= self.gravity:
            raise ValueError(
                f"thrust: expected more than gravity, {self.gravity}, got {self.thrust}"
            )

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Place from the pad's middle, height, and the speeds of both."""
        return (4,)

    @property
    def optimal_return(self) -> float | None:
        """An upper bound, without shaping: every landing is soft. With shaping, unknown."""
        return None if self.shaping else 1.0

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        device = generator.device
        drawn = torch.rand(num_envs, 2, generator=generator, device=device, dtype=torch.float32)
        place, speed = (drawn - 0.5).unbind(dim=1)
        body = torch.stack([place, torch.ones_like(place), 0.2 * speed, 0 * speed], dim=1)
        return {"body": body, "time": torch.zeros(num_envs, dtype=torch.int64, device=device)}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        aside = ((actions == 3).float() - (actions == 1).float()) * self.thrust / 2
        up = (actions == 2).float() * self.thrust - self.gravity
        speed = state["body"][:, 2:] + _SECONDS * torch.stack([aside, up], dim=1)
        body = torch.cat([state["body"][:, :2] + _SECONDS * speed, speed], dim=1)
        time = state["time"] + 1
        away, height = body[:, 0].abs(), body[:, 1]
        down = height <= 0
        landed = down & (away <= self.pad) & (speed.abs().amax(dim=1) <= self.soft)
        terminal = down | (away > _SIDE) | (height > _TOP) | (time == self.steps)
        nearer = state["body"].abs().sum(dim=1) - body.abs().sum(dim=1)
        reward = 2 * landed.float() - terminal.float() + self.shaping * nearer
        return {"body": body, "time": time}, reward, terminal

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: float32."""
        return state["body"].clone()
