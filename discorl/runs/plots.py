"""Learning curves as pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from discorl.errors import DiscorlError
from discorl.files import read_json, write_atomically
from discorl.runs.config import RunConfig
from discorl.runs.metrics import read_metrics
from discorl.settings import flat_settings

EPISODE_RETURN = "charts/episode_return"
_HOUSEKEEPING = {"seed", "steps", "meta_steps", "eval_episodes", "compile"} | set(
    flat_settings(RunConfig())
)
"""Settings in which runs of one experiment may differ."""
_DIFFERENCES = 2
"""How many differing settings the legend names."""


@dataclass(frozen=True)
class Curve:
    """One metric of one run over steps."""

    label: str
    """Environment and rule."""
    steps: np.ndarray
    values: np.ndarray
    settings: dict[str, Any] = field(default_factory=dict)
    """Runs with the same label and settings are seeds of one experiment."""


def read_curve(folder: Path, metric: str = EPISODE_RETURN) -> Curve:
    """The curve of a run folder, labelled by environment and rule."""
    config = read_json(folder / "config.json")
    points = [(r["step"], r[metric]) for r in read_metrics(folder) if metric in r]
    if not points:
        raise DiscorlError(f"{folder} has no metric '{metric}' yet")
    steps, values = np.array(points, dtype=float).T
    label = f"{config.get('env', folder.name)}, {config.get('rule', '?')}"
    settings = {k: v for k, v in config.items() if k not in _HOUSEKEEPING}
    return Curve(label, steps, values, settings)


def plot_curves(curves: list[Curve], path: Path, metric: str = EPISODE_RETURN) -> None:
    """One line per experiment: the mean over its seeds, and a band from lowest to highest."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for label, group in _experiments(curves).items():
        _plot_group(axes, label, group)
    axes.set_xlabel("training steps")
    axes.set_ylabel(metric.rpartition("/")[2].replace("_", " "))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", frameon=False, fontsize="small")
    save_figure(figure, path)


def pyplot() -> Any:
    """Matplotlib's, drawing to files; it is slow to import, so only drawing imports it."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    return plt


def save_figure(figure: Any, path: Path, dpi: int = 140) -> None:
    """Write a figure in the format of the path's suffix, and close it."""
    suffix = path.suffix.lstrip(".") or "png"
    formats = figure.canvas.get_supported_filetypes()
    try:
        if suffix not in formats:
            raise DiscorlError(f"{path}: cannot draw '{suffix}'; use one of {', '.join(formats)}")
        write_atomically(path, lambda p: figure.savefig(p, format=suffix, dpi=dpi))
    finally:
        pyplot().close(figure)


def _experiments(curves: list[Curve]) -> dict[str, list[Curve]]:
    """Curves by experiment; where labels clash, the differing settings are named."""
    groups: list[list[Curve]] = []
    for curve in curves:
        for group in groups:
            if (group[0].label, group[0].settings) == (curve.label, curve.settings):
                group.append(curve)
                break
        else:
            groups.append([curve])
    return {_name(group[0], [g[0] for g in groups]): group for group in groups}


def _name(curve: Curve, all_curves: list[Curve]) -> str:
    rivals = [c for c in all_curves if c.label == curve.label]
    differing = [
        f"{key}={value}"
        for key, value in curve.settings.items()
        if any(rival.settings.get(key) != value for rival in rivals)
    ]
    if not differing:
        return curve.label
    more = ", ..." if len(differing) > _DIFFERENCES else ""
    return f"{curve.label} ({', '.join(differing[:_DIFFERENCES])}{more})"


def _plot_group(axes: Any, label: str, group: list[Curve]) -> None:
    end = min(curve.steps[-1] for curve in group)
    grid = np.unique(np.concatenate([c.steps for c in group]))
    grid = grid[grid <= end]
    values = np.stack([np.interp(grid, c.steps, c.values) for c in group])
    name = f"{label}, {len(group)} seeds" if len(group) > 1 else label
    (line,) = axes.plot(grid, values.mean(axis=0), label=name)
    if len(group) > 1:
        axes.fill_between(
            grid, values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.2
        )
