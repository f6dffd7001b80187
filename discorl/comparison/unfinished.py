"""A rule's run that is under way, saved now and then: cut off, it goes on from there.

`cells/under_way/NAME/step_00000400/`, where NAME is the cell's; gone when its result is written.
"""

from __future__ import annotations

import shutil
import time
import warnings
from dataclasses import replace
from pathlib import Path

from discorl.comparison.cells import Cell
from discorl.comparison.progress import UNDER_WAY
from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule
from discorl.runs.checkpoint import load_latest, save_checkpoint
from discorl.training.config import TrainConfig
from discorl.training.trainer import Trainer

Curve = list[tuple[int, float]]
"""(training steps, mean return of the newest episodes)."""

_SECONDS_BETWEEN_CHECKPOINTS = 60.0
_WAIT_AFTER_WRITING = 20.0
"""Times as long as writing took: a large replay costs at most a twentieth of the run."""


class Unfinished:
    """What is kept of one cell's run until it has ended."""

    def __init__(self, cells: Path, cell: Cell) -> None:
        self._folder = cells / UNDER_WAY / cell.name
        self._cell = cell
        self._next = time.monotonic() + _SECONDS_BETWEEN_CHECKPOINTS

    def begin(self) -> tuple[Trainer, Curve]:
        """A trainer and its curve so far: as they were saved, or at the start."""
        trainer = self._newborn()
        checkpoint = load_latest(self._folder)
        if checkpoint is None:
            return trainer, []
        try:
            trainer.restore(checkpoint)
            return trainer, [(step, value) for step, value in checkpoint.values["curve"]]
        except (DiscorlError, KeyError, TypeError, ValueError) as error:
            trainer.close()
            warnings.warn(f"{self._cell}: from the start, because {error}", stacklevel=2)
            return self._newborn(), []

    def save(self, trainer: Trainer, curve: Curve) -> None:
        """Save the run, unless that was done a moment ago. If it cannot be, the run goes on."""
        start = time.monotonic()
        checkpoint = trainer.checkpoint() if start >= self._next else None
        if checkpoint is None:
            return
        try:
            values = {**checkpoint.values, "curve": curve}
            save_checkpoint(self._folder, replace(checkpoint, values=values), keep=1)
        except DiscorlError as error:
            warnings.warn(f"{self._cell} cannot be resumed if it is cut off: {error}", stacklevel=2)
        now = time.monotonic()
        self._next = now + max(_SECONDS_BETWEEN_CHECKPOINTS, _WAIT_AFTER_WRITING * (now - start))

    def forget(self) -> None:
        """The run has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _newborn(self) -> Trainer:
        config = self._cell.config
        assert isinstance(config, TrainConfig), "a peer's run cannot be saved"
        return Trainer(config, load_rule(self._cell.rule))
