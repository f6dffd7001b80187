"""A comparison as pictures: learning curves by environment, and scores with intervals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from discorl.comparison.summary import Group, Summary
from discorl.runs.plots import COLOURS, pyplot, save_figure, wrapped

_COLUMNS = 3
_NAME = 32
"""Letters of a rule's name in a line beside its bar."""


def plot_learning(summary: Summary, path: Path) -> None:
    """A panel for each environment: each rule's mean return over seeds, and a band from lowest to
    highest. Dotted lines are the returns of scores 0 and 1."""
    plt = pyplot()
    envs = summary.config.envs
    columns = min(len(envs), _COLUMNS)
    rows = math.ceil(len(envs) / columns)
    names = [wrapped(rule) for rule in summary.config.rules]
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(max(3.2 * columns, 5), 2.6 * rows + 0.2 * _lines(names) + 0.4),
        layout="constrained",
        squeeze=False,
    )
    for axes, env in zip(grid.flat, envs, strict=False):
        _plot_panel(axes, summary, env)
    for axes in grid.flat[len(envs) :]:
        axes.set_visible(False)
    lines = [plt.Line2D([], [], color=_colour(i)) for i in range(len(summary.config.rules))]
    lines.append(plt.Line2D([], [], color="grey", linestyle=":"))
    labels = [*names, "scores of 0 (random play) and 1"]
    figure.legend(lines, labels, loc="outside lower center", frameon=False, fontsize="small")
    save_figure(figure, path)


def plot_scores(summary: Summary, path: Path) -> None:
    """A bar for each rule: its interquartile mean, and the interval around it."""
    plt = pyplot()
    rules = summary.config.rules
    names = [wrapped(rule, _NAME) for rule in rules]
    height = 0.3 * len(rules) + 0.2 * _lines(names) + 1.2
    figure, axes = plt.subplots(figsize=(7, height), layout="constrained")
    for index, rule in enumerate(rules):
        estimate = summary.estimates[rule]
        if estimate is not None:
            spread = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
            axes.barh(index, estimate.value, xerr=spread, color=_colour(index), capsize=4)
    axes.set_yticks(range(len(rules)), names)
    axes.invert_yaxis()
    envs = summary.config.envs
    axes.set_title(
        envs[0] if len(envs) == 1 else f"{len(envs)} environments together", fontsize="medium"
    )
    axes.set_xlabel("interquartile mean of scores, 95% interval")
    axes.grid(axis="x", alpha=0.3)
    save_figure(figure, path)


def _plot_panel(axes: Any, summary: Summary, env: str) -> None:
    scale = summary.scales[env]
    levels = [summary.anchors[env].random_return, scale.one if scale else None]
    for level in (level for level in levels if level is not None):
        axes.axhline(level, color="grey", linestyle=":", linewidth=1)
    for index, rule in enumerate(summary.config.rules):
        group = summary.groups[rule, env]
        if group.runs:
            _plot_group(axes, group, _colour(index))
    axes.set_title(wrapped(env, _NAME), fontsize="small")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("episode return")
    axes.grid(alpha=0.3)


def _plot_group(axes: Any, group: Group, colour: str) -> None:
    curves = [np.array(run.curve_by_env_steps()).T for run in group.runs]
    # Seeds log at the same steps, but their first episodes may end at different ones.
    start = max(steps[0] for steps, _ in curves)
    values = np.stack([returns[steps >= start] for steps, returns in curves])
    grid = curves[0][0][curves[0][0] >= start]
    axes.plot(grid, values.mean(axis=0), color=colour, alpha=0.8)
    axes.fill_between(grid, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2)


def _lines(names: list[str]) -> int:
    return sum(name.count("\n") + 1 for name in names)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
