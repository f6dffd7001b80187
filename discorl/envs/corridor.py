"""Corridor: a reward at the far end, and nothing before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, check_steps, draw_flips, look_up, mark, pad


@dataclass(frozen=True)
class Corridor(StackableGame):
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

    num_actions = 2
    shows_end = True
    sizes = ("length",)

    def __post_init__(self) -> None:
        check_least(self, length=2, step_cost=0, seed=0)
        check_steps(self.steps, self.length - 1, "the far end")

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """1 at the place, else 0."""
        return (self.length,)

    @property
    def optimal_return(self) -> float:
        """Exact: the straight walk."""
        return 1 - self.step_cost * (self.length - 1)

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """What the actions mean, if they mean the same everywhere."""
        return None if self.seed else ("back", "forth")

    def lay_out(self, frame: Corridor) -> dict[str, Tensor]:
        """See `StackableGame.lay_out`: 1 where action 0 goes forth."""
        return {"flips": pad(draw_flips(self.length, self.seed), frame.length)}

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        zeros = torch.zeros(num_envs, dtype=torch.int64, device=generator.device)
        return {"place": zeros, "time": zeros.clone()}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        forth = actions != look_up(self.tables(generator.device)["flips"], state["place"])
        place = (state["place"] + 2 * forth.long() - 1).clamp(min=0)
        time = state["time"] + 1
        arrived = place == self.length - 1
        reward = arrived.float() - self.step_cost
        return {"place": place, "time": time}, reward, arrived | (time == self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        return mark(state["place"][:, None], self.frame.length)
