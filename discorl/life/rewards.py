"""What is learned from in place of raw rewards; returns are counted before."""

from __future__ import annotations

import torch
from torch import Tensor

from discorl.envs.wrappers import RunningMoments

_DISCOUNT = 0.99
_LARGEST = 10.0
_ENTRY = "return"


class RewardScaler:
    """Divides rewards by the deviation of discounted returns seen so far, if that is above one.

    So a rule that was discovered with returns of about one can be used where returns are large.
    Small rewards are left as they are, and no reward changes its sign.
    """

    def __init__(self, num_envs: int, device: torch.device | str = "cpu") -> None:
        self._moments = RunningMoments()
        self._returns = torch.zeros(num_envs, dtype=torch.float64, device=device)

    def scale(self, rewards: Tensor, ended: Tensor) -> Tensor:
        """Take in the newest rewards [L, B] and where episodes ended; returns scaled rewards."""
        returns = []
        for reward, end in zip(rewards.double(), ended, strict=True):
            self._returns = _DISCOUNT * self._returns + reward
            returns.append(self._returns)
            self._returns = self._returns.masked_fill(end, 0)
        self._moments.update({_ENTRY: torch.cat(returns)})
        deviation = self._moments.deviation(_ENTRY)
        return (rewards / deviation.clamp(min=1)).clamp(-_LARGEST, _LARGEST).to(rewards.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """The running returns, and their moments."""
        return {"returns": self._returns, **self._moments.state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned."""
        state = dict(state)
        self._returns = state.pop("returns").to(self._returns.device)
        self._moments.load_state_dict(state)
