"""Chain: a small pay at once, or a larger one after a way on which steps slip."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.line import Line
from discorl.envs.tools import check_least, clip


@dataclass(frozen=True)
class Chain(Line):
    """Go forth along a chain to its far end, or take a small pay and begin again.

    A step forth pays nothing, but at the far end it pays 1. A step back leads to the beginning,
    from everywhere, and pays `small`. Now and then the other step is made. All pays are multiplied
    by a scale. After Strens, "A Bayesian framework for reinforcement learning" (2000).
    """

    length: int = 5
    """Places in the chain."""
    slip: float = 0.2
    """How often the other step is made."""
    small: float = 0.2
    """What a step back pays."""
    reward_scale: float = 1.0
    """What every pay is multiplied by."""
    steps: int = 20
    """Length of an episode."""
    seed: int = 0
    """Fixes at which places the two actions are swapped; 0 swaps none: back, forth."""

    def __post_init__(self) -> None:
        check_least(self, length=2, slip=0, small=0, reward_scale=0, steps=1, seed=0)
        if self.slip > 1:
            raise ValueError(f"slip: expected at most 1, got {self.slip}")

    @property
    def optimal_return(self) -> float:
        """Exact, for a policy that counts the steps; for others an upper bound."""
        values, last = [0.0] * self.length, self.length - 1
        for _ in range(self.steps):
            back = self.small + values[0]
            ways = [(p == last) + values[min(p + 1, last)] for p in range(self.length)]
            # To mean one step is to make the other now and then.
            values = [
                max(s * way + (1 - s) * back for s in (self.slip, 1 - self.slip)) for way in ways
            ]
        return self.reward_scale * values[0]

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        place, time = state["place"], state["time"] + 1
        luck = torch.rand(place.shape, generator=generator, device=place.device)
        meant = self.leads_forth(actions, place)
        forth = meant ^ (luck < self.slip)
        pay = forth * (place == self.length - 1) + ~forth * self.small
        place = clip(place + 1, self.length - 1) * forth
        return {"place": place, "time": time}, self.reward_scale * pay, time == self.steps
