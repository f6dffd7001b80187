"""A comparison on disk: its cells on an engine, and their results.

`runs/NAME/` holds `config.json`, `rules/` (copies of the discovered ones), `environments.json`
(what scores 0 and 1 are), `cells/` (a file for each finished run), and at the end `results.json`,
`table.md`, `curves.png` and `scores.png`.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from discorl.comparison.anchors import Anchors, measure_anchors
from discorl.comparison.cells import (
    Cell,
    CellResult,
    keep_cell,
    read_cell,
)
from discorl.comparison.config import CompareConfig
from discorl.comparison.peers import PeerConfig
from discorl.comparison.pictures import plot_learning, plot_scores
from discorl.comparison.progress import Progress, forget_progress, read_progress
from discorl.comparison.report import write_markdown
from discorl.comparison.runners import finish_cell
from discorl.comparison.stable_baselines import check_peer
from discorl.comparison.summary import Summary, summarise
from discorl.engines import Engine, Failure, make_engine, run_calls
from discorl.envs.registry import make_environment
from discorl.errors import DiscorlError
from discorl.files import read_json, write_json
from discorl.library.catalogue import load_rule, parameter_count, save_rule
from discorl.rules.base import UpdateRule
from discorl.runs.folder import (
    CONFIG_FILE,
    file_name,
    new_folder,
    read_settings,
    require_kind,
    writing_to,
)
from discorl.runs.session import Interrupted, stop_signals
from discorl.settings import flag
from discorl.training.config import TrainConfig
from discorl.training.trainer import Trainer

CELLS = "cells"
RULES = "rules"
ENVIRONMENTS_FILE = "environments.json"
RESULTS_FILE = "results.json"
TABLE_FILE = "table.md"
CURVES_FILE = "curves.png"
SCORES_FILE = "scores.png"


class ComparisonInterrupted(Interrupted):
    """A signal asked the comparison to stop; finished cells are kept."""

    def __init__(self, signum: int, folder: Path, done: int, cells: int) -> None:
        super().__init__(signum, folder, done)
        self.args = (f"stopped by {signal.Signals(signum).name} with {done} of {cells} runs done",)


class ComparisonObserver(Protocol):
    """Shows a comparison to a person."""

    def preparing(self, what: str) -> None:
        """Something takes a while before the work begins."""
        ...

    def start(self, title: str, cells: int, done: int) -> None:
        """The work begins, or resumes."""
        ...

    def finished(self, cell: Cell, outcome: CellResult | Failure) -> None:
        """One more cell has finished."""
        ...

    def waiting(self, under_way: Callable[[], Sequence[Progress]]) -> None:
        """A moment has passed; told several times a second while cells run.

        Args:
          under_way: reads how far they are.
        """
        ...


def start_comparison(
    config: CompareConfig,
    folder: Path,
    jobs: int | None = None,
    observer: ComparisonObserver | None = None,
    engine: str = "local",
    engine_options: Mapping[str, str] | None = None,
) -> Summary:
    """Compare in a new folder, or resume in one that holds this very comparison.

    Args:
      jobs: how many runs work at once; by default one for each core, or as many as a cluster has
        room for.
      engine: where they run: local, ray or slurm.
      engine_options: the engine's own settings, as texts: docs/scaling.md.
    """
    made = make_engine(engine, jobs, engine_options or {}, folder.resolve())
    known = (folder / CONFIG_FILE).exists()
    if known:
        _refuse_other_settings(config, folder)
    rules = {name: load_rule(name) for name in _rule_names(config)}
    _check(config, rules)
    if known:
        _refuse_other_rules(rules, folder)
    return _compare(config, rules, folder, made, observer)


def resume_comparison(
    folder: Path,
    seeds: int | None = None,
    jobs: int | None = None,
    observer: ComparisonObserver | None = None,
    engine: str = "local",
    engine_options: Mapping[str, str] | None = None,
) -> Summary:
    """Resume a comparison, on any engine: run the cells that are missing.

    Args:
      seeds: a new number of seeds, for narrower intervals than first planned.
    """
    made = make_engine(engine, jobs, engine_options or {}, folder.resolve())
    config = read_comparison_config(folder)
    config = replace(config, seeds=seeds or config.seeds)
    names = _rule_names(config)
    rules = {name: load_rule(_source(folder, names, name)) for name in names}
    _check(config, rules)
    return _compare(config, rules, folder, made, observer)


def read_comparison_config(folder: Path) -> CompareConfig:
    """The configuration of a comparison's folder."""
    require_kind(folder, "compare")
    return CompareConfig.from_json(read_settings(folder))


