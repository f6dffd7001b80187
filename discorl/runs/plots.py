"""Learning curves as pictures, all in one style."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from discorl.errors import DiscorlError
from discorl.files import write_atomically
from discorl.runs.config import RunConfig
from discorl.runs.folder import read_settings
from discorl.runs.metrics import read_metrics
from discorl.settings import flat_settings

EPISODE_RETURN = "charts/episode_return"
EPISODES = "charts/episodes"
Axis = Literal["steps", "env_steps", "seconds"]
AXES: dict[Axis, tuple[str, str]] = {
    "steps": ("step", "training steps"),
    "env_steps": ("charts/env_steps", "environment steps"),
    "seconds": ("time/seconds", "seconds of acting and learning"),
}
"""What can run over the x-axis: its name in the records, and its title."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart by colour-blind readers too (Okabe & Ito, 2008)."""
_LINES = ("-", "--", "-.", ":")
_HOUSEKEEPING = {"seed", "steps", "meta_steps", "eval_episodes", "eval_max_steps", "compile"} | set(
    flat_settings(RunConfig())
)
"""Settings in which runs of one experiment may differ."""
_DIFFERENCES = 2
"""So many differing settings are named in the legend."""
_WIDTH = 60
"""Characters in a line of a legend."""


@dataclass(frozen=True)
class Curve:
    """One metric of one run."""

    env: str
    rule: str
    x: dict[Axis, np.ndarray]
    """What can run over the x-axis -> [n]."""
    values: np.ndarray
    """[n]."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Runs with the same environment, rule and settings are seeds of one experiment."""
    counts: str = "training steps"
    """What its steps are."""


class Described(Protocol):
    """Whatever tells which experiment it belongs to."""

    @property
    def env(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def settings(self) -> dict[str, Any]: ...


Item = TypeVar("Item", bound=Described)


def read_curve(folder: Path, metric: str = EPISODE_RETURN) -> Curve:
    """The curve of a run folder."""
    curve = make_curve(read_settings(folder), read_metrics(folder), folder.name, metric)
    if curve is None:
        raise DiscorlError(f"{folder} has no metric '{metric}' yet")
    return curve


def make_curve(
    config: dict[str, Any], records: list[dict[str, Any]], name: str, metric: str = EPISODE_RETURN
) -> Curve | None:
    """The curve in a run's records; None if they have no such metric.

    Args:
      config: the run's settings.
      name: what to call the environment if the settings do not tell.
    """
    records = [r for r in records if is_number(r.get(metric))]
    if not records:
        return None
    x = {
        axis: np.array([record[name] for record in records], dtype=float)
        for axis, (name, _) in AXES.items()
        if all(is_number(record.get(name)) for record in records)
    }
    values = np.array([record[metric] for record in records], dtype=float)
    env, rule = describe_run(config, name)
    counts = "meta-steps" if "meta_steps" in config else "training steps"
    return Curve(env, rule, x, values, experiment_settings(config), counts)


def describe_run(config: dict[str, Any], name: str) -> tuple[str, str]:
    """Environment and rule of a run, going by its settings; `name` stands for an environment that
    they do not tell."""
    if "meta_steps" in config:
        envs = config.get("envs")
        env = ", ".join(map(str, envs)) if isinstance(envs, list) else name
        return env, f"discovered from {config.get('init', '?')}"
    return str(config.get("env", name)), str(config.get("rule", "?"))


def experiment_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that all runs of one experiment share, apart from environment and rule."""
    return {k: v for k, v in config.items() if k not in {*_HOUSEKEEPING, "env", "rule"}}


def is_number(value: Any) -> bool:
    """Whether a value from a file is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def plot_curves(
    curves: list[Curve], path: Path, metric: str = EPISODE_RETURN, axis: Axis | None = None
) -> None:
    """One line per experiment: the mean over its seeds, and a band from least to greatest.

    Args:
      axis: what runs over the x-axis; by default training steps, or environment steps where runs
        take different numbers of them in a step.
    """
    axis = axis or choose_axis(curves)
    for curve in curves:
        if axis not in curve.x:
            raise DiscorlError(f"--x {axis}: the run on {curve.env} has no record of it")
    counts = curves[0].counts if axis == "steps" else AXES[axis][1]
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    styles = cycle((colour, line) for line in _LINES for colour in COLOURS)
    for (label, group), (colour, line) in zip(group_seeds(curves).items(), styles, strict=False):
        _plot_group(axes, label, group, axis, colour, line)
    envs = list(dict.fromkeys(curve.env for curve in curves))
    title = envs[0] if len(envs) == 1 else f"{len(envs)} environments"
    axes.set_title(textwrap.shorten(title, _WIDTH, placeholder=" ..."), fontsize="medium")
    axes.set_xlabel(counts)
    axes.set_ylabel(metric.rpartition("/")[2].replace("_", " "))
    axes.margins(x=0.02)
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


def choose_axis(curves: list[Curve]) -> Axis:
    """Training steps, or environment steps where runs take different numbers of them in a step."""
    if not all("env_steps" in curve.x for curve in curves):
        return "steps"
    rates = {round(c.x["env_steps"][-1] / max(c.x["steps"][-1], 1), 6) for c in curves}
    return "env_steps" if len(rates) > 1 else "steps"


def group_seeds(items: Sequence[Item]) -> dict[str, list[Item]]:
    """Curves or runs by experiment; where names clash, the differing settings are named."""
    groups: list[list[Item]] = []
    for item in items:
        for group in groups:
            if _key(group[0]) == _key(item):
                group.append(item)
                break
        else:
            groups.append([item])
    firsts = [group[0] for group in groups]
    return {_name(group[0], firsts): group for group in groups}


def _key(curve: Described) -> tuple[str, str, dict[str, Any]]:
    return curve.env, curve.rule, curve.settings


def _name(curve: Described, all_curves: Sequence[Described]) -> str:
    """The rule; the environment if there are several; settings if nothing else differs."""
    one_env = len({c.env for c in all_curves}) == 1
    name = curve.rule if one_env else f"{curve.rule} on {curve.env}"
    rivals = [c for c in all_curves if (c.env, c.rule) == (curve.env, curve.rule)]
    differing = [
        f"{key}={value}"
        for key, value in curve.settings.items()
        if any(rival.settings.get(key) != value for rival in rivals)
    ]
    if differing:
        more = ", ..." if len(differing) > _DIFFERENCES else ""
        name += f" ({', '.join(differing[:_DIFFERENCES])}{more})"
    return wrapped(name)


def wrapped(name: str, width: int = _WIDTH) -> str:
    """A name that may be long, such as a rule with its settings, in lines that fit a figure: broken
    between words and settings, and within those that are longer than a line."""
    lines = [""]
    for part in re.findall(r".+?(?:[ ,:/]|$)", name):
        if lines[-1] and len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(textwrap.fill(line.strip(), width) for line in lines)


def _plot_group(
    axes: Any, label: str, group: list[Curve], axis: Axis, colour: str, line: str
) -> None:
    grid, values = common_grid([(c.x[axis], c.values) for c in group])
    name = f"{label}, {len(group)} seeds" if len(group) > 1 else label
    axes.plot(grid, values.mean(axis=0), color=colour, linestyle=line, label=name, alpha=0.9)
    if len(group) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)


def common_grid(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Curves (x [n], values [n]) at the same places: x [m] as far as all of them go, and their
    values [curves, m]."""
    end = min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[grid <= end]
    return grid, np.stack([np.interp(grid, x, values) for x, values in curves])
