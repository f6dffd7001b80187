"""Whether a rule still teaches if its agents live otherwise than it was tuned for.

One thing at a time is changed in how agents live: learning rate, size of the network, share of
replay, optimiser. Each is an entrant of a comparison, so the runs are those of `discorl compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discorl.analysis.config import AnalyseConfig
from discorl.analysis.responses import Row
from discorl.analysis.subjects import Candidate, Told
from discorl.comparison.cells import Cell, CellResult
from discorl.comparison.config import SETTABLE, CompareConfig
from discorl.comparison.run import ComparisonInterrupted, start_comparison
from discorl.comparison.summary import Summary
from discorl.engines import Failure
from discorl.library.catalogue import name_rule, save_rule
from discorl.runs.folder import file_name
from discorl.settings import flat_settings, join_spec, split_spec
from discorl.training.config import TrainConfig

OWN = "own settings"
RATE, SIZE, REPLAY, OPTIMISER = "learning rate", "network size", "replay share", "optimiser"
SWEEPS = (RATE, SIZE, REPLAY, OPTIMISER)
_RATES = (0.1, 0.3, 1.0, 3.0, 10.0)
_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
_SHARES = (0.0, 0.25, 0.5, 0.75)
_SIZED = ("torso", "model_size", "head_hidden")


@dataclass(frozen=True)
class Variant:
    """A way to live."""

    sweep: str
    value: float | str
    """What is on the figure's axis: a number, or words for an optimiser."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Training settings that are other than the agent's own."""


def variants(life: TrainConfig) -> list[Variant]:
    """The agent's own way to live first, and again in each sweep that it is a point of."""
    own = flat_settings(life)
    found = [Variant(OWN, OWN)]
    for factor in _RATES:
        rate = float(f"{factor * own['learning_rate']:.6g}")
        found.append(Variant(RATE, rate, {"learning_rate": rate}))
    for factor in _SIZES:
        sizes = {name: _scaled(own[name], factor) for name in _SIZED}
        found.append(Variant(SIZE, factor, sizes))
    shares = {*_SHARES, own["replay_fraction"]} - {1.0}
    # The newest rollout is always learned from, and replay comes on top of it.
    found += [
        Variant(REPLAY, share, {"replay_fraction": share, "batch_size": None})
        for share in sorted(shares)
    ]
    found += [Variant(OPTIMISER, words, other) for words, other in _optimisers(life.steps).items()]
    return [_without_own(variant, own) for variant in found]


def _optimisers(steps: int) -> dict[str, dict[str, Any]]:
    return {
        "linear decay": {"learning_rate_schedule": "linear"},
        "cosine decay": {"learning_rate_schedule": "cosine"},
        "warm-up": {"warmup_updates": max(steps // 5, 1)},
        "weight decay 0.01": {"weight_decay": 0.01},
        "weight decay 0.1": {"weight_decay": 0.1},
        "steps up to 0.1": {"max_step": 0.1},
        "steps up to 10": {"max_step": 10.0},
    }


def _scaled(size: Any, factor: float) -> Any:
    if isinstance(size, tuple):
        return tuple(_scaled(part, factor) for part in size)
    return max(round(size * factor), 1)


def _without_own(variant: Variant, own: Mapping[str, Any]) -> Variant:
    other = {name: value for name, value in variant.settings.items() if own[name] != value}
    return Variant(variant.sweep, variant.value, other)


def robustness(
    candidates: Sequence[Candidate], config: AnalyseConfig, folder: Path, told: Told
) -> tuple[list[Row], list[str]]:
    """A comparison for each rule, in a folder of its own; a random rule is left as it is.

    Returns:
      A row for each point of each sweep and each seed, and what is wrong with runs that failed.
    """
    rows: list[Row] = []
    problems: list[str] = []
    for candidate in candidates:
        ways = variants(candidate.config)
        ways = ways[:1] if candidate.null else ways
        place = folder / file_name(candidate.label)
        plan, labels = _plan(candidate, ways, config, place)
        try:
            told_by = _Told(told, f"robustness of {candidate.label}: runs")
            summary = start_comparison(plan, place, observer=told_by)
        except ComparisonInterrupted as stop:
            raise KeyboardInterrupt from stop
        for way, label in zip(ways, labels, strict=True):
            rows += _rows(candidate.label, way, summary.groups[label, plan.envs[0]].runs)
        problems += _problems(summary)
    return rows, problems


def _plan(
    candidate: Candidate, ways: Sequence[Variant], config: AnalyseConfig, place: Path
) -> tuple[CompareConfig, list[str]]:
    """A comparison of all ways, and what each is called in it."""
    name, texts = split_spec(_source(candidate, place))
    labels = [join_spec(name, texts | _texts(way.settings)) for way in ways]
    rules = tuple(dict.fromkeys(labels))
    plan = CompareConfig(rules, (config.env,), config.seeds, config.steps)
    preset = flat_settings(plan.train_config(plan.entrants()[0], config.env, config.seed))
    own = flat_settings(candidate.config)
    other = {k: own[k] for k in SETTABLE if own[k] != preset[k]}
    shared = tuple(f"{key}={text}" for key, text in _texts(other).items())
    return CompareConfig(rules, (config.env,), config.seeds, config.steps, set=shared), labels


def _source(candidate: Candidate, place: Path) -> str:
    """What a comparison reads as this rule."""
    if isinstance(candidate.named, str | Path):
        return str(candidate.named)
    if not candidate.rule.params:
        return name_rule(candidate.rule)
    path = place.with_name(f"{place.name}.safetensors")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_rule(candidate.rule, path)
    return str(path)


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _rows(rule: str, way: Variant, runs: Sequence[CellResult]) -> list[Row]:
    changed = " ".join(f"{name}={text}" for name, text in _texts(way.settings).items())
    return [
        {
            "rule": rule,
            "sweep": way.sweep,
            "value": way.value,
            "own": not way.settings,
            "settings": changed,
            "seed": run.seed,
            "final_return": run.final_return,
            "mean_along_curve": run.mean_along_curve(),
        }
        for run in runs
    ]


def _problems(summary: Summary) -> list[str]:
    return [f"robustness: {cell} failed: {failure.error}" for cell, failure in summary.failed]


class _Told:
    """Tells how many runs of a comparison have finished."""

    def __init__(self, told: Told, what: str) -> None:
        self._told, self._what = told, what
        self._done = self._cells = 0

    def preparing(self, what: str) -> None:
        pass

    def start(self, title: str, cells: int, done: int) -> None:
        self._done, self._cells = done, cells
        self._tell()

    def finished(self, cell: Cell, outcome: CellResult | Failure) -> None:
        self._done += 1

    def waiting(self, under_way: object) -> None:
        self._tell()

    def _tell(self) -> None:
        self._told(self._what, self._done, self._cells)
