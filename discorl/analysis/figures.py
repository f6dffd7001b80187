"""The figures of an analysis, all in one style: a colour for each rule, grey for random ones."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from discorl.analysis.closest import ALL
from discorl.analysis.responses import BY_REWARD, BY_Z, INPUTS, SWEPT, TARGETS, Row
from discorl.analysis.traces import QUANTITIES, SHOWN
from discorl.runs.plots import COLOURS, pyplot, save_figure

DPI = 110
NULL = "#808080"
_SWEPT = {
    "advantage": "advantage",
    "reward": "reward",
    "value": "value of the state",
    "probability": "π(a) before the update",
}
_ALONG = {
    "y_confidence": "confidence of y\n(nats)",
    "z_confidence": "confidence of z\n(nats)",
    "value": "value",
    "policy_entropy": "policy entropy\n(nats)",
    "reward": "reward",
}
_CREDIT = {
    BY_REWARD: "change of the push at t\n(nats per unit of reward at t + k)",
    BY_Z: "change of the z target at t\n(total variation per s.d. of z at t + k)",
}
_OUTPUTS = ("y", "z", "q", "v", "policy")
_LONG = 34
"""Letters of a label that fit above a panel, or thrice below a figure."""
_TINY = 0.005
"""What would be shown as zero is shown by its magnitude."""


class Style:
    """Which rules there are, and how each is drawn."""

    def __init__(self, labels: Sequence[str], nulls: Sequence[str]) -> None:
        self.labels, self.nulls = list(labels), set(nulls)
        told_apart = [label for label in labels if label not in self.nulls]
        self._colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(told_apart)}

    def line(self, label: str) -> dict[str, Any]:
        """What a line of this rule looks like."""
        if label in self.nulls:
            return {"color": NULL, "linestyle": "--"}
        return {"color": self._colours[label]}

    def among(self, rows: Sequence[Row]) -> list[str]:
        """The rules that these rows are about, in order."""
        found = {row["rule"] for row in rows}
        return [label for label in self.labels if label in found]


def draw_responses(rows: list[Row], style: Style, path: Path) -> None:
    """A row for each rule, a panel for each swept quantity: the median push, and its quartiles."""
    labels = style.among(rows)
    figure, grid = pyplot().subplots(
        len(labels),
        len(SWEPT),
        figsize=(11, 1.9 * len(labels) + 0.4),
        layout="constrained",
        squeeze=False,
        sharex="col",
    )
    for line, label in zip(grid, labels, strict=True):
        for axes, name in zip(line, SWEPT, strict=True):
            own = [r for r in rows if (r["rule"], r["input"]) == (label, name)]
            x, middle, low, high = (
                [r[key] for r in own] for key in ("x", "push", "push_low", "push_high")
            )
            axes.plot(x, middle, **style.line(label))
            colour = style.line(label)["color"]
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.axhline(0, color="black", linewidth=0.6)
            axes.grid(alpha=0.3)
            axes.tick_params(labelsize="small")
        line[0].set_ylabel(f"{short(label)}\npush (nats)", fontsize="small")
    for axes, name in zip(grid[-1], SWEPT, strict=True):
        axes.set_xlabel(_SWEPT[name])
    save_figure(figure, path, DPI)


def draw_credit(rows: list[Row], style: Style, path: Path, decays: Mapping[str, float]) -> None:
    """How far back a reward, and z, are felt: the change of a target by lag.

    Args:
      decays: rule -> what a reward loses with each step in its advantages; drawn dotted.
    """
    kinds = list(dict.fromkeys(row["what"] for row in rows))
    figure, grid = pyplot().subplots(
        1, len(kinds), figsize=(4.6 * len(kinds), 3.6), layout="constrained", squeeze=False
    )
    for axes, what in zip(grid[0], kinds, strict=True):
        for label in style.among(rows):
            own = [r for r in rows if (r["rule"], r["what"]) == (label, what)]
            lags, values = [r["lag"] for r in own], [r["change"] or np.nan for r in own]
            axes.plot(lags, values, marker="o", markersize=3, label=label, **style.line(label))
            if what == BY_REWARD and label not in style.nulls:
                expected = [values[0] * decays[label] ** k for k in lags]
                axes.plot(lags, expected, color="black", linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        axes.set_title(what, fontsize="medium")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("lag k (steps)")
        axes.set_ylabel(_CREDIT[what], fontsize="small")
        axes.grid(alpha=0.3)
    legend(figure, grid[0][0])
    save_figure(figure, path, DPI)


def draw_sensitivity(rows: list[Row], style: Style, path: Path) -> None:
    """A panel for each rule: inputs against targets, changes summed over all lags."""
    tables: dict[str, tuple[np.ndarray, Sequence[str]]] = {}
    for label in style.among(rows):
        sums = np.zeros((len(INPUTS), len(TARGETS)))
        for row in rows:
            if row["rule"] == label:
                place = list(INPUTS).index(row["input"]), TARGETS.index(row["target"])
                sums[place] += row["change"]
        tables[label] = sums, [f"{target} target" for target in TARGETS]
    top = max(float(sums.max()) for sums, _ in tables.values()) or 1.0
    title = "change of the target, summed over lags (total variation per s.d. of the input)"
    _heatmaps(tables, list(INPUTS.values()), title, path, top)


def draw_closest(rows: list[Row], style: Style, path: Path) -> None:
    """Bars of R² for each feature alone and all together."""
    features = list(dict.fromkeys(row["feature"] for row in rows if row["feature"] != ALL))
    features.append(ALL)
    labels = style.among(rows)
    figure, axes = pyplot().subplots(
        figsize=(7, 0.28 * len(features) * len(labels) + 1.4), layout="constrained"
    )
    height = 0.8 / len(labels)
    for index, label in enumerate(labels):
        scores = {row["feature"]: row["r2"] for row in rows if row["rule"] == label}
        places = [i + index * height for i, name in enumerate(features) if name in scores]
        widths = [max(scores[name], 0) for name in features if name in scores]
        colour = style.line(label)["color"]
        bars = axes.barh(places, widths, height=height * 0.9, color=colour, label=label)
        axes.bar_label(bars, fmt="%.2f", fontsize="x-small", padding=2)
    middle = 0.4 - height / 2
    axes.set_yticks([i + middle for i in range(len(features))], features)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1)
    axes.set_xlabel("share of the push explained (cross-validated R²)")
    axes.grid(axis="x", alpha=0.3)
    legend(figure, axes)
    save_figure(figure, path, DPI)


def draw_traces(rows: list[Row], style: Style, path: Path) -> None:
    """A column for each rule: the first steps of its agent's first trajectory."""
    labels = style.among(rows)
    named = [name for name in QUANTITIES if any(name in row for row in rows)]
    figure, grid = pyplot().subplots(
        len(named),
        len(labels),
        figsize=(max(3.4 * len(labels), 5), 1.25 * len(named) + 0.6),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="row",
    )
    for column, label in enumerate(labels):
        own = [row for row in rows if row["rule"] == label and row["trajectory"] == 0][:SHOWN]
        for axes, name in zip(grid[:, column], named, strict=True):
            _trace(axes, own, name, style.line(label)["color"])
            if column == 0:
                axes.set_ylabel(_ALONG[name], fontsize="small")
        grid[0, column].set_title(short(label), fontsize="medium")
        grid[-1, column].xaxis.get_major_locator().set_params(integer=True)
        grid[-1, column].set_xlabel("step (dotted: episode ends)")
    save_figure(figure, path, DPI)


