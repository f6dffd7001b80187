"""Stacks of consecutive frames, each frame kept once.

An observation of S frames repeats S - 1 of the step before it. `FrameRing` keeps the newest frame
of every step and builds the stacks again, to the bit, when they are read.
"""

from __future__ import annotations

import torch
from torch import Tensor


class FrameRing:
    """Trajectories of stacks [S, ...], the newest frame last, in a ring of `capacity` slots.

    Trajectory n is in slot n % capacity. With B trajectories in each rollout, it usually continues
    trajectory n - B: there lie the frames that its first stacks show besides their newest. Where it
    does not, because a rollout in between was not stored, those frames are kept with it. Frames
    that a stack does not show, since the episode had not begun, are zeros in it.

    Args:
      newest: [L, capacity, ...], the newest frame of every step, which whoever owns it fills with
        what `add` returns.
      stack: S, from 2 to L + 1.
    """

    def __init__(self, newest: Tensor, stack: int) -> None:
        self._newest = newest
        self._older = stack - 1
        steps, self._capacity = newest.shape[:2]
        self._shown = torch.zeros(
            steps, self._capacity, self._older, dtype=torch.bool, device=newest.device
        )
        """Which older frames each stack shows, the oldest first."""
        self._count = 0
        """Trajectories stored so far, also those that were overwritten."""
        self._batch = 0
        """Trajectories in a rollout; 0 before the first."""
        self._tails = newest.new_zeros(self._older, 0, *newest.shape[2:])
        """[S - 1, B, ...]: the last frames of the newest trajectories that were overwritten."""
        self._kept: dict[int, Tensor] = {}
        """Slot -> the frames [S - 1, ...] before a trajectory that does not continue another."""

    def add(self, stacks: Tensor) -> Tensor:
        """Take in the next B trajectories [L, B, S, ...]; returns their newest frames [L, B, ...].

        Raises ValueError unless every stack can be built again.
        """
        batch = stacks.shape[1]
        if self._batch not in (0, batch):
            raise ValueError(f"frames: expected {self._batch} trajectories, got {batch}")
        if not self._batch:
            self._batch = batch
            self._tails = self._newest.new_zeros(self._older, batch, *self._newest.shape[2:])
        numbers = torch.arange(batch, device=stacks.device) + self._count
        newest, before = stacks[:, :, -1], stacks[0, :, :-1].transpose(0, 1)
        shown = self._which_are_shown(stacks, torch.cat([before, newest]))
        continues = _rows_equal(before, self._leads(numbers)) | ~shown[0].transpose(0, 1)
        slots = numbers % self._capacity
        for row, slot in enumerate(slots.tolist()):
            self._kept.pop(slot, None)
            if not bool(continues[:, row].all()):
                self._kept[slot] = before[:, row].clone()
        lost = numbers >= self._capacity
        streams = (numbers - self._capacity)[lost] % batch
        self._tails[:, streams] = self._newest[-self._older :, slots[lost]]
        self._shown[:, slots] = shown
        self._count += batch
        return newest

    def stacks(self, slots: Tensor) -> Tensor:
        """The stacks [L, N, S, ...] of the trajectories in N slots."""
        newest = self._newest.index_select(1, slots)
        rounds = (self._count - 1 - slots) // self._capacity
        leads = self._leads(slots + rounds * self._capacity)
        if self._kept:
            for row, slot in enumerate(slots.tolist()):
                if slot in self._kept:
                    leads[:, row] = self._kept[slot]
        frames = torch.cat([leads, newest])
        shown = self._shown.index_select(1, slots)
        steps = len(newest)
        stacks = torch.stack([frames[k : k + steps] for k in range(self._older + 1)], dim=2)
        stacks[:, :, :-1][~shown] = 0
        return stacks

    def state_dict(self) -> dict[str, Tensor]:
        """Everything but the newest frames."""
        size = min(self._count, self._capacity)
        kept = [self._kept[slot] for slot in self._kept]
        return {
            "shown": self._shown[:, :size].clone(),
            "tails": self._tails.clone(),
            "numbers": torch.tensor([self._count, self._batch]),
            "kept_slots": torch.tensor(list(self._kept), dtype=torch.int64),
            "kept_frames": torch.stack(kept) if kept else self._tails.new_zeros(0),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned, with the same newest frames."""
        device = self._newest.device
        self._count, self._batch = (int(n) for n in state["numbers"])
        self._shown[:, : min(self._count, self._capacity)] = state["shown"]
        self._tails = state["tails"].to(device, copy=True)
        frames = state["kept_frames"].to(device, copy=True)
        self._kept = dict(zip(state["kept_slots"].tolist(), frames, strict=True))

    def _which_are_shown(self, stacks: Tensor, frames: Tensor) -> Tensor:
        """[L, B, S - 1] booleans: which of the frames [S - 1 + L, B, ...] before it a stack shows.

        All zeros count as not shown. Raises ValueError if a stack shows anything else.
        """
        shown = []
        for age in range(self._older, 0, -1):
            given = stacks[:, :, -1 - age]
            shown.append((given != 0).flatten(2).any(-1))
            start = self._older - age
            follows = _rows_equal(given, frames[start : start + len(stacks)])
            if not bool((follows | ~shown[-1]).all()):
                raise ValueError("frames: a stack shows frames that are not those before it")
        return torch.stack(shown, dim=-1)

    def _leads(self, numbers: Tensor) -> Tensor:
        """The last frames [S - 1, N, ...] of the trajectories that others would continue."""
        before = numbers - self._batch
        leads = self._newest[-self._older :].index_select(1, before % self._capacity)
        lost = before < self._count - self._capacity
        leads[:, lost] = self._tails[:, before[lost] % self._batch]
        return leads


def _rows_equal(one: Tensor, other: Tensor) -> Tensor:
    """[N, M] booleans: where frames [N, M, ...] are the same."""
    return (one == other).flatten(2).all(-1)
