"""A group of several processes, started by torchrun or by the user, joined by torch.distributed."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl.group import SOLO, TIMEOUT, Group
from discorl.presence import FAILED, GAVE_UP, Presence

T = TypeVar("T")
_meetings = itertools.count()


def group_size() -> int:
    """How many processes this one computes with, itself included."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))


def follows() -> bool:
    """Whether another process of the group leads, and speaks for this one."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() > 0
    return group_size() > 1 and int(os.environ.get("RANK", "0")) > 0


def launcher() -> int | None:
    """The process id of the `torchrun` that started this process; None if none did."""
    return os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None


def local_device(device: torch.device) -> torch.device:
    """The device that is meant in this process: `cuda` is another GPU in each."""
    if str(device) != "cuda" or group_size() == 1:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", torch.cuda.current_device())))


@contextmanager
def join_group(device: torch.device | str = "cpu", timeout: float = TIMEOUT) -> Iterator[Group]:
    """The processes that `torchrun` started, or that are joined already; else a group of one.

    Args:
      device: where they compute; the sums use NCCL on GPUs, gloo elsewhere.
      timeout: seconds that they wait for one another before they give up.
    """
    if group_size() == 1:
        yield SOLO
        return
    if dist.is_initialized():
        yield ProcessGroup(dist.get_rank(), dist.get_world_size())
        return
    device = local_device(torch.device(device))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Not every PyTorch has it.
    from torch.distributed.rendezvous import rendezvous

    wait = timedelta(seconds=timeout)
    try:
        place, rank, size = next(rendezvous("env://", timeout=wait))
        # Several runs in a row meet at one place, and so do processes that a launcher restarted.
        # They must not find what was left there before.
        lives = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        prefix = f"discorl_{lives}_{next(_meetings)}"
        store = dist.PrefixStore(prefix, place)  # type: ignore[attr-defined]
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=wait,
        )
    except RuntimeError as error:
        raise DiscorlError(
            f"the {group_size()} processes did not meet within {timeout:g} seconds: one of them "
            f"was not started, died or cannot be reached. ({_first_line(error)})"
        ) from error
    presence = Presence(store, rank, size, timeout, launcher())
    try:
        yield ProcessGroup(rank, size, presence)
    except BaseException:
        presence.leave(FAILED)
        raise
    finally:
        presence.stop()
        dist.destroy_process_group()


class ProcessGroup(Group):
    """The processes that torch.distributed has joined."""

    def __init__(self, rank: int, size: int, presence: Presence | None = None) -> None:
        self.rank = rank
        self.size = size
        self.seconds = 0.0
        self._presence = presence

    def sum(self, tensor: Tensor) -> Tensor:
        """See `Group.sum`."""
        with self._together():
            dist.all_reduce(tensor)
        return tensor

    def means(self, tensors: Sequence[Tensor], weights: Sequence[Tensor | float]) -> list[Tensor]:
        """See `Group.means`: what is sent are the sums, and the weights after them."""
        like = tensors[0]
        given = torch.stack([w if isinstance(w, Tensor) else like.new_full((), w) for w in weights])
        parts = [(t * w).flatten() for t, w in zip(tensors, given, strict=True)]
        flat = self.sum(torch.cat([*parts, given]))
        *sums, totals = flat.split([*(t.numel() for t in tensors), len(given)])
        return [
            (total / weight).view(t.shape).to(t.dtype)
            for t, total, weight in zip(tensors, sums, totals, strict=True)
        ]

    def largest(self, *numbers: int) -> list[int]:
        """See `Group.largest`."""
        cpu = "gloo" in dist.get_backend_config()
        tensor = torch.tensor(numbers, device="cpu" if cpu else "cuda")
        with self._together():
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        found: list[int] = tensor.tolist()
        return found

    def gather(self, value: T) -> list[T] | None:
        """See `Group.gather`."""
        values: list[Any] | None = [None] * self.size if self.leads else None
        with self._together():
            dist.gather_object(value, values)
        return values

    def exchange(self, value: T) -> list[T]:
        """See `Group.exchange`."""
        values: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def follow(self, module: nn.Module) -> None:
        """See `Group.follow`."""
        with self._together(), torch.no_grad():
            for tensor in module.state_dict().values():
                if isinstance(tensor, Tensor):
                    dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        """See `Group.wait`."""
        with self._together():
            dist.barrier()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Counts what all processes do together, and says who is missing if it fails."""
        if self._presence is not None:
            self._presence.count += 1
        started = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            who = "another process of this run died, hangs or cannot be reached"
            if self._presence is not None:
                who = self._presence.missing() or who
                self._presence.leave(GAVE_UP)
            raise DiscorlError(
                f"process {self.rank} of {self.size} gave up: {who}. Resume from the last "
                "checkpoint with --resume, on any number of processes. "
                f"({_first_line(error)})"
            ) from error
        finally:
            self.seconds += time.perf_counter() - started


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
