"""Several processes as one: agents are dealt out to ranks, and sums are over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from discorl.errors import DiscorlError


@dataclass(frozen=True)
class Group:
    """This process among all. A single process is a group of one."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def owns(self, index: int) -> bool:
        """Whether agent `index` lives in this process."""
        return index % self.size == self.rank

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            with _explain():
                dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any] | None:
        """Every process's value in the leading one, None elsewhere."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.leads else None
        with _explain():
            dist.gather_object(value, values)
        return values

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            with _explain():
                dist.barrier()


@contextmanager
def join_group(device: torch.device) -> Iterator[Group]:
    """The group that `torchrun` set up, or a group of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group()
        return
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    try:
        yield Group(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


@contextmanager
def _explain() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise DiscorlError(
            "another process of this run died or cannot be reached. Resume from the last "
            f"checkpoint with --resume, on any number of processes. ({error})"
        ) from error
