"""The figures of agents that learn in other ways: without what a rule reads, or other lives."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from discorl.analysis.figures import DPI, NULL, Style, legend, short
from discorl.analysis.reliance import WHOLE
from discorl.analysis.responses import Row
from discorl.analysis.robustness import OPTIMISER, OWN, RATE, REPLAY, SIZE, SWEEPS
from discorl.runs.plots import COLOURS, pyplot, save_figure

_LINES = {"y": "--", "z": ":"}
_AXES = {
    RATE: "learning rate",
    SIZE: "network size (times its own)",
    REPLAY: "share of replay in a batch",
    OPTIMISER: "optimiser",
}
_RETURN = "return of the last 100 episodes"


def draw_reliance(rows: list[Row], style: Style, path: Path) -> None:
    """A panel for each discovered rule: learning curves of its variants, and of a random rule."""
    labels = [label for label in style.among(rows) if label not in style.nulls]
    figure, grid = pyplot().subplots(
        1,
        len(labels),
        figsize=(max(5.5 * len(labels), 7), 4.4),
        layout="constrained",
        squeeze=False,
    )
    nulls = [row for row in rows if row["rule"] in style.nulls]
    for axes, label in zip(grid[0], labels, strict=True):
        own = [row for row in rows if row["rule"] == label]
        for index, variant in enumerate(dict.fromkeys(row["variant"] for row in own)):
            hidden = next((h for h in _LINES if variant.startswith(f"no {h} ")), None)
            _curve(
                axes,
                [row for row in own if row["variant"] == variant],
                variant,
                COLOURS[index],
                _LINES.get(hidden or "", "-"),
            )
        _curve(axes, nulls, "random rule", NULL, "-")
        axes.set_title(short(label), fontsize="medium")
        axes.set_xlabel("training steps")
        axes.set_ylabel(_RETURN)
        axes.grid(alpha=0.3)
    legend(figure, grid[0][0])
    save_figure(figure, path, DPI)


def _curve(axes: Any, rows: list[Row], label: str, colour: str, line: str) -> None:
    """Mean over seeds, and a band from least to greatest."""
    steps = sorted({row["step"] for row in rows})
    values = [[row["return"] for row in rows if row["step"] == step] for step in steps]
    width = 2.2 if label == WHOLE else 1.4
    means = [float(np.mean(v)) for v in values]
    axes.plot(steps, means, color=colour, linestyle=line, linewidth=width, label=label)
    low, high = [min(v) for v in values], [max(v) for v in values]
    axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)


def draw_robustness(rows: list[Row], style: Style, path: Path) -> None:
    """A panel for each sweep: the mean over seeds in the end, a dot for each seed, a ring around
    the agents' own settings. Grey: from the lowest to the highest of random rules."""
    figure, grid = pyplot().subplots(
        1,
        len(SWEEPS),
        figsize=(12, 4.2),
        layout="constrained",
        squeeze=False,
        sharey=True,
        width_ratios=[1, 1, 1, 1.5],
    )
    labels = [label for label in style.among(rows) if label not in style.nulls]
    nulls = [row["final_return"] for row in rows if row["rule"] in style.nulls]
    for axes, sweep in zip(grid[0], SWEEPS, strict=True):
        if nulls:
            axes.axhspan(min(nulls), max(nulls), color=NULL, alpha=0.3, linewidth=0)
            axes.axhline(mean(nulls), color=NULL, linestyle="--", label="random rule")
        for index, label in enumerate(labels):
            own = [r for r in rows if r["rule"] == label and r["sweep"] in (sweep, OWN)]
            _sweep(axes, own, sweep, label, style, 0.12 * (index - (len(labels) - 1) / 2))
        axes.set_xlabel(_AXES[sweep])
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel(_RETURN)
    legend(figure, grid[0][0])
    save_figure(figure, path, DPI)


def _sweep(axes: Any, rows: list[Row], sweep: str, label: str, style: Style, aside: float) -> None:
    """One rule in one panel; where places are words, the rules stand beside one another."""
    words = sweep == OPTIMISER
    # Agents' own settings have their own place only where places are words.
    rows = [row for row in rows if words or row["sweep"] == sweep]
    values = list(dict.fromkeys(row["value"] for row in rows))
    places = [index + aside for index in range(len(values))] if words else values
    returns = [[r["final_return"] for r in rows if r["value"] == value] for value in values]
    look = style.line(label)
    means = [mean(found) for found in returns]
    axes.plot(places, means, marker="_" if words else None, markersize=12, label=label,
              **(look | {"linestyle": "" if words else "-"}))  # fmt: skip
    for place, found in zip(places, returns, strict=True):
        axes.plot([place] * len(found), found, ".", color=look["color"], alpha=0.7)
    for place, value, middle in zip(places, values, means, strict=True):
        if any(row["own"] for row in rows if row["value"] == value):
            axes.plot(place, middle, "o", color=look["color"], fillstyle="none", markersize=10)
    if rows and sweep == RATE:
        axes.set_xscale("log")
    elif rows and sweep == SIZE:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    elif words:
        axes.set_xticks(range(len(values)), values, rotation=40, ha="right", fontsize="small")
