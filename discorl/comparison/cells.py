"""One cell of a comparison: a rule trains one agent on one environment with one seed."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from discorl.errors import DiscorlError
from discorl.files import read_json, write_json
from discorl.rules.library import load_rule
from discorl.runtime import tune_process
from discorl.training.config import TrainConfig
from discorl.training.run import check_finite
from discorl.training.trainer import Trainer

_POINTS = 100
_NAME_LENGTH = 60


@dataclass(frozen=True)
class Cell:
    """What to run."""

    label: str
    """The rule as it was given."""
    config: TrainConfig
    rule: str
    """Where the rule is loaded from: a name, or the comparison's own copy."""

    @property
    def name(self) -> str:
        """Readable, and unlike that of any other cell or of this one with other settings."""
        text = json.dumps([self.label, self.config.to_json()], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        words = file_name(f"{self.config.env}-{self.label}")[:_NAME_LENGTH]
        return f"{words}-s{self.config.seed}-{digest}"

    def __str__(self) -> str:
        return f"{self.label} on {self.config.env}, seed {self.config.seed}"


@dataclass(frozen=True)
class CellResult:
    """What a cell's run came to."""

    rule: str
    env: str
    seed: int
    final_return: float
    """Mean return of the newest 100 training episodes."""
    steps: int
    env_steps: int
    episodes: int
    seconds: float
    curve: list[tuple[int, float]]
    """(steps, mean return of the newest 100 episodes); from the first finished episode on."""
    config: dict[str, Any]


def run_cell(cell: Cell) -> CellResult:
    """Train from the beginning, on one thread; for a process of its own, which it tunes."""
    torch.set_num_threads(1)
    tune_process()
    trainer = Trainer(cell.config, load_rule(cell.rule))
    curve = _learn(trainer)
    if not curve:
        raise DiscorlError(f"no episode ended in {trainer.step} steps: raise --steps")
    return CellResult(
        rule=cell.label,
        env=cell.config.env,
        seed=cell.config.seed,
        final_return=trainer.mean_return(),
        steps=trainer.step,
        env_steps=trainer.env_steps,
        episodes=trainer.episodes,
        seconds=round(sum(trainer.seconds.values()), 3),
        curve=curve,
        config=cell.config.to_json(),
    )


def _learn(trainer: Trainer) -> list[tuple[int, float]]:
    """Train to the end; the learning curve."""
    steps = trainer.config.steps
    every = max(steps // _POINTS, 1)
    curve = []
    while trainer.step < steps:
        metrics = trainer.train_step()
        if metrics is not None:
            trainer.unlogged.append((trainer.step, metrics))
        if trainer.step % every == 0 or trainer.step == steps:
            check_finite(trainer.unlogged)
            trainer.unlogged = []
            if not math.isnan(trainer.mean_return()):
                curve.append((trainer.step, trainer.mean_return()))
    return curve


def write_cell(folder: Path, cell: Cell, result: CellResult) -> None:
    """Keep a result in the folder, atomically."""
    write_json(_path(folder, cell), asdict(result))


def read_cell(folder: Path, cell: Cell) -> CellResult | None:
    """The result of a cell that ran with these very settings, or None."""
    path = _path(folder, cell)
    if not path.exists():
        return None
    values = read_json(path)
    try:
        return CellResult(**values)
    except TypeError as error:
        raise DiscorlError(f"{path} is no result of a cell: delete it and go on") from error


def file_name(text: str) -> str:
    """The text with nothing in it that a file's name should not hold."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def _path(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.name}.json"
