"""Catch: move the paddle under the falling ball."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import clip, draw_index, mark


@dataclass(frozen=True)
class Catch(StackableGame):
    """A ball drops one row per step from a random column of the top row.

    The paddle starts in the middle of the bottom row and moves left, stays or moves right. When
    the ball arrives the episode ends with +1 if the paddle is under it, else -1.
    """

    rows: int = 8
    """Height of the board; an episode lasts `rows - 1` steps."""
    columns: int = 8
    """Width of the board."""

    num_actions = 3
    shows_end = True
    action_names = ("left", "stay", "right")
    sizes = ("rows", "columns")

    def __post_init__(self) -> None:
        if self.rows < 2 or self.columns < 1:
            raise ValueError(
                f"catch: expected rows >= 2 and columns >= 1, got {self.rows} x {self.columns}"
            )

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """One channel, 1 where the ball or the paddle is."""
        return (self.rows, self.columns, 1)

    @property
    def optimal_return(self) -> float:
        """Exact: every ball that falls within reach is caught."""
        middle, reach = self.columns // 2, self.rows - 1
        caught = sum(abs(column - middle) <= reach for column in range(self.columns))
        return 2 * caught / self.columns - 1

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        ball_column = draw_index(self.columns, (num_envs,), generator)
        return {
            "ball_row": torch.zeros_like(ball_column),
            "ball_column": ball_column,
            "paddle": torch.zeros_like(ball_column) + self.columns // 2,
        }

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        paddle = clip(state["paddle"] + actions - 1, self.columns - 1)
        ball_row = state["ball_row"] + 1
        terminal = ball_row == self.rows - 1
        caught = paddle == state["ball_column"]
        reward = terminal.float() * (2 * caught.float() - 1)
        return {**state, "ball_row": ball_row, "paddle": paddle}, reward, terminal

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        height, width, _ = self.frame.observation_shape
        ball = state["ball_row"] * width + state["ball_column"]
        paddle = (self.rows - 1) * width + state["paddle"]
        board = mark(torch.stack([ball, paddle], dim=1), height * width)
        return board.reshape(-1, height, width, 1)
