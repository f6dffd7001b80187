"""A run as a person sees it: what it shows, who is told, and how it is stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Self

from discorl.group import Group
from discorl.processes import group_size

_SECONDS_BETWEEN_BEATS = 1.0


class Interrupted(Exception):
    """A signal asked the run to stop; a checkpoint was made."""

    def __init__(self, signum: int, folder: Path, step: int) -> None:
        super().__init__(f"stopped at step {step} by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum
        self.folder = folder
        self.step = step


@dataclass(frozen=True)
class Progress:
    """How far a run has come, at a record of its metrics."""

    step: int
    steps: int
    metrics: dict[str, float]
    """The record, by the names in docs/metrics.md."""
    folder: Path = Path()
    make_agent: Callable[[], Any] | None = field(default=None, repr=False)

    @property
    def agent(self) -> Any:
        """The agent as it is now, in training runs: it can act, and be saved."""
        return None if self.make_agent is None else self.make_agent()


Callback = Callable[[Progress], bool | None]
"""Called after each record; True ends the run there, with its evaluation and all files."""


def seen_enough(callbacks: Sequence[Callback], progress: Progress) -> bool:
    """Tell every callback; returns whether one of them ends the run."""
    answers = [callback(progress) for callback in callbacks]
    return any(answers)


class Observer:
    """Shows a run to a person, between being entered and left. This one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, title: str, steps: int, notes: list[str]) -> None:
        """The run begins, or is resumed."""

    def progress(self, progress: Progress) -> None:
        """A record was written."""

    def evaluating(self, what: str, done: int, total: int) -> None:
        """An evaluation is under way: `done` of `total` episodes or updates."""

    def message(self, text: str) -> None:
        """Something takes a while, or has a result."""


class Turn:
    """The leading process works while the others wait; a signal to any of them reaches all.

    Args:
      stop: signals to this process, as `stop_signals` collects them.
    """

    def __init__(self, group: Group, stop: list[int]) -> None:
        self._group, self._stop = group, stop
        self._last = time.monotonic()
        self.signum = 0
        """The signal that a process got; 0 if none did. The same in all of them after `end`."""

    def beat(self) -> bool:
        """For whoever works, often: whether a signal asks for an end. Waiting processes hear that
        the work goes on, however long it takes."""
        if self._group.size == 1:
            self.signum = self._own()
        elif time.monotonic() - self._last >= _SECONDS_BETWEEN_BEATS:
            self._meet(working=True)
            self._last = time.monotonic()
        return self.signum > 0

    def end(self) -> None:
        """All call this: the leading process when its work is done, the others to wait for that."""
        if self._group.size > 1:
            while self._meet(working=False):
                pass

    def _meet(self, working: bool) -> bool:
        goes_on, signum = self._group.largest(int(working), self._own())
        self.signum = self.signum or signum
        return goes_on > 0

    def _own(self) -> int:
        return self._stop[0] if self._stop else 0


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of dying; a second Ctrl-C ends at once.

    Not in a group of processes: there one Ctrl-C comes twice, from the terminal and from whoever
    started them.
    """
    received: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        if received and signum == signal.SIGINT and group_size() == 1:
            raise KeyboardInterrupt
        received.append(signum)

    previous = {}
    for signum in (signal.SIGINT, signal.SIGTERM):
        try:
            previous[signum] = signal.signal(signum, note)
        except ValueError:  # Not the main thread: the caller keeps its own handlers.
            break
    try:
        yield received
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
