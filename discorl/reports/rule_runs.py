"""A discovery or a distillation as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from discorl.discovery.plots import read_evaluations
from discorl.discovery.run import BEST_FILE
from discorl.distillation.plots import read_teacher
from discorl.reports.cards import environment_card, rule_card
from discorl.reports.charts import Line, band, line_chart
from discorl.reports.differences import defaults, differing, read_values, rule_run_commands
from discorl.reports.gallery import gallery
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
from discorl.runs.folder import RULE_FILE
from discorl.runs.plots import is_number

Evaluation = dict[str, Any]
_X = "meta-steps"
_RESULTS = {
    "fresh_agents_return": "score of fresh agents, at the end",
    "best_fresh_agents_return": "score of fresh agents, at its best",
    "best_meta_step": "best at meta-step",
    "skipped": "meta-gradients skipped",
    "processes": "processes",
    "parameters": "parameters of the student",
    "teacher_parameters": "parameters of the teacher",
    "teacher_fresh_agents_return": "score of the teacher's fresh agents",
}
_RULE_CHARTS = {
    "meta/grad_norm": ("Meta-gradient norm, before clipping", "Euclidean norm", True),
    "meta/update_norm": ("Norm of the rule's update", "Euclidean norm", True),
    "meta/meta_loss": ("Meta-loss", "loss", False),
    "meta/pg_loss": ("Policy-gradient part of the meta-loss", "loss", False),
    "meta/reg_loss": ("Regularising part of the meta-loss", "loss", False),
    "distil/loss": ("What the student minimises", "nats", True),
    "distil/policy_kl": ("From the teacher's policy targets to the student's", "KL, nats", True),
    "distil/y_kl": ("From the teacher's targets of y to the student's", "KL, nats", True),
    "distil/z_kl": ("From the teacher's targets of z to the student's", "KL, nats", True),
    "distil/policy_step": ("From the teacher's targets to the policies", "KL, nats", True),
    "losses/inner_loss": ("The agents' own loss", "loss", False),
    "meta/entropy": ("Policy entropy of the agents", "nats", False),
    "meta/skipped": ("Meta-gradients left out so far", "count", False),
    "time/steps_per_second": ("Speed", "meta-steps / s", False),
}
"""Metric -> title, unit, and whether its axis is logarithmic."""
_LIFE_CHARTS = {
    "population/age": ("Mean age", "updates"),
    "population/lives": ("Lives so far, per agent", "lives"),
    "distil/student_led": ("Agents that learn by the student", "share"),
}


def rule_run_part(run: RunData, ident: str) -> Html:
    """Everything about one discovery or distillation."""
    problems = list(run.problems)
    evaluations = attempt(lambda: read_evaluations(run.folder), problems) or []
    teacher: list[Evaluation] = []
    if run.kind == "distil":
        teacher = attempt(lambda: read_teacher(run.folder), problems) or []
    if not evaluations:
        problems.append("Its rule has not been evaluated on fresh agents yet.")
    return join(
        [
            notices(problems),
            section("Summary", [_summary(run)]),
            _population(run, ident),
            _fresh_agents(run, evaluations, teacher, ident),
            section("The rule's learning", [_charts(run, ident, _RULE_CHARTS)]),
            _lifetimes(run, ident),
            section("Gallery of environments", [_gallery(run)]),
            section("Settings", [_settings(run)]),
            section("Environments and rule", [_cards(run)]),
            section("How to reproduce", [_reproduce(run)]),
        ]
    )


def _summary(run: RunData) -> Html:
    planned = "" if run.finished or run.steps is None else f" of {run.steps:,}"
    rows: list[tuple[str, Any]] = [
        ("environments", run.env),
        ("started from", run.config.get("init")),
        ("teacher", run.config.get("teacher")),
        ("seed", run.config.get("seed")),
        ("agents", run.config.get("agents")),
        (_X, f"{run.step:,}{planned}"),
        ("return of the population, newest", run.newest("population/return")),
        *((text, run.result.get(name)) for name, text in _RESULTS.items()),
    ]
    return table((), [row for row in rows if row[1] is not None])


def _population(run: RunData, ident: str) -> Html:
    envs = _names(run, "population/return/")
    lines = [_line(run, "population/return", "all agents", 0)]
    if len(envs) > 1:
        lines += [_line(run, f"population/return/{e}", e, n) for n, e in enumerate(envs, start=1)]
    chart = line_chart(
        f"{ident}-population",
        "Return of the population",
        lines,
        _X,
        "return of the newest 100 episodes",
        large=True,
    )
    note = "It falls when agents are reborn. Old agents may owe their skill to earlier rules."
    return section("Population", [chart, paragraph(note, "quiet")] if chart else [])


def _fresh_agents(
    run: RunData, evaluations: Sequence[Evaluation], teacher: Sequence[Evaluation], ident: str
) -> Html:
    """Fresh agents by environment over meta-steps, and their lives with the best rule."""
    if not evaluations:
        return Html()
    envs = list(dict.fromkeys(a["env"] for e in evaluations for a in e["agents"]))
    steps = np.array([e["meta_step"] for e in evaluations], dtype=float)
    scores = np.array([e["score"] for e in evaluations], dtype=float)
    # Of a discovery in one environment, the score is the return there.
    alone = len(envs) == 1 and not teacher
    lines = [] if alone else [Line("score", steps, scores, markers=True)]
    for style, env in enumerate(envs, start=1):
        lines += _finals(evaluations, env, style)
    best = max(evaluations, key=lambda e: e["score"] if is_number(e["score"]) else -np.inf)
    newest = evaluations[-1]
    charts = [
        line_chart(
            f"{ident}-fresh",
            "Fresh agents at the end of their lives",
            lines,
            _X,
            "return",
            large=True,
        ),
        _lives(best, envs, f"{ident}-lives", _titled("best", best)),
    ]
    if newest is not best:
        charts.append(_lives(newest, envs, f"{ident}-newest", _titled("newest", newest)))
    if teacher:
        charts.append(
            _lives({"agents": teacher}, envs, f"{ident}-teacher", "Lives with the teacher")
        )
    grid = Html(f'<div class="charts">{"".join(charts)}</div>')
    note = "The rule is held fixed, and new agents learn with it from birth: the measure of a rule."
    many = " Bands reach from the lowest to the highest agent." * any(
        len([a for a in best["agents"] if a["env"] == env]) > 1 for env in envs
    )
    return section(
        "Fresh agents", [paragraph(note + many, "quiet"), grid, _returns(best, teacher, envs)]
    )


def _titled(which: str, evaluation: Evaluation) -> str:
    return f"Lives with the {which} rule, of meta-step {evaluation['meta_step']:,}"


def _final_returns(agents: Sequence[Evaluation], env: str) -> list[float]:
    """What the agents of one environment ended with."""
    own = [agent for agent in agents if agent["env"] == env]
    return [agent["final_return"] for agent in own if is_number(agent.get("final_return"))]


def _finals(evaluations: Sequence[Evaluation], env: str, style: int) -> list[Line]:
    """Mean final return on an environment, evaluation by evaluation."""
    points = [(e["meta_step"], _final_returns(e["agents"], env)) for e in evaluations]
    known = [(step, values) for step, values in points if values]
    if not known:
        return []
    x = np.array([step for step, _ in known], dtype=float)
    low, mean, high = (
        np.array([f(values) for _, values in known], dtype=float) for f in (min, np.mean, max)
    )
    return [Line(env, x, mean, low, high, style, markers=True)]


def _lives(evaluation: Evaluation, envs: Sequence[str], ident: str, title: str) -> Html:
    lines = []
    for style, env in enumerate(envs, start=1):
        own = [
            np.array(a["curve"], dtype=float).reshape(-1, 2)
            for a in evaluation["agents"]
            if a["env"] == env
        ]
        curves = [(curve[:, 0], curve[:, 1]) for curve in own if len(curve)]
        if curves:
            lines.append(band(env, curves, style))
    return line_chart(ident, title, lines, "updates", "return")


def _returns(best: Evaluation, teacher: Sequence[Evaluation], envs: Sequence[str]) -> Html:
    """Final returns with the best rule, beside the teacher's."""
    rows = [
        (env, _mean(best["agents"], env), *([_mean(teacher, env)] if teacher else []))
        for env in envs
    ]
    return table(
        ("environment", "return with the best rule", *(["with the teacher"] if teacher else [])),
        rows,
    )


