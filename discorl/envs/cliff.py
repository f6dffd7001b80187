"""Cliff: the shortest way home is along the edge."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, check_steps, look_up, mark, move


@dataclass(frozen=True)
class Cliff(StackableGame):
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
    shows_end = True
    sizes = ("rows", "columns")

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

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions mean."""
        names = ("up", "down", "left", "right")
        return tuple(names[direction] for direction in self.meanings)

    def lay_out(self, frame: Cliff) -> dict[str, Tensor]:
        """See `StackableGame.lay_out`: the actions' meanings, and where cliff and goal are."""
        scene = torch.zeros(frame.rows, frame.columns, 2, dtype=torch.uint8)
        scene[self.rows - 1, 1 : self.columns - 1, 0] = 1
        scene[self.rows - 1, self.columns - 1, 1] = 1
        return {"meanings": torch.tensor(self.meanings), "scene": scene.flatten(0, 1)}

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: cells are counted along the frame's rows."""
        zeros = torch.zeros(num_envs, dtype=torch.int64, device=generator.device)
        return {"place": zeros + (self.rows - 1) * self.frame.columns, "time": zeros}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        width = self.frame.columns
        direction = look_up(self.tables(generator.device)["meanings"], actions)
        place = move(state["place"], direction, self.rows, self.columns, width)
        time = state["time"] + 1
        goal = (self.rows - 1) * width + self.columns - 1
        arrived = place == goal
        fallen = (place > goal - self.columns + 1) & ~arrived
        reward = arrived.float() - fallen.float() - self.step_cost
        return {"place": place, "time": time}, reward, arrived | fallen | (time == self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        place = state["place"]
        scene = self.tables(place.device)["scene"]
        agent = mark(place[:, None], scene.shape[1])[..., None]
        board = torch.cat([agent, scene.expand(len(place), -1, -1)], dim=2)
        return board.reshape(-1, *self.frame.observation_shape)