def read_summary(folder: Path) -> Summary:
    """What a comparison has come to so far."""
    config = read_comparison_config(folder)
    cells = _cells(config, folder)
    results = [r for cell in cells if (r := read_cell(folder / CELLS, cell)) is not None]
    return summarise(config, _anchors(config, folder), results)


def _compare(
    config: CompareConfig,
    rules: Mapping[str, UpdateRule],
    folder: Path,
    engine: Engine,
    observer: ComparisonObserver | None,
) -> Summary:
    known = (folder / CONFIG_FILE).exists()
    with writing_to(folder) if known else new_folder(folder):
        if observer and not known:
            count = f"{len(config.envs)} environment{'s' if len(config.envs) > 1 else ''}"
            observer.preparing(f"measuring random play in {count}")
        anchors = _anchors(config, folder)
        if not known:
            _write_beginnings(anchors, rules, folder)
        # Last, because it says that all else is there.
        write_json(folder / CONFIG_FILE, config.to_json())
        outcome = _run_cells(_cells(config, folder.resolve()), folder, engine, observer)
        summary = summarise(config, anchors, outcome.results, outcome.failed)
        _write_reports(summary, folder)
        return summary


@dataclass(frozen=True)
class _Outcome:
    results: list[CellResult]
    failed: list[tuple[Cell, Failure]]


def _run_cells(
    cells: Sequence[Cell], folder: Path, engine: Engine, observer: ComparisonObserver | None
) -> _Outcome:
    """Run what is missing; whoever runs a cell saves its result."""
    stored = [(cell, read_cell(folder / CELLS, cell)) for cell in cells]
    results = [result for _, result in stored if result is not None]
    missing = [cell for cell, result in stored if result is None]
    failed = []
    if observer:
        count = f"{len(cells)} run{'s' if len(cells) > 1 else ''}"
        observer.start(f"{count}, {engine.title} -> {folder}", len(cells), len(results))
    at = folder.resolve() / CELLS
    forget_progress(at)
    tick = partial(observer.waiting, partial(read_progress, at)) if observer else None
    finish = partial(finish_cell, at)
    with (
        stop_signals() as stop,
        closing(run_calls(engine, finish, missing, stop, tick)) as work,
    ):
        for cell, outcome in work:
            if isinstance(outcome, Failure):
                failed.append((cell, outcome))
            else:
                keep_cell(folder / CELLS, cell, outcome)
                results.append(outcome)
            if observer:
                observer.finished(cell, outcome)
    forget_progress(at)
    if len(results) + len(failed) < len(cells):
        raise ComparisonInterrupted(stop[0], folder, len(results), len(cells))
    return _Outcome(results, failed)


def _cells(config: CompareConfig, folder: Path) -> list[Cell]:
    """Every cell, seed by seed, so that a comparison cut short is one with fewer seeds."""
    names = _rule_names(config)
    cells = []
    for seed in range(config.seeds):
        for env in config.envs:
            for entrant in config.entrants():
                run = config.run_config(entrant, env, seed)
                rule = entrant.rule if isinstance(run, PeerConfig) else run.rule
                cells.append(Cell(entrant.label, run, _source(folder, names, rule)))
    return cells


def _check(config: CompareConfig, rules: Mapping[str, UpdateRule]) -> None:
    """Raise DiscorlError for what cannot run, before anything does."""
    for env in config.envs:
        make_environment(env, 1, config=config.environment).close()
    for entrant in config.entrants():
        # What a peer's settings are may depend on the environment, and whether they fit it.
        for env in config.envs if entrant.is_peer else config.envs[:1]:
            run = config.run_config(entrant, env, 0)
            if isinstance(run, PeerConfig):
                check_peer(run, entrant.rule)
            else:
                Trainer(run, rules[run.rule]).close()


def _anchors(config: CompareConfig, folder: Path) -> dict[str, Anchors]:
    """What scores 0 and 1 are, as measured when the comparison began."""
    if (folder / CONFIG_FILE).exists():
        return read_anchors(config, folder)
    anchors = _measure_anchors(config, folder)
    for env, anchor in anchors.items():
        if _nothing_to_learn(anchor):
            raise DiscorlError(f"--envs {env}: random play is perfect play, nothing to compare")
    return anchors


