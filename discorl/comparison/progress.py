"""How far the runs of a comparison are: a small file for each that is under way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from discorl.comparison.cells import Cell
from discorl.errors import DiscorlError
from discorl.files import read_json, write_json

Told = Callable[[float, float | None], None]
"""Called by a run with the share of it that is done, and the mean return of its newest episodes."""

UNDER_WAY = "under_way"
"""The folder, beside the results, of what belongs to runs that have not ended."""
_SECONDS_BETWEEN_WRITES = 1.0


@dataclass(frozen=True)
class Progress:
    """How far one run is."""

    run: str
    """For people."""
    share: float
    """From 0 to 1."""
    mean_return: float | None
    """Of its newest episodes; None before one has ended."""

    def __str__(self) -> str:
        ending = "" if self.mean_return is None else f", return {self.mean_return:.3f}"
        return f"{self.run}: {self.share:.0%}{ending}"


class ProgressFile:
    """What a run writes; the file goes when it is left."""

    def __init__(self, folder: Path, cell: Cell) -> None:
        self._path = folder / UNDER_WAY / f"{cell.name}.json"
        self._run = str(cell)
        self._last = -_SECONDS_BETWEEN_WRITES

    def __enter__(self) -> ProgressFile:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def note(self, share: float, mean_return: float | None) -> None:
        """Say how far the run is, unless that was said a moment ago. If it cannot be written, the
        run goes on."""
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_WRITES:
            self._last = now
            with contextlib.suppress(OSError, DiscorlError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._path, asdict(Progress(self._run, share, mean_return)))


def read_progress(folder: Path) -> list[Progress]:
    """Of all runs that have said something."""
    found = []
    for path in sorted((folder / UNDER_WAY).glob("*.json")):
        try:
            found.append(Progress(**read_json(path)))
        except DiscorlError:  # It has just ended.
            continue
    return found


def forget_progress(folder: Path) -> None:
    """Remove what runs left that were killed, and the folder if nothing else is there."""
    with contextlib.suppress(OSError):
        for path in (folder / UNDER_WAY).glob("*.json"):
            path.unlink(missing_ok=True)
        (folder / UNDER_WAY).rmdir()
