"""A run folder as far as it can be read: what is missing or damaged is told, not raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.runs.folder import CONFIG_FILE, RESULT_FILE, Kind, kind_of, read_settings
from discorl.runs.metrics import METRICS_FILE, salvage_metrics
from discorl.runs.plots import describe_run, experiment_settings, is_number

_DEPTH = 4
"""Folders of runs may hold folders of runs, so deep."""
_TELLING = ("env", "envs", "rule", "rules", "meta_steps")
"""Settings that only a run has: other programs write a `config.json` too."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class RunData:
    """What a run folder holds, without the checkpoints."""

    folder: Path
    kind: Kind
    config: dict[str, Any]
    """Its settings; empty if they cannot be read."""
    records: list[dict[str, Any]]
    result: dict[str, Any]
    problems: tuple[str, ...]
    """What is missing or damaged, in words."""

    @property
    def env(self) -> str:
        """The environment, or all of them."""
        return describe_run(self.config, self.folder.name)[0]

    @property
    def rule(self) -> str:
        """The rule, or what it was made from."""
        if self.kind == "distil":
            return f"distilled from {self.config.get('teacher', '?')}"
        return describe_run(self.config, self.folder.name)[1]

    @property
    def settings(self) -> dict[str, Any]:
        """What all runs of its experiment share."""
        return experiment_settings(self.config)

    @property
    def step(self) -> int:
        """Its newest recorded step or meta-step."""
        return max((record["step"] for record in self.records), default=0)

    @property
    def steps(self) -> int | None:
        """How many it was to take, if its settings tell."""
        steps = self.config.get("steps" if self.kind == "train" else "meta_steps")
        return steps if type(steps) is int else None

    @property
    def finished(self) -> bool:
        """Whether it has a result, and was not resumed since."""
        done = self.result.get("steps" if self.kind == "train" else "meta_steps")
        return type(done) is int and self.step <= done

    def newest(self, metric: str) -> float | None:
        """The last record of a metric."""
        values = [r[metric] for r in self.records if is_number(r.get(metric))]
        return values[-1] if values else None


def read_run(folder: Path) -> RunData:
    """Whatever can be read; DiscorlError if the folder holds no run at all."""
    problems: list[str] = []
    if not (folder / CONFIG_FILE).exists():
        read_settings(folder)  # Raises, and says why.
    config = attempt(lambda: read_settings(folder), problems) or {}
    kind = kind_of(config) if config else _guess_kind(folder)
    if kind in ("compare", "tune"):
        return RunData(folder, kind, config, [], {}, tuple(problems))
    records, damaged = attempt(lambda: salvage_metrics(folder), problems) or ([], [])
    if damaged:
        some = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
        problems.append(f"{METRICS_FILE} is damaged in line {some}, left out here.")
    result = attempt(lambda: _read_result(folder), problems) or {}
    run = RunData(folder, kind, config, records, result, tuple(problems))
    return RunData(folder, kind, config, records, result, (*problems, *_missing(run)))


def attempt(work: Callable[[], Value], problems: list[str]) -> Value | None:
    """What `work` returns; None if it raises DiscorlError, which is noted as a problem."""
    try:
        return work()
    except DiscorlError as error:
        problems.append(f"{str(error).rstrip('.')}.")
        return None


def expand_folders(folders: list[Path]) -> list[Path]:
    """The run folders; one that holds no run but runs in folders stands for them."""
    found: list[Path] = []
    for folder in folders:
        inside = [folder] if (folder / CONFIG_FILE).exists() else list(find_runs(folder))
        if not inside:
            read_settings(folder)  # Raises, and says why.
        found += inside
    return list(dict.fromkeys(found))


def find_runs(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Run folders in a folder, in order of their names; symbolic links are not followed."""
    try:
        entries = sorted(e for e in folder.iterdir() if not e.name.startswith("."))
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() or not entry.is_dir():
            continue
        if (entry / CONFIG_FILE).is_file():
            if _is_run(entry):
                yield entry
        elif depth > 1:
            yield from find_runs(entry, depth - 1)


def _is_run(folder: Path) -> bool:
    try:
        return any(name in read_settings(folder) for name in _TELLING)
    except DiscorlError:  # Damaged: its report says so.
        return True


def _guess_kind(folder: Path) -> Kind:
    """By the files, where the settings cannot be read."""
    if (folder / "cells").is_dir():
        return "compare"
    if (folder / "teacher.safetensors").exists():
        return "distil"
    return "discover" if (folder / "evaluations.json").exists() else "train"


def _read_result(folder: Path) -> dict[str, Any]:
    path = folder / RESULT_FILE
    values = read_json(path) if path.exists() else {}
    if not isinstance(values, dict):
        raise DiscorlError(f"{path}: expected an object")
    return values


def _missing(run: RunData) -> list[str]:
    what = "step" if run.kind == "train" else "meta-step"
    if not run.records:
        return ["It has no metrics yet: nothing is drawn."]
    if run.finished:
        return []
    absent = "evaluation and time shares are" if run.kind == "train" else "evaluation is"
    planned = "" if run.steps is None else f" of {run.steps:,}"
    return [
        f"It has not finished: {what} {run.step:,}{planned}. The final {absent} missing. "
        f"If it is not under way, go on with: discorl resume {run.folder}"
    ]
