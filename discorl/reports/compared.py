"""A comparison as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from discorl.comparison.anchors import Anchors
from discorl.comparison.cells import CellResult, salvage_cells
from discorl.comparison.config import CompareConfig
from discorl.comparison.report import notes, published_rows, table_rows
from discorl.comparison.run import CELLS, RESULTS_FILE, RULES, read_anchors
from discorl.comparison.summary import Summary, summarise
from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.reports.cards import environment_card, rule_card
from discorl.reports.charts import Bar, Line, band, bar_chart, key_of, line_chart
from discorl.reports.differences import compare_command, defaults, differing, read_values
from discorl.reports.markup import (
    Html,
    cards,
    command,
    join,
    notices,
    paragraph,
    section,
    table,
)
from discorl.reports.read import RunData, attempt
from discorl.statistics import improvement_estimate, performance_profile

_THRESHOLDS = 101


def comparison_part(run: RunData, ident: str) -> Html:
    """Everything about one comparison, as far as it has come."""
    problems = list(run.problems)
    config = attempt(lambda: CompareConfig.from_json(run.config), problems)
    if config is None or not run.config:
        return notices(problems)
    results, damaged = salvage_cells(run.folder / CELLS)
    anchors = attempt(lambda: read_anchors(config, run.folder), problems) or _no_anchors(config)
    summary = summarise(config, anchors, _own(results, config))
    problems += [*damaged, *_missing(run, summary), *_failed(run)]
    return join(
        [
            notices(problems),
            section("Scores", _scores(summary, ident)),
            _profiles(summary, ident),
            _improvements(summary, ident),
            _curves(summary, ident),
            section("Settings", [_settings(run)]),
            section("Environments and discovered rules", [_cards(run, config)]),
            section("How to reproduce", [_reproduce(run)]),
        ]
    )


def count_runs(run: RunData) -> tuple[int, int | None]:
    """How many runs of a comparison have finished, and of how many, if its settings tell."""
    done = len(list((run.folder / CELLS).glob("*.json")))
    try:
        config = CompareConfig.from_json(run.config)
    except DiscorlError:
        return done, None
    return done, len(config.rules) * len(config.envs) * config.seeds


def _own(results: Sequence[CellResult], config: CompareConfig) -> list[CellResult]:
    """The results that belong to the comparison as it is now, each once."""
    cells = {(r.rule, r.env, r.seed): r for r in results}
    return [
        result
        for (rule, env, seed), result in cells.items()
        if rule in config.rules and env in config.envs and 0 <= seed < config.seeds
    ]


def _no_anchors(config: CompareConfig) -> dict[str, Anchors]:
    return {env: Anchors(None, 0, None) for env in config.envs}


def _missing(run: RunData, summary: Summary) -> list[str]:
    config = summary.config
    planned = len(config.rules) * len(config.envs) * config.seeds
    done = sum(len(group.runs) for group in summary.groups.values())
    if done == planned:
        return []
    return [
        f"{done} of {planned} runs have finished: the numbers are of these. If it is not under "
        f"way, go on with: discorl resume {run.folder}"
    ]


def _failed(run: RunData) -> list[str]:
    """The runs that the finished comparison could not do, with their errors."""
    path = run.folder / RESULTS_FILE
    problems: list[str] = []
    found: Any = attempt(lambda: read_json(path), problems) if path.exists() else {}
    failed = found.get("failed", []) if isinstance(found, dict) else []
    for entry in failed if isinstance(failed, list) else []:
        if isinstance(entry, dict):
            where = f"{entry.get('rule')} on {entry.get('env')}, seed {entry.get('seed')}"
            problems.append(f"Failed: {where}: {entry.get('error')}")
    return problems


def _scores(summary: Summary, ident: str) -> list[Html]:
    bars = [
        Bar(rule, estimate, style)
        for style, rule in enumerate(summary.config.rules)
        if (estimate := summary.estimates[rule]) is not None
    ]
    chart = bar_chart(
        f"{ident}-iqm",
        "Interquartile mean of scores, with 95% intervals",
        bars,
        "score: 0 is random play",
    )
    absent = [rule for rule in summary.config.rules if summary.estimates[rule] is None]
    text = f"Without a run on each environment there is no mean: {', '.join(absent)}."
    header, *rows = table_rows(summary)
    published = published_rows(summary)
    return [
        chart,
        paragraph(text, "quiet") if absent else Html(),
        table(header, rows),
        *(paragraph(note, "quiet") for note in notes(summary)),
        *([table(published[0], published[1:])] if published else []),
    ]


def _by_rule(summary: Summary) -> dict[str, list[np.ndarray]]:
    """Rule -> its scores on each environment, for rules that have some on each."""
    scored = [env for env in summary.config.envs if summary.scales[env] is not None]
    return {
        rule: [summary.groups[rule, env].scores for env in scored]
        for rule in summary.config.rules
        if summary.estimates[rule] is not None
    }


def _profiles(summary: Summary, ident: str) -> Html:
    scores = _by_rule(summary)
    if not scores:
        return Html()
    every = np.concatenate([part for parts in scores.values() for part in parts])
    thresholds = np.linspace(min(0.0, every.min()), max(1.0, every.max()), _THRESHOLDS)
    rules = summary.config.rules
    lines = []
    for rule, parts in scores.items():
        profile = performance_profile(parts, thresholds)
        low, value, high = (
            np.array([getattr(e, name) for e in profile]) for name in ("low", "value", "high")
        )
        lines.append(Line(rule, thresholds, value, low, high, rules.index(rule)))
    note = (
        "The share of runs that score above a threshold: the higher line is better. Bands are 95% "
        "intervals."
    )
    chart = line_chart(
        f"{ident}-profiles",
        "Performance profiles",
        lines,
        "score threshold",
        "share of runs above it",
        large=True,
    )
    return section("Performance profiles", [chart, paragraph(note, "quiet")])


def _improvements(summary: Summary, ident: str) -> Html:
    scores = _by_rule(summary)
    bars = [
        Bar(
            f"{rule} over {other}",
            improvement_estimate(scores[rule], scores[other]),
            summary.config.rules.index(rule),
        )
        for rule, other in combinations(scores, 2)
    ]
    note = (
        "How likely a run of the first scores more than a run of the second in the same "
        "environment; a draw counts half. At 0.5 neither is better."
    )
    chart = bar_chart(
        f"{ident}-improvement",
        "Probability of improvement, with 95% intervals",
        bars,
        "probability",
        probability=True,
    )
    return section("Probability of improvement", [chart, paragraph(note, "quiet")] if chart else [])


def _curves(summary: Summary, ident: str) -> Html:
    rules = summary.config.rules
    charts = []
    for number, env in enumerate(summary.config.envs):
        lines = []
        for style, rule in enumerate(rules):
            runs = [np.array(run.curve_by_env_steps()) for run in summary.groups[rule, env].runs]
            if runs:
                lines.append(band(rule, [(c[:, 0], c[:, 1]) for c in runs], style))
        scale = summary.scales[env]
        levels = [summary.anchors[env].random_return, scale.one if scale else None]
        charts.append(
            line_chart(
                f"{ident}-env-{number}",
                env,
                lines,
                "environment steps",
                "return",
                key=False,
                levels=[level for level in levels if level is not None],
            )
        )
    inside = "\n".join(chart for chart in charts if chart)
    if not inside:
        return Html()
    note = (
        "Lines are means over seeds, bands reach from the lowest to the highest seed. Dotted lines "
        "are scores of 0 (random play) and 1."
    )
    key = key_of(dict(enumerate(rules)))
    grid = Html(f'<div class="charts">{inside}</div>')
    return section("Learning curves", [key, paragraph(note, "quiet"), grid])


def _cards(run: RunData, config: CompareConfig) -> Html:
    """A box for each environment, and for each discovered rule as it was copied."""
    copies = sorted((run.folder / RULES).glob("*.safetensors"))
    rules = [rule_card(path.stem.partition("-")[2], path) for path in copies]
    return cards([*map(environment_card, config.envs), *rules])


def _settings(run: RunData) -> Html:
    values, plain = read_values(run), defaults(run)
    rows = [(name, values[name], plain[name]) for name in differing(values, plain)]
    return table(("setting", "this comparison", "default"), rows)


def _reproduce(run: RunData) -> Html:
    return command(compare_command(read_values(run)))
