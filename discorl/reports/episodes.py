"""The episodes of a run's newest evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.runs.folder import EVALUATION_FILE

_KINDS = ("greedy", "sampled")


@dataclass(frozen=True)
class Episodes:
    """Returns and lengths, one of each for an episode."""

    returns: list[float]
    lengths: list[float]

    def statistics(self) -> tuple[float, ...]:
        """How many, mean and standard deviation of returns, lowest, median, highest, and the mean
        length."""
        returns = np.array(self.returns)
        low, middle, high = (float(q) for q in np.quantile(returns, (0, 0.5, 1)))
        mean, spread = float(returns.mean()), float(returns.std())
        return len(returns), mean, spread, low, middle, high, float(np.mean(self.lengths))


@dataclass(frozen=True)
class Played:
    """An evaluation, episode by episode."""

    step: int
    kinds: dict[str, Episodes]
    """How actions were chosen -> the episodes."""


def read_episodes(folder: Path) -> Played | None:
    """None if a run has not evaluated its agent, or is older than the file; DiscorlError if it is
    damaged."""
    path = folder / EVALUATION_FILE
    if not path.exists():
        return None
    values: Any = read_json(path)
    try:
        kinds = {kind: _episodes(values[kind]) for kind in _KINDS}
        return Played(int(values["step"]), kinds)
    except (KeyError, TypeError, ValueError) as error:
        raise DiscorlError(f"{path} is damaged: {error!r}") from error


def _episodes(values: Any) -> Episodes:
    returns, lengths = ([float(v) for v in values[name]] for name in ("returns", "lengths"))
    if not returns or len(returns) != len(lengths):
        raise ValueError("returns and lengths differ in number")
    return Episodes(returns, lengths)
