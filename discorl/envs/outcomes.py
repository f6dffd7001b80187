"""What episodes came to besides their return: achievements, levels solved.

An environment tells it at an episode's last step, in `info["outcome"]`: name -> number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

OUTCOME = "outcome"
_PREFIX = "outcomes/"
_EPISODES = "episodes"


@runtime_checkable
class Telling(Protocol):
    """An environment that may tell outcomes."""

    @property
    def outcomes(self) -> Outcomes:
        """What its episodes came to."""
        ...


class Outcomes:
    """Means over all episodes of B copies, and what each copy's last episode came to."""

    def __init__(self, num_envs: int) -> None:
        self.last: dict[str, npt.NDArray[np.float64]] = {}
        """Name -> [B]; not a number before a copy's first episode has ended."""
        self._num_envs = num_envs
        self._totals: dict[str, float] = {}
        self._episodes = 0

    def update(self, info: dict[str, Any], ended: npt.NDArray[np.bool_]) -> None:
        """Take in what a vector environment told at a step in which some episodes ended [B]."""
        final = info.get("final_info", info)
        told = final.get(OUTCOME) if isinstance(final, dict) else None
        if not isinstance(told, dict) or not ended.any():
            return
        self._episodes += int(ended.sum())
        for name, values in told.items():
            if name.startswith("_"):
                continue  # Gymnasium's own flags: who told this.
            row = self.last.setdefault(name, np.full(self._num_envs, np.nan))
            row[ended] = np.asarray(values, dtype=np.float64)[ended]
            self._totals[name] = self._totals.get(name, 0.0) + float(row[ended].sum())

    def totals(self) -> dict[str, float]:
        """Sums over all episodes, and how many there were; nothing before the first."""
        return {**self._totals, _EPISODES: self._episodes} if self._episodes else {}

    def state_dict(self) -> dict[str, Tensor]:
        """The sums; nothing in environments that tell no outcomes."""
        return {
            _PREFIX + name: torch.tensor(total, dtype=torch.float64)
            for name, total in self.totals().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` returned, among other things."""
        totals = {
            name.removeprefix(_PREFIX): float(total)
            for name, total in state.items()
            if name.startswith(_PREFIX)
        }
        self._episodes = int(totals.pop(_EPISODES, 0))
        self._totals = totals


def told_by(envs: Sequence[object]) -> dict[str, float]:
    """Means over all episodes of some environments, of which any may tell nothing."""
    return mean_outcomes([env.outcomes.totals() for env in envs if isinstance(env, Telling)])


def mean_outcomes(parts: list[dict[str, float]]) -> dict[str, float]:
    """Means over all episodes, from the `totals` of one or more environments."""
    episodes = sum(part.get(_EPISODES, 0) for part in parts)
    names = sorted({name for part in parts for name in part} - {_EPISODES})
    return {name: sum(part.get(name, 0.0) for part in parts) / episodes for name in names}
