"""What is learned from in place of raw rewards; returns are counted before."""

from __future__ import annotations

import torch
from torch import Tensor

from discorl.envs.wrappers import RunningMoments

_DISCOUNT = 0.99
_LARGEST = 10.0
_ENTRY = "return"


class RewardScaler:
    """Knows the deviation of discounted returns seen so far, and scales rewards by it.

    A rule that knows returns of a certain size can then be used where they have another. No reward
    changes its sign.
    """

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        moments: RunningMoments | None = None,
    ) -> None:
        self._moments = RunningMoments() if moments is None else moments
        self._returns = torch.zeros(num_envs, dtype=torch.float64, device=device)

    def observe(self, rewards: Tensor, ended: Tensor) -> None:
        """Take in the newest rewards [L, B] and where episodes ended."""
        returns = []
        for reward, end in zip(rewards.double(), ended, strict=True):
            self._returns = _DISCOUNT * self._returns + reward
            returns.append(self._returns)
            self._returns = self._returns.masked_fill(end, 0)
        self._moments.update({_ENTRY: torch.cat(returns)})
        self._moments.share()

    def shrink(self, rewards: Tensor) -> Tensor:
        """Rewards divided by the deviation of returns where that is above one, else unchanged."""
        deviation = self._moments.deviation(_ENTRY)
        return (rewards / deviation.clamp(min=1)).clamp(-_LARGEST, _LARGEST).to(rewards.dtype)

    def normalize(self, rewards: Tensor, deviation: float) -> Tensor:
        """Rewards on the scale where returns have this deviation; unchanged if they never vary."""
        found = self._moments.deviation(_ENTRY)
        factor = torch.where(found > 0, deviation / found, 1.0)
        largest = _LARGEST * deviation
        return (rewards * factor).clamp(-largest, largest).to(rewards.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """The running returns, and their moments."""
        return {"returns": self._returns, **self._moments.state_dict()}

    def inherit(self, state: dict[str, Tensor]) -> None:
        """Know the deviation that another process's `state_dict` tells; no returns are running."""
        self._moments.load_state_dict({k: v for k, v in state.items() if k != "returns"})

    def begin(self) -> None:
        """All copies begin new episodes, which have earned nothing yet."""
        self._returns = torch.zeros_like(self._returns)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned."""
        state = dict(state)
        self._returns = state.pop("returns").to(self._returns.device)
        self._moments.load_state_dict(state)
