"""Sokoban: push boxes onto goals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from discorl.envs.sokoban_levels import Level, generate_levels, read_levels
from discorl.envs.tools import check_least

_STEP, _ON_GOAL, _SOLVED = -0.1, 1.0, 10.0
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


@dataclass(frozen=True)
class Sokoban:
    """Push every box onto a goal; boxes cannot be pulled, and mistakes may be final.

    A step costs 0.1. A box pushed onto a goal gives 1, one pushed off it takes 1, and the last one
    gives 10 more and ends the episode. The actions are up, down, left and right. Levels come from a
    file, or are generated, each of them solvable; an episode draws one of them.
    """

    rows: int = 7
    """Height of generated levels, with the walls around them."""
    columns: int = 7
    """Width of generated levels."""
    boxes: int = 2
    """Boxes in a generated level, and goals."""
    walls: int = 3
    """Cells inside a generated level that cannot be entered."""
    count: int = 100
    """Levels that are generated."""
    levels: str = ""
    """A text file with levels in Boxoban's format, in place of generated ones."""
    steps: int = 120
    """Steps after which an episode ends."""
    seed: int = 0
    """Fixes the generated levels."""

    num_actions = 4
    action_names = ("up", "down", "left", "right")
    shows_end = True

    def __post_init__(self) -> None:
        check_least(self, rows=4, columns=4, boxes=1, walls=0, count=1, steps=1, seed=0)
        if (self.rows - 2) * (self.columns - 2) < self.walls + 2 * self.boxes + 1:
            raise ValueError(
                f"expected room for {self.boxes} boxes, their goals and the agent beside "
                f"{self.walls} walls, got {self.rows} x {self.columns} cells"
            )
        _levels(self)  # A missing file, or too little room, is told at once.

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Channels: walls, goals, boxes, agent."""
        level = _levels(self)[0]
        return (level.rows, level.columns, 4)

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: boards [B, rows * columns], and the agents' cells [B]."""
        tables, device = _tables(self), generator.device
        number = len(tables["agent"])
        drawn = torch.randint(number, (num_envs,), generator=generator, device=device)
        state = {name: table.to(device)[drawn] for name, table in tables.items()}
        return state | {"time": torch.zeros_like(drawn)}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        walls, goals, boxes, agent = (state[k] for k in ("walls", "goals", "boxes", "agent"))
        columns = self.observation_shape[1]
        shift = torch.tensor([down * columns + right for down, right in _MOVES]).to(actions.device)
        # Every level has walls around it, so nobody gets close enough to the edge to leave.
        last = walls.shape[1] - 1
        there = (agent + shift[actions]).clamp(0, last)
        beyond = (there + shift[actions]).clamp(0, last)
        pushes = _at(boxes, there)
        blocked = _at(walls, there) | (pushes & (_at(walls, beyond) | _at(boxes, beyond)))
        pushes = pushes & ~blocked
        moved = boxes.clone()
        _set(moved, there, torch.where(pushes, False, _at(boxes, there)))
        _set(moved, beyond, torch.where(pushes, True, _at(moved, beyond)))
        gained = (moved & goals).sum(1) - (boxes & goals).sum(1)
        solved = (moved == goals).all(1)
        reward = _STEP + _ON_GOAL * gained + _SOLVED * solved
        time = state["time"] + 1
        after = {"boxes": moved, "agent": torch.where(blocked, agent, there), "time": time}
        return state | after, reward.float(), solved | (time >= self.steps)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        walls = state["walls"]
        agent = torch.nn.functional.one_hot(state["agent"], walls.shape[1]).bool()
        board = torch.stack([walls, state["goals"], state["boxes"], agent], dim=-1)
        return board.to(torch.uint8).reshape(-1, *self.observation_shape)


def _at(board: Tensor, cells: Tensor) -> Tensor:
    """[B]: what is in one cell [B] of each board [B, cells]."""
    return board.gather(1, cells[:, None])[:, 0]


def _set(board: Tensor, cells: Tensor, values: Tensor) -> None:
    board.scatter_(1, cells[:, None], values[:, None])


@lru_cache(maxsize=16)
def _levels(game: Sokoban) -> tuple[Level, ...]:
    if not game.levels:
        return generate_levels(
            game.rows, game.columns, game.boxes, game.walls, game.count, game.seed
        )
    levels = read_levels(game.levels)
    for number, level in enumerate(levels):
        edge = {
            (row, column)
            for row in range(level.rows)
            for column in range(level.columns)
            if row in (0, level.rows - 1) or column in (0, level.columns - 1)
        }
        if not edge <= level.walls:
            raise ValueError(f"levels={game.levels}: level {number} has no walls around it")
    return tuple(levels)


@lru_cache(maxsize=16)
def _tables(game: Sokoban) -> dict[str, Tensor]:
    """The levels as boards [N, cells], and the agents' cells [N]."""
    levels = _levels(game)
    rows, columns = game.observation_shape[:2]

    def boards(name: str) -> Tensor:
        table = torch.zeros(len(levels), rows * columns, dtype=torch.bool)
        for number, level in enumerate(levels):
            for row, column in getattr(level, name):
                table[number, row * columns + column] = True
        return table

    agents = [level.agent[0] * columns + level.agent[1] for level in levels]
    return {name: boards(name) for name in ("walls", "goals", "boxes")} | {
        "agent": torch.tensor(agents)
    }
