"""Acrobot: swing up by bending in the middle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least

_SECONDS = 0.2
"""Simulated time of a step."""
_CENTRE = 0.5
"""Where a link's mass is; length, mass and inertia of both links are 1."""
_FASTEST = (4 * math.pi, 9 * math.pi)
"""Largest turning speed of each link."""


@dataclass(frozen=True)
class Acrobot(StackableGame):
    """Swing the tip of two hanging links above a bar, with a motor between them only.

    The actions turn the joint one way, not at all, or the other. Each step pays -1, but the one
    that gets the tip a link's length above the bar pays 0 and ends the episode; so does the time
    limit. Equations are the book's, and Runge-Kutta steps are those of Gymnasium's Acrobot; after
    Sutton and Barto (1998), section 11.3.
    """

    torque: float = 1.0
    """Strength of the motor."""
    gravity: float = 9.8
    """What pulls the links down."""
    steps: int = 200
    """Length of the longest episode."""

    num_actions = 3
    shows_end = True
    action_names = ("turn back", "none", "turn forth")

    def __post_init__(self) -> None:
        check_least(self, torque=0, gravity=0, steps=1)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Cosine and sine of the first link's angle, and of the joint's; both turning speeds."""
        return (6,)

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: nearly hanging, nearly at rest."""
        device = generator.device
        body = torch.rand(num_envs, 4, generator=generator, device=device, dtype=torch.float32)
        time = torch.zeros(num_envs, dtype=torch.int64, device=device)
        return {"body": 0.2 * body - 0.1, "time": time}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        torque, body = self.torque * (actions - 1), state["body"]
        first = self._changes(body, torque)
        second = self._changes(body + _SECONDS / 2 * first, torque)
        third = self._changes(body + _SECONDS / 2 * second, torque)
        fourth = self._changes(body + _SECONDS * third, torque)
        body = body + _SECONDS / 6 * (first + 2 * second + 2 * third + fourth)
        angle, joint, turning, bending = body.unbind(dim=1)
        angle, joint = ((x + math.pi) % (2 * math.pi) - math.pi for x in (angle, joint))
        turning, bending = (
            x.clamp(-most, most) for x, most in zip((turning, bending), _FASTEST, strict=True)
        )
        time = state["time"] + 1
        up = -angle.cos() - (angle + joint).cos() > 1
        body = torch.stack([angle, joint, turning, bending], dim=1)
        return {"body": body, "time": time}, up.float() - 1, up | (time == self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: float32."""
        angle, joint, turning, bending = state["body"].unbind(dim=1)
        seen = [angle.cos(), angle.sin(), joint.cos(), joint.sin(), turning, bending]
        return torch.stack(seen, dim=1)

    def _changes(self, body: Tensor, torque: Tensor) -> Tensor:
        """Time derivatives of the body, [B, 4]: angles, then turning speeds."""
        angle, joint, turning, bending = body.unbind(dim=1)
        cos, sin = joint.cos(), joint.sin()
        own, shared = _CENTRE**2 + 1, _CENTRE * cos
        whole = 2 * own + 1 + 2 * shared
        coupled = own + shared
        lower = _CENTRE * self.gravity * (angle + joint).sin()
        upper = (_CENTRE + 1) * self.gravity * angle.sin() + lower
        upper = upper - _CENTRE * sin * bending * (bending + 2 * turning)
        bent = torque + coupled / whole * upper - _CENTRE * sin * turning.square() - lower
        bent = bent / (own - coupled.square() / whole)
        turned = -(coupled * bent + upper) / whole
        return torch.stack([turning, bending, turned, bent], dim=1)
