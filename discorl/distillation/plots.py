"""Distillation as a picture: how near the targets are, and what that does for fresh agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from discorl.discovery.plots import read_evaluations
from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.runs.metrics import read_metrics
from discorl.runs.plots import COLOURS, is_number, pyplot, save_figure

TEACHER_EVALUATION = "teacher_evaluation.json"


def read_teacher(folder: Path) -> list[dict[str, Any]]:
    """How the teacher's fresh agents did, if they were tried; DiscorlError if it is damaged."""
    path = folder / TEACHER_EVALUATION
    if not path.exists():
        return []
    agents = read_json(path)
    try:
        for agent in agents:
            if not isinstance(agent["final_return"], float | int):
                raise ValueError(agent["env"])
            np.array(agent["curve"], dtype=float).reshape(-1, 2)
    except (TypeError, KeyError, ValueError) as error:
        raise DiscorlError(f"{path} is damaged: {error!r}") from error
    return list(agents)


def plot_distillation(folders: list[Path], path: Path) -> None:
    """One folder or several.

    Left, over meta-steps: the divergence of the student's targets from the teacher's. Right: at
    the end of their lives, fresh agents of each run's best student beside those of the teacher.
    """
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    for index, folder in enumerate(folders):
        evaluations, teacher = read_evaluations(folder), read_teacher(folder)
        if not evaluations or not teacher:
            raise DiscorlError(f"{folder} has no evaluation of its student yet")
        records = read_metrics(folder)
        name = f"{folder.name}: " if len(folders) > 1 else ""
        for number, kind in enumerate(("policy", "y", "z")):
            metric = f"distil/{kind}_kl"
            points = [(r["step"], r[metric]) for r in records if is_number(r.get(metric))]
            colour = COLOURS[(3 * index + number) % len(COLOURS)]
            if points:
                left.plot(*zip(*points, strict=True), color=colour, label=f"{name}{kind}")
        best = max(evaluations, key=lambda e: e["score"])
        _plot_returns(right, teacher, best, COLOURS[index % len(COLOURS)], name)
    left.set(xlabel="meta-steps", ylabel="KL, nats", yscale="log", title="from teacher to student")
    right.set(xlabel="return of the teacher's agents", ylabel="return of the student's agents")
    right.set(xscale="symlog", yscale="symlog", title="fresh agents, one for each environment")
    right.axline((0, 0), (1, 1), color="grey", linewidth=0.8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.title.set_fontsize("medium")
    left.legend(frameon=False, fontsize="small")
    right.legend(frameon=False, fontsize="small")
    save_figure(figure, path)


def _plot_returns(
    axes: Any, teacher: list[dict[str, Any]], best: dict[str, Any], colour: str, name: str
) -> None:
    known = {agent["env"]: agent["final_return"] for agent in teacher}
    points = [(known[a["env"]], a["final_return"]) for a in best["agents"] if a["env"] in known]
    label = f"{name}student of meta-step {best['meta_step']}"
    axes.plot(*zip(*points, strict=True), "o", color=colour, label=label)
