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


def draw_index(high: int | Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """[B, ...] int64, uniform below `high`, a number or [B], on the generator's device."""
    device = generator.device
    if isinstance(high, Tensor):
        share = torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
        return (share * high.reshape(-1, *[1] * (len(shape) - 1))).long()
    return torch.randint(high, shape, generator=generator, device=device)


def draw_flips(size: int, seed: int) -> list[int]:
    """`size` zeros and ones that a seed fixes on every machine; seed 0 gives zeros."""
    rng = random.Random(f"flips {seed}")
    return [rng.randrange(2) if seed else 0 for _ in range(size)]


def pad(numbers: list[int], size: int) -> Tensor:
    """[size] int64: the numbers, and zeros after them."""
    return torch.tensor(numbers + [0] * (size - len(numbers)))


def clip(values: Tensor, high: int | Tensor) -> Tensor:
    """[B] from 0 to `high`, a number or [B]."""
    if isinstance(high, Tensor):
        return values.clamp(min=0).minimum(high)
    return values.clamp(0, high)


def column(setting: bool | int | Tensor) -> Any:
    """A setting that goes with [B, K]: [B] becomes [B, 1], and a number stays."""
    return setting[:, None] if isinstance(setting, Tensor) else setting


def possible(setting: bool | Tensor) -> bool:
    """Whether it may be so on any board; in a stack, without a look at the values."""
    return isinstance(setting, Tensor) or setting


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """[B] or [B, K] entries of a table [N] that all boards share, [1, N], or not, [B, N]."""
    found = table.expand(len(index), -1).gather(1, index.reshape(len(index), -1))
    return found.reshape(index.shape)


def move(
    place: Tensor, direction: Tensor, rows: int | Tensor, columns: int | Tensor, width: int
) -> Tensor:
    """Cells [B] one step up (0), down (1), left (2) or right (3) of `place`, within the board.

    Args:
      place: [B], counted along rows of `width` cells.
      rows: of the board, a number or [B], and so are its columns.
    """
    down = (direction == 1).long() - (direction == 0).long()
    right = (direction == 3).long() - (direction == 2).long()
    row = clip(place // width + down, rows - 1)
    return row * width + clip(place % width + right, columns - 1)


def mark(places: Tensor, size: int) -> Tensor:
    """[B, K] indices -> [B, size] uint8, 1 at the indices."""
    board = torch.zeros(len(places), size, dtype=torch.uint8, device=places.device)
    return board.scatter_(1, places, 1)
