"""A search for settings as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.reports.cards import environment_card
from discorl.reports.charts import GREY, Line, line_chart
from discorl.reports.differences import defaults, differing, read_values, tune_commands
from discorl.reports.markup import (
    Html,
    cards,
    command,
    fold,
    join,
    notices,
    paragraph,
    section,
    table,
)
from discorl.reports.read import RunData, attempt
from discorl.runs.folder import TRIALS_FILE
from discorl.runs.plots import is_number
from discorl.tuning.trials import POINTS

_SHOWN = 20
"""Trials in the first table, and learning curves."""
_OTHERS = GREY
"""The style of trials that are not the best."""


@dataclass(frozen=True)
class _Trial:
    number: int
    values: dict[str, Any]
    mean_return: float | None
    finished: bool
    curve: np.ndarray
    """[n, 2]: look, mean return."""
    error: str | None


def search_part(run: RunData, ident: str) -> Html:
    """Everything about one search, once its trials have ended."""
    problems = list(run.problems)
    trials = attempt(lambda: _read_trials(run), problems) or []
    if not trials and not problems:
        problems.append(
            "It has not finished: its trials are told once all of them have ended. If it is not "
            f"under way, go on with: discorl resume {run.folder}"
        )
    return join(
        [
            notices(problems),
            section("Trials", [_trials(trials)]),
            section("Returns", [_charts(trials, ident)]),
            section("Settings of the search", [_settings(run)]),
            section("Environment", [cards([environment_card(run.env)])]),
            section("How to reproduce", [_reproduce(run)]),
        ]
    )


def count_trials(run: RunData) -> int:
    """How many trials of a search are known to have ended."""
    try:
        return len(_read_trials(run))
    except DiscorlError:
        return 0


def _read_trials(run: RunData) -> list[_Trial]:
    """All trials, the best first; none before the search has ended."""
    path = run.folder / TRIALS_FILE
    if not path.exists():
        return []
    try:
        return [_trial(entry) for entry in read_json(path)["trials"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DiscorlError(f"{TRIALS_FILE} is damaged: {error!r}") from error


def _trial(entry: dict[str, Any]) -> _Trial:
    value, curve = entry["mean_return"], np.array(entry["curve"], dtype=float).reshape(-1, 2)
    return _Trial(
        int(entry["number"]),
        dict(entry["values"]),
        float(value) if is_number(value) else None,
        bool(entry["finished"]),
        curve,
        entry.get("error"),
    )


def _trials(trials: Sequence[_Trial]) -> Html:
    """The best ones, and all others on a click."""
    if not trials:
        return Html()
    names = list(dict.fromkeys(name for trial in trials for name in trial.values))
    header = ("trial", "mean return", "went through", *names, "problem")
    rows = [
        (t.number, t.mean_return, t.finished, *(t.values.get(name) for name in names), t.error)
        for t in trials
    ]
    if not any(trial.error for trial in trials):
        header, rows = header[:-1], [row[:-1] for row in rows]
    note = "The best first. Trials that did not go through were hopeless, and ended early."
    rest = table(header, rows[_SHOWN:])
    more = fold(f"{len(rows) - _SHOWN} more", rest) if rest else Html()
    return join([paragraph(note, "quiet"), table(header, rows[:_SHOWN]), more])


def _charts(trials: Sequence[_Trial], ident: str) -> Html:
    known = sorted((t for t in trials if t.mean_return is not None), key=lambda t: t.number)
    if not known:
        return Html()
    returns = np.array([trial.mean_return for trial in known], dtype=float)
    numbers = np.array([trial.number for trial in known], dtype=float)
    finished = np.array([trial.finished for trial in known])
    best = np.maximum.accumulate(np.where(finished, returns, -np.inf))
    charts = [
        line_chart(
            f"{ident}-trials",
            "Mean return by trial",
            [
                Line("trials", numbers, returns, points=True),
                Line("best so far", numbers, best, style=1),
            ],
            "trial",
            "mean return",
        ),
        _curves(known, f"{ident}-curves"),
    ]
    for name in known[0].values:
        values = [trial.values.get(name) for trial in known]
        if all(is_number(value) for value in values):
            x = np.array(values, dtype=float)
            wide = bool(x.min() > 0 and x.max() > 10 * x.min())
            line = Line("trials", x, returns, points=True)
            charts.append(
                line_chart(
                    f"{ident}-by-{name}",
                    f"Mean return by {name}",
                    [line],
                    name,
                    "mean return",
                    log_x=wide,
                )
            )
    return Html(f'<div class="charts">{"".join(charts)}</div>')


def _curves(known: Sequence[_Trial], ident: str) -> Html:
    """The best trial's learning curve before those of some others."""
    ranked = sorted(known, key=lambda t: (not t.finished, -(t.mean_return or 0.0)))[:_SHOWN]
    lines = []
    for place, trial in reversed(list(enumerate(ranked))):
        if len(trial.curve):
            name = f"the best, trial {trial.number}" if place == 0 else "others"
            x = 100 * trial.curve[:, 0] / POINTS
            lines.append(Line(name, x, trial.curve[:, 1], style=1 if place == 0 else _OTHERS))
    return line_chart(ident, "Learning curves", lines, "share of the run, %", "return")


def _settings(run: RunData) -> Html:
    problems: list[str] = []
    values = attempt(lambda: read_values(run), problems)
    if values is None:
        return notices(problems)
    plain = defaults(run)
    rows = [(name, values[name], plain[name]) for name in differing(values, plain)]
    return table(("setting", "this search", "default"), rows)


def _reproduce(run: RunData) -> Html:
    problems: list[str] = []
    values = attempt(lambda: read_values(run), problems)
    if values is None:
        return notices(problems)
    again, train = tune_commands(run, values)
    return join([command(again), paragraph("To train with what it found:"), command(train)])
