"""What several games share: checks of their settings, draws, and boards of zeros and ones."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor


def check_least(game: Any, **least: float) -> None:
    """Raise ValueError if a field of a game is below its least value, or not finite."""
    for name, low in least.items():
        value = getattr(game, name)
        if not low <= value < math.inf:
            raise ValueError(f"{name}: expected at least {low}, got {value}")


def check_steps(steps: int, needed: int, goal: str) -> None:
    """Raise ValueError if an episode is too short to reach its goal."""
    if steps < needed:
        raise ValueError(f"steps: expected at least {needed}, to reach {goal}, got {steps}")


def draw_index(high: int, num_envs: int, generator: torch.Generator) -> Tensor:
    """[B] int64, uniform below `high`, on the generator's device."""
    return torch.randint(high, (num_envs,), generator=generator, device=generator.device)


def draw_flips(size: int, seed: int) -> list[int]:
    """`size` zeros and ones that a seed fixes on every machine; seed 0 gives zeros."""
    rng = random.Random(f"flips {seed}")
    return [rng.randrange(2) if seed else 0 for _ in range(size)]


def move(place: Tensor, direction: Tensor, rows: int, columns: int) -> Tensor:
    """Cells [B] one step up (0), down (1), left (2) or right (3) of `place`, within the board."""
    down = (direction == 1).long() - (direction == 0).long()
    right = (direction == 3).long() - (direction == 2).long()
    row = (place // columns + down).clamp(0, rows - 1)
    column = (place % columns + right).clamp(0, columns - 1)
    return row * columns + column


def mark(places: Tensor, size: int) -> Tensor:
    """[B, K] indices -> [B, size] uint8, 1 at the indices."""
    board = torch.zeros(len(places), size, dtype=torch.uint8, device=places.device)
    return board.scatter_(1, places, 1)
