"""Deep sea: one long path to the treasure, and a small cost for every step along it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, clip, draw_flips, look_up, mark, pad


@dataclass(frozen=True)
class DeepSea(StackableGame):
    """Sink one row per step, and go right every time to find the treasure.

    The diver starts in the top left corner. A step right costs `0.01 / size`, a step left is
    free, and the step right from the bottom right corner pays 1. Random play finds it once in
    `2 ** size` episodes. After Osband et al., "Behaviour suite for reinforcement learning".
    """

    size: int = 6
    """Rows and columns; also the length of an episode."""
    seed: int = 0
    """Fixes in which columns the two actions are swapped; 0 swaps none: left, right."""

    num_actions = 2
    sizes = ("size",)

    def __post_init__(self) -> None:
        check_least(self, size=1, seed=0)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """One channel, 1 where the diver is."""
        return (self.size, self.size, 1)

    @property
    def optimal_return(self) -> float:
        """Exact: the treasure less the cost of every step right."""
        return 0.99

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """What the actions mean, if they mean the same everywhere."""
        return None if self.seed else ("left", "right")

    def lay_out(self, frame: DeepSea) -> dict[str, Tensor]:
        """See `StackableGame.lay_out`: 1 where action 0 goes right."""
        return {"flips": pad(draw_flips(self.size, self.seed), frame.size)}

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        zeros = torch.zeros(num_envs, dtype=torch.int64, device=generator.device)
        return {"row": zeros, "column": zeros.clone()}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        column, row = state["column"], state["row"] + 1
        right = actions != look_up(self.tables(generator.device)["flips"], column)
        found = right & (column == self.size - 1)
        reward = found.float() - right.float() * (0.01 / self.size)
        column = clip(column + 2 * right.long() - 1, self.size - 1)
        return {"row": row, "column": column}, reward, row == self.size

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        size = self.frame.size
        place = state["row"] * size + state["column"]
        return mark(place[:, None], size * size).reshape(-1, size, size, 1)
