"""A study as a picture: returns by trial, learning curves, and returns by each setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from discorl.runs.plots import COLOURS, pyplot, save_figure
from discorl.tuning.study import Trial
from discorl.tuning.trials import POINTS

_COLUMNS = 3


def plot_study(trials: Sequence[Trial], path: Path) -> None:
    """Filled points are trials that went through, hollow ones were pruned.

    Args:
      trials: the best first, as `Study.trials` has them.
    """
    shown = [trial for trial in trials if trial.mean_return is not None]
    names = list(trials[0].values)
    panels = 2 + len(names)
    rows = math.ceil(panels / _COLUMNS)
    figure, grid = pyplot().subplots(
        rows, _COLUMNS, figsize=(3.4 * _COLUMNS, 2.8 * rows), layout="constrained", squeeze=False
    )
    _plot_history(grid.flat[0], shown)
    _plot_curves(grid.flat[1], shown)
    for axes, name in zip(grid.flat[2:], names, strict=False):
        _plot_setting(axes, shown, name)
    for axes in grid.flat[panels:]:
        axes.set_visible(False)
    save_figure(figure, path)


def _plot_history(axes: Any, trials: Sequence[Trial]) -> None:
    _scatter(axes, [(trial.number, trial) for trial in trials])
    best, line = -math.inf, []
    for trial in sorted(trials, key=lambda t: t.number):
        if trial.finished and trial.mean_return is not None:
            best = max(best, trial.mean_return)
            line.append((trial.number, best))
    axes.step(*zip(*line, strict=True), where="post", color=COLOURS[1], label="best so far")
    axes.legend(frameon=False, fontsize="small")
    axes.set_xlabel("trial")
    axes.set_ylabel("mean return")


def _plot_curves(axes: Any, trials: Sequence[Trial]) -> None:
    for trial in reversed(trials):
        looks, values = zip(*trial.curve, strict=True)
        best = trial is trials[0]
        shares = [look / POINTS for look in looks]
        style = {"color": COLOURS[1], "zorder": 3} if best else {"color": "grey", "alpha": 0.4}
        axes.plot(shares, values, linewidth=2 if best else 1, **style)
    axes.set_xlabel("share of the run")


def _plot_setting(axes: Any, trials: Sequence[Trial], name: str) -> None:
    values: list[Any] = [trial.values[name] for trial in trials]
    numeric = all(type(value) in (int, float) for value in values)
    places = values if numeric else [str(value) for value in values]
    _scatter(axes, list(zip(places, trials, strict=True)))
    if numeric and min(values) > 0 and max(values) > 10 * min(values):
        axes.set_xscale("log")
    axes.set_xlabel(name)


def _scatter(axes: Any, points: Sequence[tuple[Any, Trial]]) -> None:
    for finished, face in ((True, COLOURS[0]), (False, "none")):
        chosen = [(x, trial.mean_return) for x, trial in points if trial.finished == finished]
        if chosen:
            axes.scatter(*zip(*chosen, strict=True), s=16, facecolors=face, edgecolors=COLOURS[0])
    axes.grid(alpha=0.3)
