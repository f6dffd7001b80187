"""Processes that compute as one: means and sums are over all of them.

`Group` is one process by itself: there is nobody to talk to, and nothing costs anything. A group of
several is in `processes`. Whoever computes asks its group for means and knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from discorl.errors import DiscorlError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
TIMEOUT = 600.0
"""Seconds that processes wait for one another, unless told otherwise."""
_SEEDS_APART = 4_000_037


class Group:
    """This process among all, which share a computation equally."""

    rank: int = 0
    size: int = 1
    seconds: float = 0.0
    """How long this process has been at messages so far, waiting for the others included."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def owns(self, index: int) -> bool:
        """Whether number `index` of what is dealt out in turn belongs to this process."""
        return index % self.size == self.rank

    def share(self, name: str, total: int) -> int:
        """This process's part of a number that all share; DiscorlError if it cannot be split."""
        if total % self.size:
            raise DiscorlError(
                f"{name} {total}: {self.size} processes cannot share it equally; give a multiple "
                f"of {self.size}"
            )
        return total // self.size

    def seed(self, seed: int) -> int:
        """A seed of what this process draws for itself; the leading one's is the one given."""
        return seed + self.rank * _SEEDS_APART

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        return tensor

    def means(self, tensors: Sequence[Tensor], weights: Sequence[Tensor | float]) -> list[Tensor]:
        """The mean of each tensor over all processes, in one message.

        Args:
          weights: one for each tensor, [] or a number: how much of what the mean is over this
            process has.
        """
        return list(tensors)

    def largest(self, *numbers: int) -> list[int]:
        """The largest of each number, over all processes."""
        return list(numbers)

    def gather(self, value: T) -> list[T] | None:
        """Every process's value in the leading one, None elsewhere."""
        return [value]

    def exchange(self, value: T) -> list[T]:
        """Every process's value, everywhere."""
        return [value]

    def follow(self, module: Any) -> None:
        """Give all processes the leading one's tensors of a module."""

    def wait(self) -> None:
        """Wait until all processes are here."""


SOLO = Group()
"""One process by itself."""
