"""Interactive charts: what plotly draws, as plain values inside the page."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discorl.reports.markup import Html, as_script, escape
from discorl.runs.plots import COLOURS, common_grid
from discorl.statistics import Estimate

_COLOURS = (*COLOURS[:-1], "#8C8C8C")
"""Grey in place of black, which a dark page would hide."""
GREY = len(_COLOURS) - 1
"""The style of what stays in the background."""
_DASHES = ("solid", "dash", "dot", "dashdot")
_POINTS = 600
"""A line has no more: records in between are left out."""
_NAME_WIDTH = 34
"""Characters in a line of a name beside a bar."""
_DOTS = 400
"""Of more values, only the outliers have dots."""
_ROW = 34
"""Height of a bar, in pixels."""


@dataclass(frozen=True)
class Line:
    """One line of a chart, and the band around it."""

    name: str
    x: np.ndarray
    """[n]."""
    y: np.ndarray
    """[n]."""
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: int = 0
    """Which colour and dashes; lines of one style are shown and hidden together."""
    dash: str | None = None
    markers: bool = False
    points: bool = False
    """Markers alone, with no line between them."""


@dataclass(frozen=True)
class Bar:
    """One bar or dot with its interval."""

    name: str
    estimate: Estimate
    style: int = 0


@dataclass(frozen=True)
class Box:
    """A set of values."""

    name: str
    values: Sequence[float]
    style: int = 0


def band(name: str, curves: Sequence[tuple[np.ndarray, np.ndarray]], style: int) -> Line:
    """The mean of curves (x [n], values [n]) and a band from the lowest to the highest."""
    grid, values = common_grid(curves)
    line = Line(name, grid, values.mean(axis=0), style=style)
    if len(curves) == 1:
        return line
    return replace(line, low=values.min(axis=0), high=values.max(axis=0))


def line_chart(
    ident: str,
    title: str,
    lines: Sequence[Line],
    x: str,
    y: str,
    *,
    log: bool = False,
    log_x: bool = False,
    key: bool = True,
    large: bool = False,
    levels: Iterable[float] = (),
) -> Html:
    """Lines over a common axis; nothing without lines.

    Args:
      ident: unique in the page.
      x: the axis's title, with its unit.
      y: likewise.
      log: whether the y-axis is logarithmic.
      log_x: whether the x-axis is.
      key: whether the chart says which line is which; otherwise its section does.
      large: over the whole width of the page.
      levels: dotted horizontal lines.
    """
    lines = [line for line in lines if len(line.x)]
    if not lines:
        return Html()
    data = [trace for line in lines for trace in _traces(line)]
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": html.escape(x)}, "type": "log" if log_x else "linear"},
        "yaxis": {"title": {"text": html.escape(y)}, "type": "log" if log else "linear"},
        "hovermode": "x unified" if len(lines) <= 8 else "closest",
        "shapes": [_level(level) for level in levels],
    }
    names = {line.style: line.name for line in reversed(lines)}
    shown = key_of(dict(sorted(names.items()))) if key and len(names) > 1 else Html()
    return _figure(ident, title, data, layout, shown, large)


def bar_chart(
    ident: str, title: str, bars: Sequence[Bar], x: str, *, probability: bool = False
) -> Html:
    """A bar for each estimate, the first on top, with its interval.

    Args:
      probability: dots from 0 to 1 in place of bars, and a line at a half.
    """
    if not bars:
        return Html()
    names = [_wrap(bar.name) for bar in bars]
    values = [bar.estimate.value for bar in bars]
    colours = [colour(bar.style) for bar in bars]
    data: dict[str, Any] = {
        "y": list(range(len(bars))),
        "x": _numbers(values),
        "hovertext": names,
        "hovertemplate": "%{hovertext}: %{x:.3f}<extra></extra>",
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": _numbers(bar.estimate.high - bar.estimate.value for bar in bars),
            "arrayminus": _numbers(bar.estimate.value - bar.estimate.low for bar in bars),
            "color": "#8C8C8C",
        },
        "marker": {"color": colours, "size": 11},
    }
    bar = {"type": "bar", "orientation": "h"}
    dot = {"type": "scatter", "mode": "markers"}
    layout: dict[str, Any] = {
        "height": _height(names),
        "xaxis": {"title": {"text": html.escape(x)}},
        "yaxis": _names_axis(names),
    }
    if probability:
        layout["xaxis"]["range"] = [-0.02, 1.02]
        layout["shapes"] = [_level(0.5, vertical=True)]
    return _figure(ident, title, [data | (dot if probability else bar)], layout, Html(), large=True)


def box_chart(ident: str, title: str, boxes: Sequence[Box], x: str) -> Html:
    """A box over the quartiles of each set of values, the first on top, and a dot for each."""
    if not boxes:
        return Html()
    names = [_wrap(box.name) for box in boxes]
    data = [
        {
            "type": "box",
            "orientation": "h",
            "name": name,
            "x": _numbers(box.values),
            "y": [place] * len(box.values),
            "boxpoints": "all" if len(box.values) <= _DOTS else "outliers",
            "jitter": 0.5,
            "pointpos": 0,
            "marker": {"color": colour(box.style), "size": 4, "opacity": 0.6},
            "line": {"color": colour(box.style), "width": 1.5},
            "fillcolor": _faint(colour(box.style)),
            "hoveron": "points",
            "hovertemplate": "%{x}<extra></extra>",
        }
        for place, (name, box) in enumerate(zip(names, boxes, strict=True))
    ]
    layout = {
        "height": _height(names),
        "xaxis": {"title": {"text": html.escape(x)}},
        "yaxis": _names_axis(names),
    }
    return _figure(ident, title, data, layout, Html(), large=True)


def share_chart(
    ident: str, title: str, rows: Sequence[tuple[str, dict[str, float]]], x: str
) -> Html:
    """Parts of a whole: a bar for each row, its parts side by side in it."""
    if not rows:
        return Html()
    parts = list(dict.fromkeys(part for _, shares in rows for part in shares))
    names = [_wrap(name) for name, _ in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": html.escape(part),
            "legendgroup": f"s{style}",
            "y": list(range(len(rows))),
            "x": _numbers(100 * shares.get(part, 0.0) for _, shares in rows),
            "hovertemplate": f"{html.escape(part)}: %{{x:.1f}} %<extra></extra>",
            "marker": {"color": colour(style)},
        }
        for style, part in enumerate(parts)
    ]
    layout = {
        "barmode": "stack",
        "height": _height(names),
        "xaxis": {"title": {"text": html.escape(x)}, "range": [0, 100]},
        "yaxis": _names_axis(names),
    }
    return _figure(ident, title, data, layout, key_of(dict(enumerate(parts))), large=True)


def key_of(names: dict[int, str]) -> Html:
    """Which style is what; a click shows or hides its lines."""
    items = "".join(
        f'<li><button type="button" data-group="s{style}" aria-pressed="true">'
        f'<i style="border-top:3px {_css_dash(style)} {colour(style)}"></i>'
        f"<span>{escape(name)}</span></button></li>"
        for style, name in names.items()
    )
    return Html(f'<ul class="key">{items}</ul>')


def colour(style: int) -> str:
    """Told apart by colour-blind readers too, on light and on dark pages."""
    return _COLOURS[style % len(_COLOURS)]


def _dash(style: int) -> str:
    return _DASHES[style // len(_COLOURS) % len(_DASHES)]


def _css_dash(style: int) -> str:
    return {"solid": "solid", "dot": "dotted"}.get(_dash(style), "dashed")


def _traces(line: Line) -> list[dict[str, Any]]:
    keep = _thin(len(line.x))
    x, group = _numbers(line.x[keep]), f"s{line.style}"
    shared: dict[str, Any] = {"type": "scatter", "x": x, "legendgroup": group}
    traces = []
    if line.low is not None and line.high is not None:
        edge = shared | {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        fill = {"fill": "tonexty", "fillcolor": _faint(colour(line.style))}
        traces.append(edge | {"y": _numbers(line.low[keep])})
        traces.append(edge | {"y": _numbers(line.high[keep])} | fill)
    few = len(x) == 1
    traces.append(
        shared
        | {
            "name": _wrap(line.name),
            "mode": "markers"
            if line.points
            else "lines+markers"
            if line.markers or few
            else "lines",
            "y": _numbers(line.y[keep]),
            "line": {
                "color": colour(line.style),
                "dash": line.dash or _dash(line.style),
                "width": 2,
            },
        }
    )
    return traces


def _figure(
    ident: str,
    title: str,
    data: list[dict[str, Any]],
    layout: dict[str, Any],
    key: Html,
    large: bool,
) -> Html:
    kind = "chart keyed large" if large else "chart keyed"
    values = as_script({"data": data, "layout": layout})
    return Html(
        f'<figure class="{kind if key else kind.replace(" keyed", "")}" id="{html.escape(ident)}">'
        f"<figcaption>{escape(title)}</figcaption>{key}"
        f'<div class="plot"></div><script type="application/json">{values}</script></figure>'
    )


def _names_axis(names: list[str]) -> dict[str, Any]:
    places = list(range(len(names)))
    span = [len(names) - 0.5, -0.5]
    return {"tickvals": places, "ticktext": names, "range": span, "automargin": True}


def _height(names: list[str]) -> int:
    return 110 + sum(_ROW + 16 * name.count("<br>") for name in names)


def _level(value: float, vertical: bool = False) -> dict[str, Any]:
    """A dotted line through the whole chart."""
    along, across = ("y", "x") if vertical else ("x", "y")
    ends = {f"{along}ref": "paper", f"{along}0": 0, f"{along}1": 1}
    line = {"color": "#8C8C8C", "width": 1, "dash": "dot"}
    return {"type": "line", **ends, f"{across}0": value, f"{across}1": value, "line": line}


def _thin(count: int) -> np.ndarray:
    """Which of so many points are drawn: evenly spread, the first and the last among them."""
    if count <= _POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, _POINTS).round().astype(int))


def _numbers(values: Iterable[float]) -> list[float | None]:
    """For JSON: six digits, and nothing in place of what is no number."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in map(float, values)]


def _wrap(name: str) -> str:
    """A name in lines, broken after spaces and after signs between words."""
    lines = [""]
    for piece in re.split(r"(?<=[ ,:=/_])(?=[A-Za-z])", name):
        if lines[-1] and len(lines[-1]) + len(piece) > _NAME_WIDTH:
            lines.append("")
        lines[-1] += piece
    cut = [part for line in lines for part in textwrap.wrap(line, _NAME_WIDTH)]
    return "<br>".join(map(html.escape, cut))


def _faint(colour_: str) -> str:
    red, green, blue = (int(colour_[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"
