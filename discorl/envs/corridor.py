"""Corridor: a reward at the far end, and nothing before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.line import Line
from discorl.envs.tools import check_least, check_steps


@dataclass(frozen=True)
class Corridor(Line):
    """Walk to the far end of a corridor, where the only reward is.

    The walk begins at one end. Arriving at the other pays 1 and ends the episode; so does the
    time limit, without a reward.
    """

    length: int = 8
    """Places in the corridor."""
    step_cost: float = 0.0
    """What every step costs."""
    steps: int = 30
    """Length of the longest episode."""
    seed: int = 0
    """Fixes at which places the two actions are swapped; 0 swaps none: back, forth."""

    def __post_init__(self) -> None:
        check_least(self, length=2, step_cost=0, seed=0)
        check_steps(self.steps, self.length - 1, "the far end")

    @property
    def optimal_return(self) -> float:
        """Exact: the straight walk."""
        return 1 - self.step_cost * (self.length - 1)

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        forth = self.leads_forth(actions, state["place"])
        place = (state["place"] + 2 * forth.long() - 1).clamp(min=0)
        time = state["time"] + 1
        arrived = place == self.length - 1
        reward = arrived.float() - self.step_cost
        return {"place": place, "time": time}, reward, arrived | (time == self.steps)