def read_anchors(config: CompareConfig, folder: Path) -> dict[str, Anchors]:
    """What a comparison's folder says that scores 0 and 1 are; DiscorlError if it is damaged."""
    stored = read_json(folder / ENVIRONMENTS_FILE)
    try:
        anchors = {env: Anchors(**stored[env]) for env in config.envs}
        for anchor in anchors.values():
            returns = (anchor.random_return, anchor.optimal_return)
            if not all(value is None or math.isfinite(value) for value in returns):
                raise ValueError("a return that is no number")
            if _nothing_to_learn(anchor):
                raise ValueError("random play is better than perfect play")
        return anchors
    except (KeyError, TypeError, ValueError) as error:
        raise DiscorlError(f"{folder / ENVIRONMENTS_FILE} is damaged: {error!r}") from error


def _nothing_to_learn(anchors: Anchors) -> bool:
    """Whether random play is known to be perfect."""
    random, optimal = anchors.random_return, anchors.optimal_return
    return random is not None and optimal is not None and optimal <= random


def _measure_anchors(config: CompareConfig, folder: Path) -> dict[str, Anchors]:
    """Random play in processes of its own: an environment that fails there fails its own runs,
    and no others. It takes seconds, so it needs no cluster."""
    measure = partial(measure_anchors, config=config.environment)
    engine = make_engine("local", None, {"retries": "0"}, folder)
    with stop_signals() as stop, closing(run_calls(engine, measure, config.envs, stop)) as work:
        measured = dict(work)
    if stop:
        raise KeyboardInterrupt
    nothing = Anchors(None, 0, None)
    return {e: a if isinstance(a := measured[e], Anchors) else nothing for e in config.envs}


def _write_beginnings(
    anchors: Mapping[str, Anchors], rules: Mapping[str, UpdateRule], folder: Path
) -> None:
    """What must stay as it is now for all cells, including those that run later."""
    for name, rule in rules.items():
        if parameter_count(rule):
            save_rule(rule, _copy(folder, list(rules), name))
    write_json(folder / ENVIRONMENTS_FILE, {env: asdict(a) for env, a in anchors.items()})


def _rule_names(config: CompareConfig) -> list[str]:
    """Each rule once for all its settings of its own; peers are not rules."""
    runs = (config.run_config(e, env, 0) for e in config.entrants() for env in config.envs)
    return list(dict.fromkeys(run.rule for run in runs if isinstance(run, TrainConfig)))


def _copy(folder: Path, names: Sequence[str], name: str) -> Path:
    """Where the comparison's copy of a rule is; numbered, as two files may share a name."""
    return folder / RULES / f"{names.index(name)}-{file_name(Path(name).stem)}.safetensors"


def _source(folder: Path, names: Sequence[str], name: str) -> str:
    """The rule as it was when the comparison began, if it was copied into the folder."""
    if name not in names:
        return name
    path = _copy(folder, names, name)
    return str(path) if path.exists() else name


def _refuse_other_settings(config: CompareConfig, folder: Path) -> None:
    own = read_comparison_config(folder)
    changed = [flag(f.name) for f in fields(own) if getattr(config, f.name) != getattr(own, f.name)]
    if changed:
        raise DiscorlError(
            f"{folder} holds a comparison with other settings ({', '.join(changed)}): choose "
            f"another --out, or resume it with `discorl resume {folder}`"
        )


def _refuse_other_rules(rules: Mapping[str, UpdateRule], folder: Path) -> None:
    for name, rule in rules.items():
        path = _copy(folder, list(rules), name)
        if path.exists() and not _is_same(rule, load_rule(path)):
            raise DiscorlError(
                f"rule {name} has changed since {folder} was begun: choose another --out, or "
                f"resume with the rule as it was: `discorl resume {folder}`"
            )


def _is_same(rule: UpdateRule, other: UpdateRule) -> bool:
    return (
        rule.config == other.config
        and rule.params.keys() == other.params.keys()
        and all(torch.equal(tensor, other.params[name]) for name, tensor in rule.params.items())
    )


def _write_reports(summary: Summary, folder: Path) -> None:
    write_json(folder / RESULTS_FILE, summary.as_json())
    write_markdown(summary, folder / TABLE_FILE)
    plot_learning(summary, folder / CURVES_FILE)
    plot_scores(summary, folder / SCORES_FILE)