def _mean(agents: Sequence[Evaluation], env: str) -> float | None:
    values = _final_returns(agents, env)
    return sum(values) / len(values) if values else None


def _charts(run: RunData, ident: str, charts: dict[str, tuple[str, str, bool]]) -> Html:
    drawn = [
        line_chart(
            f"{ident}-{metric.replace('/', '-')}",
            title,
            [_line(run, metric, title, 0)],
            _X,
            unit,
            log=log and _is_positive(run, metric),
        )
        for metric, (title, unit, log) in charts.items()
    ]
    inside = "\n".join(chart for chart in drawn if chart)
    return Html(f'<div class="charts">{inside}</div>') if inside else Html()


def _lifetimes(run: RunData, ident: str) -> Html:
    charts = _charts(run, ident, {name: (*texts, False) for name, texts in _LIFE_CHARTS.items()})
    lifetimes = run.config.get("lifetimes") or []
    text = (
        f"Agents live for one of {', '.join(map(str, lifetimes))} updates, short lives more often."
        if lifetimes
        else "Agents are never reborn."
    )
    return section("Lifetimes", [paragraph(text), charts] if charts else [])


def _settings(run: RunData) -> Html:
    problems: list[str] = []
    values = attempt(lambda: read_values(run), problems)
    if values is None:
        return notices(problems)
    plain = defaults(run)
    rows = [(name, values[name], plain[name]) for name in differing(values, plain)]
    parts = [
        paragraph("These settings differ from the defaults:" if rows else "All are the defaults."),
        table(("setting", "this run", "default"), rows),
        fold("All settings", table(("setting", "this run"), list(values.items()))),
    ]
    return join(parts)


