"""Discovery as a picture: how the population does, and what the rule does for fresh agents."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.runs.folder import read_settings
from discorl.runs.metrics import read_metrics
from discorl.runs.plots import COLOURS, is_number, pyplot, save_figure

RETURN = "population/return"
EVALUATIONS_FILE = "evaluations.json"


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """Every evaluation of a discovery so far, oldest first; DiscorlError if the file is damaged."""
    path = folder / EVALUATIONS_FILE
    if not path.exists():
        return []
    entries = read_json(path)
    try:
        for entry in entries:
            # A score is no number where no episode ended.
            if type(entry["meta_step"]) is not int or not isinstance(entry["score"], float | int):
                raise ValueError(f"meta-step {entry['meta_step']}, score {entry['score']}")
            for agent in entry["agents"]:
                np.array(agent["curve"], dtype=float).reshape(-1, 2)
    except (TypeError, KeyError, ValueError) as error:
        raise DiscorlError(f"{path} is damaged: {error!r}") from error
    return list(entries)


def plot_discovery(folders: list[Path], path: Path) -> None:
    """One folder or several.

    Left, over meta-steps: the population, and fresh agents at the end of their lives. Right:
    the lives of the fresh agents of each run's best rule, a line for each environment.
    """
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    for index, folder in enumerate(folders):
        color = COLOURS[index % len(COLOURS)]
        evaluations = read_evaluations(folder)
        if not evaluations:
            raise DiscorlError(f"{folder} has no evaluation of its rule yet")
        _plot_population(left, folder, color)
        scores = [(e["meta_step"], e["score"]) for e in evaluations]
        left.plot(*zip(*scores, strict=True), "o", color=color)
        best = max(evaluations, key=lambda e: e["score"])
        label = f"rule of meta-step {best['meta_step']}"
        if len(folders) > 1:
            label = f"{_name(folder)}, {label}"
        for number, agent in enumerate(best["agents"]):
            updates, returns = np.array(agent["curve"], dtype=float).T
            right.plot(updates, returns, color=color, alpha=0.7, label=None if number else label)
    left.plot([], [], "ko", label="fresh agents at the end of their lives")
    left.plot([], [], "k-", alpha=0.6, label="population")
    left.set(xlabel="meta-steps", ylabel="return", title="while the rule is discovered")
    right.set(xlabel="updates", ylabel="return", title="fresh agents that the best rule trains")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.title.set_fontsize("medium")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(
            frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14)
        )
    save_figure(figure, path)


def _name(folder: Path) -> str:
    """A run by what it did: its environments, what it began with, and its seed."""
    settings = read_settings(folder)
    envs = settings.get("envs")
    places = ", ".join(map(str, envs)) if isinstance(envs, list) else folder.name
    text = f"{places} from {settings.get('init', '?')}, seed {settings.get('seed', '?')}"
    return textwrap.shorten(text, 60, placeholder=" ...")


def _plot_population(axes: Any, folder: Path, color: str) -> None:
    points = [(r["step"], r[RETURN]) for r in read_metrics(folder) if is_number(r.get(RETURN))]
    if points:
        steps, returns = np.array(points, dtype=float).T
        axes.plot(steps, returns, color=color, alpha=0.6)