def _trace(axes: Any, own: list[Row], name: str, colour: str) -> None:
    for row in own:
        if row["ended"]:
            axes.axvline(row["step"] + 0.5, color="black", linestyle=":", linewidth=0.7)
    axes.grid(alpha=0.3)
    axes.ticklabel_format(useOffset=False)
    if not own or name not in own[0]:
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color="grey")
        return
    steps, values = [row["step"] for row in own], [row[name] for row in own]
    if name == "reward":
        axes.bar(steps, values, color=colour)
    else:
        axes.plot(steps, values, color=colour, marker="o", markersize=3)


def draw_probes(rows: list[Row], style: Style, path: Path) -> None:
    """A panel for each rule: outputs against quantities."""
    quantities = list(dict.fromkeys(row["quantity"] for row in rows))
    tables: dict[str, tuple[np.ndarray, Sequence[str]]] = {}
    for label in style.among(rows):
        scores = {(r["quantity"], r["output"]): r["r2"] for r in rows if r["rule"] == label}
        outputs = [o for o in _OUTPUTS if o in {output for _, output in scores}]
        tables[label] = np.array([[scores[q, o] for o in outputs] for q in quantities]), outputs
    _heatmaps(tables, quantities, "cross-validated R² of a linear probe", path, top=1.0)


def _heatmaps(
    tables: dict[str, tuple[np.ndarray, Sequence[str]]],
    words: Sequence[str],
    title: str,
    path: Path,
    top: float,
) -> None:
    """A panel of numbers for each rule: what its rows are called, and its own columns."""
    columns = [len(own) for _, own in tables.values()]
    figure, grid = pyplot().subplots(
        1,
        len(tables),
        figsize=(0.62 * sum(columns) + 3, 0.32 * len(words) + 1.4),
        layout="constrained",
        squeeze=False,
        sharey=True,
        width_ratios=columns,
    )
    for axes, (label, (table, own)) in zip(grid[0], tables.items(), strict=True):
        image = axes.imshow(table, vmin=0, vmax=top, cmap="cividis", aspect="auto")
        axes.set_title(short(label), fontsize="medium")
        axes.set_xticks(range(len(own)), own, rotation=30, ha="right")
        axes.set_yticks(range(len(words)), words)
        for (row, column), value in np.ndenumerate(table):
            ink = "black" if value > 0.6 * top else "white"
            text = "–" if np.isnan(value) else _two_digits(value)  # noqa: RUF001
            axes.text(column, row, text, ha="center", va="center", fontsize="x-small", color=ink)
        axes.set_facecolor(NULL)
    figure.colorbar(image, ax=list(grid[0]), shrink=0.8)
    figure.suptitle(textwrap.fill(title, int(9 * figure.get_figwidth())), fontsize="medium")
    save_figure(figure, path, DPI)


def _two_digits(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= _TINY or value == 0 else f"{value:.0e}"


def legend(figure: Any, axes: Any) -> None:
    """What is in all panels, told once below them."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 3 if max(map(len, labels), default=0) <= _LONG else 1
    figure.legend(
        handles, labels, loc="outside lower center", frameon=False, fontsize="small", ncols=columns
    )


def short(label: str) -> str:
    """A rule's name, settings and all, where there is room for a few letters."""
    return label if len(label) <= _LONG else f"{label[: _LONG - 1]}…"