def _environments(run: RunData) -> list[str]:
    """Every environment, without its weight."""
    envs = run.config.get("envs") or []
    return list(dict.fromkeys(str(env).partition("@")[0] for env in envs))


def _gallery(run: RunData) -> Html:
    shown = gallery(_environments(run))
    note = (
        "Of a game, moments of an episode of random play; of a family, some members as they begin."
    )
    return join([paragraph(note, "quiet"), shown]) if shown else Html()


def _cards(run: RunData) -> Html:
    """The best rule, and every environment."""
    best = run.folder / BEST_FILE
    title, path = (
        ("best of this run", best)
        if best.exists()
        else ("newest of this run", run.folder / RULE_FILE)
    )
    return cards([rule_card(title, path), *map(environment_card, _environments(run))])


def _reproduce(run: RunData) -> Html:
    problems: list[str] = []
    values = attempt(lambda: read_values(run), problems)
    if values is None:
        return notices(problems)
    lines = map(command, rule_run_commands(run, values))
    return join([paragraph("By flags, or with the run folder at hand:"), *lines])


def _line(run: RunData, metric: str, name: str, style: int) -> Line:
    points = [(r["step"], r[metric]) for r in run.records if is_number(r.get(metric))]
    x, y = np.array(points, dtype=float).reshape(-1, 2).T
    return Line(name, x, y, style=style)


def _is_positive(run: RunData, metric: str) -> bool:
    return all(r[metric] > 0 for r in run.records if is_number(r.get(metric)))


def _names(run: RunData, prefix: str) -> list[str]:
    found = (name for record in run.records for name in record if name.startswith(prefix))
    return list(dict.fromkeys(name.removeprefix(prefix) for name in found))
