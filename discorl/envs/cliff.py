"""Cliff: the shortest way home is along the edge."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from discorl.envs.tools import check_least, check_steps, mark, move


@dataclass(frozen=True)
class Cliff:
    """Walk along a cliff to the goal, as near to the edge as you dare.

    The walk goes from the bottom left to the bottom right corner; the cells between them are the
    cliff. A step costs `0.5 / (rows + columns)`, falling costs 1 more, and the goal pays 1; both
    end the episode, and so does the time limit. After Sutton and Barto, example 6.6.
    """

    rows: int = 4
    """Height of the board."""
    columns: int = 6
    """Width of the board."""
    steps: int = 40
    """Length of the longest episode."""
    seed: int = 0
    """Fixes what the actions mean; 0 is up, down, left, right."""

    num_actions = 4

    def __post_init__(self) -> None:
        check_least(self, rows=2, columns=3, seed=0)
        check_steps(self.steps, self.columns + 1, "the goal")

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Channels: agent, cliff, goal."""
        return (self.rows, self.columns, 3)

    @property
    def step_cost(self) -> float:
        """What a step costs."""
        return 0.5 / (self.rows + self.columns)

    @property
    def optimal_return(self) -> float:
        """Exact: one up, along the edge, and one down."""
        return 1 - (self.columns + 1) * self.step_cost

    @property
    def meanings(self) -> list[int]:
        """The direction of each action: 0 is up, 1 down, 2 left, 3 right."""
        directions = list(range(self.num_actions))
        if self.seed:
            random.Random(f"cliff {self.seed}").shuffle(directions)
        return directions

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: cells are counted along the rows."""
        zeros = torch.zeros(num_envs, dtype=torch.int64, device=generator.device)
        return {"place": zeros + (self.rows - 1) * self.columns, "time": zeros}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        direction = _meanings(self, generator.device)[actions]
        place = move(state["place"], direction, self.rows, self.columns)
        time = state["time"] + 1
        goal = self.rows * self.columns - 1
        arrived = place == goal
        fallen = (place > goal - self.columns + 1) & ~arrived
        reward = arrived.float() - fallen.float() - self.step_cost
        return {"place": place, "time": time}, reward, arrived | fallen | (time == self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        place = state["place"]
        agent = mark(place[:, None], self.rows * self.columns)
        board = agent[..., None].repeat(1, 1, 3).reshape(len(place), *self.observation_shape)
        board[..., 1:] = 0
        board[:, -1, 1:-1, 1] = 1
        board[:, -1, -1, 2] = 1
        return board


@lru_cache(maxsize=256)
def _meanings(game: Cliff, device: torch.device) -> Tensor:
    """[A] int64."""
    return torch.tensor(game.meanings, device=device)
