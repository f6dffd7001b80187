"""A comparison as a table, for the terminal and for Markdown."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from discorl.comparison.summary import Group, GroupScore, Summary
from discorl.envs.published import published_figures
from discorl.files import write_atomically

_MISSING = "–"  # noqa: RUF001


def table_rows(summary: Summary) -> list[list[str]]:
    """The table's cells, the header first and the interquartile means last."""
    rules = summary.config.rules
    rows = [["environment", "0 is", "1 is", *rules]]
    for env, scale in summary.scales.items():
        groups = [summary.groups[rule, env] for rule in rules]
        one = _MISSING
        if scale is not None:
            one = f"{scale.one:.3f}{'*' if scale.one_is == 'best rule' else ''}"
        random = summary.anchors[env].random_return
        zero = _MISSING if random is None else f"{random:.3f}"
        rows.append([env, zero, one, *(_score(g, summary.config.seeds) for g in groups)])
        rows += _field_scores(summary, env)
    rows.append(["environment steps", "", "", *(_env_steps(summary, rule) for rule in rules)])
    rows.append(["IQM [95% interval]", "", "", *(_estimate(summary, rule) for rule in rules)])
    return rows


def notes(summary: Summary) -> list[str]:
    """What readers of the table must know."""
    config = summary.config
    spread = f"Mean ± standard deviation over {config.seeds} seed{'s' if config.seeds > 1 else ''}."
    lines = [
        "Scores are of the last 100 training episodes: 0 is the return of random play, 1 of "
        f"perfect play. {spread}"
        if config.against is None
        else "Scores are of the mean return along the whole learning curve: 0 is that of random "
        f"play, 1 that of {config.against}. {spread}"
    ]
    kinds = {scale.one_is for scale in summary.scales.values() if scale is not None}
    if "best rule" in kinds:
        lines.append("* The best return is not known: 1 is the best rule's mean.")
    nobody = "no rule does" if config.against is None else f"{config.against} does not do"
    lines += [
        f"{env}: {nobody} better than random play, so it is left out of the IQM."
        for env, scale in summary.scales.items()
        if scale is None
    ]
    if any(_field_scores(summary, env) for env in config.envs):
        lines.append(
            "Scores by name are as the field reports them: means over seeds, with 95% t-intervals, "
            "and random play's in the second column."
        )
    for rule in config.rules:
        parts = [f"{n.replace('_', ' ')} {value:.3f}" for n, value in summary.bsuite(rule).items()]
        lines += [f"bsuite by capability, {rule}: {', '.join(parts)}."] if parts else []
    if config.env_steps is not None:
        lines.append(f"Runs have {config.env_steps:,} environment steps, in whole rollouts.")
    elif len({summary.env_steps(rule) for rule in config.rules} - {None}) > 1:
        lines.append("The rules' runs differ in environment steps: see that row.")
    if summary.failed:
        cells = len(config.rules) * len(config.envs) * config.seeds
        lines.append(f"{len(summary.failed)} of {cells} runs failed and are not in the numbers.")
    return lines


def published_rows(summary: Summary) -> list[list[str]]:
    """Published figures for the environments as a table's cells, the header first; nothing if
    there are none."""
    rows = [
        [env, figures.measure, figures.steps, str(figures), figures.source]
        for env in summary.config.envs
        for figures in published_figures(env)
    ]
    header = ["environment", "published", "steps", "figures", "source"]
    return [header, *rows] if rows else []


def make_table(summary: Summary) -> Table:
    """The table for a terminal."""
    header, *rows = table_rows(summary)
    table = _empty_table(header)
    for row in rows:
        if row is rows[-1]:
            table.add_section()
        table.add_row(*map(Text, row), style="bold" if row is rows[-1] else None)
    return table


def make_published_table(summary: Summary) -> Table | None:
    """Published figures for a terminal, the sources in full below; None if there are none."""
    rows = published_rows(summary)
    if not rows:
        return None
    header, *rows = rows
    sources = dict.fromkeys(row[-1] for row in rows)
    table = Table(caption=Text("\n".join(sources)), caption_justify="left")
    for column in header:
        table.add_column(column, overflow="fold")
    for *cells, source in rows:
        table.add_row(*map(Text, cells), Text(source.partition(",")[0]))
    return table


def _empty_table(header: list[str]) -> Table:
    table = Table()
    for index, column in enumerate(header):
        table.add_column(Text(column), justify="right" if index else "left", overflow="fold")
    return table


def write_markdown(summary: Summary, path: Path) -> None:
    """The table and its notes as Markdown."""
    text = _markdown_table(table_rows(summary))
    text += "".join(f"\n\n{note.replace('*', '&#42;')}" for note in notes(summary))
    if published := published_rows(summary):
        text += f"\n\n{_markdown_table(published)}"
    write_atomically(path, lambda p: p.write_text(text + "\n"))


def _markdown_table(table: list[list[str]]) -> str:
    header, *rows = table
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _score(group: Group, seeds: int) -> str:
    if len(group.scores) == 0:
        return _MISSING
    text = f"{group.scores.mean():.3f}"
    if len(group.scores) > 1:
        text += f" ± {group.scores.std(ddof=1):.3f}"
    return text if len(group.scores) == seeds else f"{text} ({len(group.scores)} of {seeds})"


def _field_scores(summary: Summary, env: str) -> list[list[str]]:
    """A row of the score that the field reports for an environment; none if it has none."""
    found = [summary.groups[rule, env].field_score(env) for rule in summary.config.rules]
    names = {score.name.replace("_", " ") for score in found if score is not None}
    if not names:
        return []
    random = summary.random_score(env)
    zero = _MISSING if random is None else f"{random.value:.3f}"
    return [[f"{env}: {names.pop()}", zero, "", *map(_with_interval, found)]]


def _with_interval(score: GroupScore | None) -> str:
    if score is None:
        return _MISSING
    between = score.estimate
    text = f"{score.values.mean():.3f}"
    return text if between is None else f"{text} [{between.low:.3f}, {between.high:.3f}]"


def _env_steps(summary: Summary, rule: str) -> str:
    steps = summary.env_steps(rule)
    return _MISSING if steps is None else f"{steps:,}"


def _estimate(summary: Summary, rule: str) -> str:
    estimate = summary.estimates[rule]
    if estimate is None:
        return _MISSING
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
