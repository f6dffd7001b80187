"""Exact statistics of episodes, across rollout boundaries."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discorl.group import Group
from discorl.life.acting import Acted

RECENT_EPISODES = 100
"""Reported returns are means over this many newest episodes."""


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    total_reward: float
    length: int


@dataclass
class LearningCurve:
    """How a life went: the mean return of the newest episodes, after each of its updates."""

    total: float = 0.0
    count: int = 0
    peak: float = 0.0
    """The largest of them, whatever its sign."""

    def add(self, mean_return: float) -> None:
        """One more point; before an episode has ended there is none."""
        if not math.isnan(mean_return):
            self.total += mean_return
            self.count += 1
            self.peak = max(self.peak, abs(mean_return))

    @property
    def mean(self) -> float:
        """Over the whole life, which also tells how soon the agent learned; not a number if no
        episode ended."""
        return self.total / self.count if self.count else math.nan


class EpisodeLog:
    """Adds up rewards across rollout boundaries, counts episodes and keeps the newest.

    Args:
      newest: how many are kept; None keeps all.
    """

    def __init__(self, num_envs: int, newest: int | None = RECENT_EPISODES) -> None:
        self.count = 0
        """Episodes that ended so far."""
        self.recent: deque[Episode] = deque(maxlen=newest)
        self._num_envs = num_envs
        self.begin()

    def begin(self) -> None:
        """All copies begin new episodes; what they had so far is forgotten."""
        self._returns = np.zeros(self._num_envs)
        self._lengths = np.zeros(self._num_envs, dtype=np.int64)
        self._started = np.zeros(self._num_envs, dtype=np.bool_)

    def update(self, acted: Acted) -> list[Episode]:
        """Take in a rollout; returns the episodes that ended in it, in order of time."""
        episodes = []
        rewards = acted.rollout.rewards.double().cpu().numpy()
        ended, idle = acted.ended.cpu().numpy(), acted.idle.cpu().numpy()
        for reward, end, rest in zip(rewards, ended, idle, strict=True):
            # The very first observation came before any action: it is not a step.
            self._lengths += self._started & ~rest
            self._started[:] = True
            self._returns += reward
            for index in np.flatnonzero(end):
                episodes.append(Episode(float(self._returns[index]), int(self._lengths[index])))
                self._returns[index] = 0
                self._lengths[index] = 0
        self.count += len(episodes)
        self.recent.extend(episodes)
        return episodes

    def mean_return(self) -> float:
        """Mean return of the newest episodes; not a number before the first has ended."""
        if not self.recent:
            return math.nan
        return math.fsum(e.total_reward for e in self.recent) / len(self.recent)

    def mean_length(self) -> float:
        """Mean length of the newest episodes; not a number before the first has ended."""
        if not self.recent:
            return math.nan
        return sum(e.length for e in self.recent) / len(self.recent)

    def state_dict(self) -> dict[str, Tensor]:
        """The unfinished episodes, the newest finished ones, and how many there were."""
        totals = [e.total_reward for e in self.recent]
        return {
            "returns": torch.tensor(self._returns),
            "lengths": torch.tensor(self._lengths),
            "started": torch.tensor(self._started),
            "recent_returns": torch.tensor(totals, dtype=torch.float64),
            "recent_lengths": torch.tensor([e.length for e in self.recent], dtype=torch.int64),
            "count": torch.tensor(self.count),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned."""
        self._returns, self._lengths, self._started = (
            state[name].cpu().numpy().copy() for name in ("returns", "lengths", "started")
        )
        pairs = zip(state["recent_returns"], state["recent_lengths"], strict=True)
        self.recent.clear()
        self.recent.extend(Episode(float(total), int(length)) for total, length in pairs)
        self.count = int(state["count"])

    def inherit(self, states: Sequence[dict[str, Tensor]], group: Group) -> None:
        """Go on from the logs of another number of processes: their finished episodes are dealt
        out, and the leading process counts them."""
        finished = [
            Episode(float(total), int(length))
            for state in states
            for total, length in zip(state["recent_returns"], state["recent_lengths"], strict=True)
        ]
        self.recent.clear()
        self.recent.extend(finished[group.rank :: group.size])
        self.count = sum(int(state["count"]) for state in states) if group.leads else 0
        self.begin()

    @classmethod
    def of_all(cls, own: EpisodeLog, group: Group) -> EpisodeLog:
        """The finished episodes of all processes, which must all ask for it."""
        if group.size == 1:
            return own
        log = cls(num_envs=0, newest=None)
        for count, recent in group.exchange((own.count, list(own.recent))):
            log.count += count
            log.recent.extend(recent)
        return log
