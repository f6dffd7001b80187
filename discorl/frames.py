"""Stacks of consecutive frames, each frame kept once.

An observation of S frames repeats S - 1 of the step before it. `FrameRing` keeps the newest frame
of every step and builds the stacks again, to the bit, when they are read.
"""

from __future__ import annotations

import torch
from torch import Tensor


class FrameRing:
    """Trajectories of stacks [S, ...], the newest frame last, in a ring of `capacity` slots.

    Trajectory n is in slot n % capacity. With B trajectories in each rollout, it continues
    trajectory n - B: there lie the frames that its first stacks show besides their newest. Frames
    that a stack does not show, since the episode had not begun, are zeros in it.

    Args:
      newest: [L, capacity, ...], the newest frame of every step, which the ring fills.
      stack: S, from 2 to L + 1.
    """

    def __init__(self, newest: Tensor, stack: int) -> None:
        self._newest = newest
        self._older = stack - 1
        steps, capacity = newest.shape[:2]
        self._capacity = capacity
        self._shown = torch.zeros(
            steps, capacity, self._older, dtype=torch.bool, device=newest.device
        )
        """Which older frames each stack shows, the oldest first."""
        self._count = 0
        """Trajectories stored so far, also those that were overwritten."""
        self._batch = 0
        """Trajectories in a rollout; 0 before the first."""
        self._tails = newest.new_zeros(0)
        """[S - 1, B, ...]: the last frames of the newest trajectories that were overwritten, or
        those before the first ones."""

    def add(self, stacks: Tensor) -> Tensor:
        """Take in the next B trajectories [L, B, S, ...]; returns their newest frames [L, B, ...].

        Raises ValueError unless every stack can be built again.
        """
        batch = stacks.shape[1]
        if self._batch not in (0, batch):
            raise ValueError(f"frames: expected {self._batch} trajectories, got {batch}")
        if not self._batch:
            self._batch = batch
            self._tails = stacks[0, :, :-1].transpose(0, 1).clone()
        numbers = torch.arange(batch, device=stacks.device) + self._count
        newest = stacks[:, :, -1]
        frames = torch.cat([self._leads(numbers), newest])
        steps = len(stacks)
        shown = []
        for age in range(self._older, 0, -1):
            given = stacks[:, :, -1 - age].flatten(2)
            before = frames[self._older - age : self._older - age + steps].flatten(2)
            shown.append((given != 0).any(-1))
            if not bool(((given == before).all(-1) | ~shown[-1]).all()):
                raise ValueError("frames: a stack shows frames that are not those before it")
        slots = numbers % self._capacity
        lost = numbers >= self._capacity
        streams = (numbers - self._capacity)[lost] % batch
        self._tails[:, streams] = self._newest[-self._older :, slots[lost]]
        self._shown[:, slots] = torch.stack(shown, dim=-1)
        self._count += batch
        return newest

    def stacks(self, slots: Tensor) -> Tensor:
        """The stacks [L, N, S, ...] of the trajectories in N slots."""
        newest = self._newest.index_select(1, slots)
        rounds = (self._count - 1 - slots) // self._capacity
        frames = torch.cat([self._leads(slots + rounds * self._capacity), newest])
        shown = self._shown.index_select(1, slots)
        steps = len(newest)
        stacks = torch.stack([frames[k : k + steps] for k in range(self._older + 1)], dim=2)
        stacks[:, :, :-1][~shown] = 0
        return stacks

    def state_dict(self) -> dict[str, Tensor]:
        """Everything but the newest frames."""
        size = min(self._count, self._capacity)
        return {
            "shown": self._shown[:, :size].clone(),
            "tails": self._tails.clone(),
            "numbers": torch.tensor([self._count, self._batch]),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned, with the same newest frames."""
        self._count, self._batch = (int(n) for n in state["numbers"])
        self._shown[:, : min(self._count, self._capacity)] = state["shown"]
        self._tails = state["tails"].to(self._newest.device, copy=True)

    def _leads(self, numbers: Tensor) -> Tensor:
        """The frames [S - 1, N, ...] before trajectories."""
        before = numbers - self._batch
        leads = self._newest[-self._older :].index_select(1, before % self._capacity)
        lost = before < max(self._count - self._capacity, 0)
        leads[:, lost] = self._tails[:, before[lost] % self._batch]
        return leads
