"""A run as a person meets it: what it shows, and how it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol


class Interrupted(Exception):
    """A signal asked the run to stop; a checkpoint was made."""

    def __init__(self, signum: int, folder: Path, step: int) -> None:
        super().__init__(f"stopped at step {step} by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum
        self.folder = folder
        self.step = step


@dataclass(frozen=True)
class Progress:
    """What there is to show at a log record."""

    step: int
    steps: int
    metrics: dict[str, float]


class Observer(Protocol):
    """Shows a run to a person."""

    def start(self, title: str, steps: int, notes: list[str]) -> None:
        """The run begins, or goes on."""
        ...

    def progress(self, progress: Progress) -> None:
        """A record was written."""
        ...

    def message(self, text: str) -> None:
        """Something takes a while, or came out."""
        ...


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of dying; a second Ctrl-C ends at once."""
    received: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        if received and signum == signal.SIGINT:
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
