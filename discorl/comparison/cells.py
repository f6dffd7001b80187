"""One cell of a comparison: one rule or peer, one environment, one seed; and its result file."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from discorl.comparison.peers import PeerConfig
from discorl.envs.base import EnvironmentConfig
from discorl.errors import DiscorlError
from discorl.files import read_json, write_json
from discorl.runs.folder import file_name
from discorl.training.config import TrainConfig

CURVE_POINTS = 100
"""Roughly how many points a learning curve has."""
_NAME_LENGTH = 60


@dataclass(frozen=True)
class Cell:
    """What to run."""

    label: str
    """The rule or peer as it was given."""
    config: TrainConfig | PeerConfig
    rule: str
    """Where the rule is loaded from: a name, or the comparison's own copy. Peers have none."""

    @property
    def name(self) -> str:
        """Readable, and unique to this cell and its settings."""
        text = json.dumps([self.label, self.config.to_json()], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        words = file_name(f"{self.config.env}-{self.label}")[:_NAME_LENGTH]
        return f"{words}-s{self.config.seed}-{digest}"

    def __str__(self) -> str:
        return f"{self.label} on {self.config.env}, seed {self.config.seed}"


@dataclass(frozen=True)
class CellResult:
    """The outcome of a cell's run."""

    rule: str
    env: str
    seed: int
    final_return: float
    """Mean return of the newest 100 training episodes."""
    steps: int
    """Training steps of a rule; environment steps of a peer."""
    env_steps: int
    episodes: int
    seconds: float
    curve: list[tuple[int, float]]
    """(steps, mean return of the newest 100 episodes), from the first finished episode on."""
    config: dict[str, Any]
    outcomes: dict[str, float] = field(default_factory=dict)
    """What all training episodes came to on average besides their return, where the environment
    tells it."""

    def curve_by_env_steps(self) -> list[tuple[float, float]]:
        """The curve over environment steps; all training steps take the same number of them."""
        return [(step * self.env_steps / self.steps, value) for step, value in self.curve]

    def mean_along_curve(self) -> float:
        """The mean return along the whole run, as the newest 100 episodes had it; until the first
        episode ended, that of the first."""
        steps, values = zip(*self.curve, strict=True)
        at = np.linspace(0, self.steps, 10 * CURVE_POINTS + 1)
        return float(np.interp(at, steps, values).mean())


def write_cell(folder: Path, cell: Cell, result: CellResult) -> None:
    """Save a result in the folder, atomically."""
    write_json(_path(folder, cell), asdict(result))


def keep_cell(folder: Path, cell: Cell, result: CellResult) -> None:
    """Save a result unless whoever ran the cell did: its disk may be another."""
    if not _path(folder, cell).exists():
        write_cell(folder, cell, result)


def read_cell(folder: Path, cell: Cell) -> CellResult | None:
    """The result of a cell that ran with exactly these settings, or None.

    A version of this package that had fewer settings counts as one with their defaults.
    """
    path = _path(folder, cell)
    if not path.exists():
        return _read_earlier(folder, cell)
    result = _read(path)
    if (result.rule, result.env, result.seed) != (cell.label, cell.config.env, cell.config.seed):
        raise DiscorlError(f"{path} is no result of a cell: delete it and resume")
    return result


def _read_earlier(folder: Path, cell: Cell) -> CellResult | None:
    """The result under the name that an earlier version gave the same cell, if there is one."""
    wanted = _plain(cell.config.to_json())
    begins = cell.name.rpartition("-")[0]
    for path in sorted(folder.glob(f"{escape(begins)}-*.json")):
        result = _read(path)
        if result.rule == cell.label and _plain(_with_defaults(cell, result.config)) == wanted:
            return result
    return None


def _with_defaults(cell: Cell, values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the defaults of settings that it does not know."""
    if isinstance(cell.config, TrainConfig):
        return TrainConfig().to_json() | values
    environment = asdict(EnvironmentConfig()) | values.get("environment", {})
    return values | {"environment": environment}


def _plain(values: dict[str, Any]) -> Any:
    """As they come back from a file."""
    return json.loads(json.dumps(values))


def salvage_cells(folder: Path) -> tuple[list[CellResult], list[str]]:
    """Every result in the folder that can be read, and what is wrong with the other files."""
    results, problems = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            results.append(_read(path))
        except DiscorlError as error:
            problems.append(str(error))
    return results, problems


def _read(path: Path) -> CellResult:
    values = read_json(path)
    try:
        result = CellResult(**values)
        _check(result)
    except (TypeError, ValueError) as error:
        raise DiscorlError(f"{path} is no result of a cell: delete it and resume") from error
    return result


def _check(result: CellResult) -> None:
    """Raise TypeError or ValueError unless everything is of its kind."""
    counts = (result.steps, result.env_steps, result.episodes)
    if not all(type(count) is int for count in counts) or result.steps < 1:
        raise ValueError("counts that are none")
    if not all(map(_is_number, (*counts, result.final_return, result.seconds))):
        raise ValueError("numbers that are none")
    if not result.curve or not isinstance(result.config, dict):
        raise ValueError("no curve or no configuration")
    if not isinstance(result.outcomes, dict) or not all(map(_is_number, result.outcomes.values())):
        raise ValueError("outcomes that are none")
    for step, value in result.curve:
        if not _is_number(step) or not _is_number(value):
            raise ValueError("a curve that is none")


def _is_number(value: Any) -> bool:
    """Whether arrays can hold it: finite, and no integer beyond 64 bits."""
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def _path(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.name}.json"
