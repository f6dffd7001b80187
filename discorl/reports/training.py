"""Training runs as sections of a page; runs that differ in their seed alone are one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from discorl.envs.published import published_figures
from discorl.life.life import PHASES
from discorl.reports.charts import Box, Line, band, box_chart, key_of, line_chart, share_chart
from discorl.reports.episodes import Played, read_episodes
from discorl.reports.films import Film, own_films
from discorl.reports.markup import (
    Html,
    embedded,
    join,
    notices,
    paragraph,
    picture,
    section,
    table,
)
from discorl.reports.read import RunData, attempt
from discorl.reports.setup import Experiments, cards_section, reproduce_section, settings_section
from discorl.runs.plots import (
    AXES,
    EPISODE_RETURN,
    EPISODES,
    Axis,
    Curve,
    choose_axis,
    group_seeds,
    is_number,
    make_curve,
)
from discorl.statistics import mean_estimate

_UNITS = {
    "charts/episode_return": "return of the newest 100 episodes",
    "charts/episode_length": "actions",
    "eval/return_greedy": "return",
    "eval/return_sampled": "return",
    "rule/entropy": "nats",
    "rule/global_gradient_norm": "Euclidean norm",
    "rule/global_update_norm": "Euclidean norm",
    "time/steps_per_second": "training steps / s",
}
"""Metric -> what stands at its axis."""
_RESULTS = {
    "episode_return": "return, last episodes",
    "eval_return_greedy": "evaluation, greedy",
    "eval_return_sampled": "evaluation, sampled",
}
_SCORES = {
    "score": "score",
    "score_training": "score, training",
    "score_evaluation": "score, sampled evaluation",
}
"""Of runs in environments for which the field reports a score in place of the return."""


def training_part(
    runs: Sequence[RunData], ident: str, films: Mapping[Path, Film] | None = None
) -> Html:
    """Everything about some training runs; films are of runs whose folders hold none."""
    experiments = group_seeds(runs)
    problems = [f"{run.folder}: {problem}" for run in runs for problem in run.problems]
    played = {run.folder: attempt(partial(read_episodes, run.folder), problems) for run in runs}
    return join(
        [
            notices(problems),
            section(
                "Summary",
                [_runs_table(runs), _means_table(experiments), _published(runs)],
                f"{ident}-summary",
            ),
            _curves(experiments, ident),
            _evaluation_episodes(runs, played, ident),
            _films(runs, films or {}),
            _time(runs, experiments, ident),
            settings_section(experiments),
            cards_section(experiments),
            reproduce_section(experiments),
        ]
    )


def _results(runs: Iterable[RunData]) -> dict[str, str]:
    """What is shown of results; scores only where there are some."""
    return _RESULTS | (_SCORES if any("score" in run.result for run in runs) else {})


def _runs_table(runs: Sequence[RunData]) -> Html:
    results = _results(runs)
    header = (
        "run",
        "environment",
        "rule",
        "seed",
        "training steps",
        "environment steps",
        "episodes",
        *results.values(),
        "seconds",
    )
    rows = [
        (
            run.folder.name,
            run.env,
            run.rule,
            run.config.get("seed"),
            progress_text(run),
            run.newest("charts/env_steps"),
            run.newest(EPISODES),
            run.newest(EPISODE_RETURN),
            *(run.result.get(name) if run.finished else None for name in list(results)[1:]),
            run.newest("time/seconds"),
        )
        for run in runs
    ]
    return table(header, rows)


def progress_text(run: RunData) -> str:
    """How far a run is, in words."""
    if run.finished:
        return f"{run.step:,}"
    return f"{run.step:,}" + ("" if run.steps is None else f" of {run.steps:,}")


def _means_table(experiments: Experiments) -> Html:
    """Means over seeds, with their intervals."""
    rows = []
    results = _results(run for runs in experiments.values() for run in runs)
    results.pop("score", None)
    for label, runs in experiments.items():
        done = [run for run in runs if run.finished]
        cells = [_mean_text([run.result.get(name) for run in done]) for name in results]
        if any(cells):
            rows.append((label, len(done), *cells))
    if not rows:
        return Html()
    note = paragraph("Means over seeds, with 95% t-intervals in brackets.", "quiet")
    return join([note, table(("experiment", "seeds", *results.values()), rows)])


def _published(runs: Sequence[RunData]) -> Html:
    """Figures of others, for the environments that have some."""
    rows = [
        (figures.env, figures.measure, figures.steps, str(figures), figures.source)
        for env in dict.fromkeys(run.env for run in runs)
        for figures in published_figures(env)
    ]
    if not rows:
        return Html()
    header = ("environment", "published", "environment steps", "figures", "source")
    return join([paragraph("Figures that others published.", "quiet"), table(header, rows)])


def _mean_text(values: Sequence[Any]) -> str | None:
    estimate = mean_estimate(np.array([v for v in values if is_number(v)], dtype=float))
    if estimate is None:
        return None
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _curves(experiments: Experiments, ident: str) -> Html:
    drawn = _Drawn(experiments, ident)
    losses = sorted(
        {
            name
            for runs in experiments.values()
            for run in runs
            for record in run.records[-5:]
            for name in record
            if name.startswith("losses/")
        },
        key=lambda name: (name != "losses/total_loss", name),
    )
    policy = [
        drawn.chart("rule/entropy", "Policy entropy"),
        drawn.chart("rule/global_gradient_norm", "Gradient norm"),
        drawn.chart("rule/global_update_norm", "Update norm"),
    ]
    shown = [drawn.chart(name, name.partition("/")[2].replace("_", " ")) for name in losses]
    return join(
        [
            section("Learning", [drawn.key(), _grid(_learning(drawn))], f"{ident}-learning"),
            section("Entropy and updates", [drawn.key(), _grid(policy)]),
            section("Losses", [drawn.key(), _grid(shown)]),
        ]
    )


def _learning(drawn: _Drawn) -> list[Html]:
    """Charts of returns; environments have their own, because their scales differ."""
    charts = []
    for env in drawn.envs:
        where = f", {env}" if len(drawn.envs) > 1 else ""
        charts += [
            drawn.chart(EPISODE_RETURN, f"Learning curve{where}", env, large=True),
            drawn.evaluations(f"Evaluations{where}: greedy (solid) and sampled (dashed)", env),
            drawn.chart("charts/episode_length", f"Episode length{where}", env),
        ]
    return charts


class _Drawn:
    """Draws one metric of all experiments after the other, in the same colours."""

    def __init__(self, experiments: Experiments, ident: str) -> None:
        self._experiments, self._ident = experiments, ident
        known = [c for runs in experiments.values() for c in _run_curves(runs, EPISODE_RETURN)]
        self._axis: Axis = choose_axis(known) if known else "steps"
        self.envs = list(dict.fromkeys(runs[0].env for runs in experiments.values()))
        seeds = {label: len(runs) for label, runs in experiments.items()}
        self._names = {
            label: f"{label}, {n} seeds" if n > 1 else label for label, n in seeds.items()
        }

    def key(self) -> Html:
        """Which experiment has which colour."""
        names = dict(enumerate(self._names.values()))
        many = any(len(runs) > 1 for runs in self._experiments.values())
        note = "Lines are means over seeds, bands reach from the lowest to the highest seed."
        said = paragraph(note, "quiet") if many else Html()
        return join([key_of(names), said]) if len(names) > 1 or many else Html()

    def chart(self, metric: str, title: str, env: str | None = None, large: bool = False) -> Html:
        """One metric, in one environment or in all; nothing if no run has it."""
        return line_chart(
            self._chart_id(metric, env),
            title,
            self._lines(metric, env),
            AXES[self._axis][1],
            _UNITS.get(metric, "loss"),
            key=False,
            large=large,
        )

    def evaluations(self, title: str, env: str) -> Html:
        """Greedy and sampled in one chart."""
        greedy = self._lines("eval/return_greedy", env, "greedy", "solid")
        sampled = self._lines("eval/return_sampled", env, "sampled", "dash")
        ident, x = self._chart_id("eval", env), AXES[self._axis][1]
        return line_chart(ident, title, [*greedy, *sampled], x, "return", key=False)

    def _lines(
        self, metric: str, env: str | None, what: str = "", dash: str | None = None
    ) -> list[Line]:
        lines = []
        for style, (label, runs) in enumerate(self._experiments.items()):
            if env not in (None, runs[0].env):
                continue
            curves = [c for c in _run_curves(runs, metric) if self._axis in c.x]
            if curves:
                name = f"{self._names[label]}, {what}" if what else self._names[label]
                line = band(name, [(c.x[self._axis], c.values) for c in curves], style)
                lines.append(replace(line, dash=dash))
        return lines

    def _chart_id(self, metric: str, env: str | None) -> str:
        place = "" if env is None else f"-{self.envs.index(env)}"
        return f"{self._ident}-{metric.replace('/', '-')}{place}"


def _run_curves(runs: Sequence[RunData], metric: str) -> list[Curve]:
    found = (make_curve(run.config, run.records, run.folder.name, metric) for run in runs)
    return [curve for curve in found if curve is not None]


def _grid(charts: Sequence[Html]) -> Html:
    inside = "\n".join(chart for chart in charts if chart)
    return Html(f'<div class="charts">{inside}</div>') if inside else Html()


def _evaluation_episodes(
    runs: Sequence[RunData], played: dict[Path, Played | None], ident: str
) -> Html:
    """How every episode of each run's newest evaluation went."""
    boxes, rows = [], []
    for run in runs:
        found = played[run.folder]
        for style, (kind, episodes) in enumerate((found.kinds if found else {}).items()):
            name = f"{run.folder.name}, {kind}" if len(runs) > 1 else kind
            boxes.append(Box(name, episodes.returns, style))
            rows.append((name, found.step if found else None, *episodes.statistics()))
    header = ("episodes", "training step", "count", "mean return", "standard deviation", "lowest",
              "median", "highest", "mean length")  # fmt: skip
    note = "Each dot is an episode, the box spans the middle half of them."
    title = "Returns of the evaluation's episodes"
    chart = box_chart(f"{ident}-episodes", title, boxes, "return")
    parts = [chart, paragraph(note, "quiet"), table(header, rows)] if boxes else []
    return section("Evaluation episodes", parts)


def _films(runs: Sequence[RunData], films: Mapping[Path, Film]) -> Html:
    """The agents at play, from their folders or filmed for this page."""
    shown = [
        picture(path, f"{run.folder.name}/{path.relative_to(run.folder)}")
        for run in runs
        for path in own_films(run.folder)
    ]
    shown += [
        paragraph(film.words, "quiet")
        if film.gif is None
        else embedded(film.gif, "gif", film.words)
        for film in films.values()
    ]
    return section(
        "The agent at play", [Html(f'<div class="films">{"".join(shown)}</div>')] * bool(shown)
    )


def _time(runs: Sequence[RunData], experiments: Experiments, ident: str) -> Html:
    rows = []
    for run in runs:
        shares: dict[str, Any] = {p: run.result.get(f"share_{p}") for p in PHASES}
        known = {phase: share for phase, share in shares.items() if is_number(share)}
        if run.finished and known:
            name = run.folder.name if len(runs) > 1 else "time"
            rows.append((name, known))
    speed = _Drawn(experiments, ident).chart("time/steps_per_second", "Speed")
    charts = [
        share_chart(f"{ident}-shares", "Where the time went", rows, "share of the time, %"),
        speed,
    ]
    return section("Time", [_grid(charts)])
