"""What training runs were set up with: settings, environment, rule, and how to do it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from discorl.reports.cards import environment_card, rule_card
from discorl.reports.differences import (
    Preset,
    defaults,
    differing,
    find_preset_of,
    passed_as_object,
    read_values,
    train_commands,
)
from discorl.reports.markup import (
    Html,
    cards,
    command,
    escape,
    fold,
    join,
    notices,
    paragraph,
    section,
    table,
)
from discorl.reports.read import RunData, attempt
from discorl.runs.folder import RULE_FILE

Experiments = dict[str, list[RunData]]
"""Name -> runs that differ in their seed alone."""


def settings_section(experiments: Experiments) -> Html:
    """What was set, experiment by experiment."""
    titled = len(experiments) > 1
    parts = [_settings(label if titled else "", runs[0]) for label, runs in experiments.items()]
    return section("Settings", parts)


def _settings(title: str, run: RunData) -> Html:
    """What was set otherwise than in the preset, than by default, and everything."""
    problems: list[str] = []
    values = attempt(lambda: read_values(run), problems)
    if values is None:
        return notices(problems)
    preset = find_preset_of(run, values)
    changed = [] if preset is None else differing(values, preset.values)
    own = [name for name in changed if name != "seed"]
    return join(
        [
            Html(f"<h3>{escape(title)}</h3>" if title else ""),
            _against_preset(values, preset, own, defaults(run)),
            _against_defaults(values, defaults(run), own),
            fold("All settings", table(("setting", "this run"), list(values.items()))),
        ]
    )


def _against_preset(
    values: dict[str, Any], preset: Preset | None, own: list[str], plain: dict[str, Any]
) -> Html:
    if preset is None:
        return paragraph("Which preset it began with cannot be told.", "quiet")
    differs = "These settings differ from it:" if own else "No setting differs from it."
    rows = [(name, values[name], preset.values[name], plain[name]) for name in own]
    return join(
        [
            paragraph(f"Nearest preset: {preset.name}. {differs}"),
            table(("setting", "this run", "preset", "default"), rows),
        ]
    )


def _against_defaults(values: dict[str, Any], plain: dict[str, Any], own: list[str]) -> Html:
    """The rest of what differs from the defaults, folded away: the preset's doing."""
    told = {"env", "rule", "seed", *own}
    rows = [(n, values[n], plain[n]) for n in differing(values, plain) if n not in told]
    if not rows:
        return Html()
    title = f"{len(rows)} more that differ from the defaults"
    return fold(title, table(("setting", "this run", "default"), rows))


def cards_section(experiments: Experiments) -> Html:
    """A box for each environment and each rule."""
    firsts = [runs[0] for runs in experiments.values()]
    envs = {run.env: run.folder for run in reversed(firsts)}
    rules = {run.rule: run.folder / RULE_FILE for run in reversed(firsts)}
    boxes = [
        *(environment_card(env, folder) for env, folder in reversed(envs.items())),
        *(rule_card(rule, path) for rule, path in reversed(rules.items())),
    ]
    return section("Environment and rule", [cards(boxes)])


def reproduce_section(experiments: Experiments) -> Html:
    """The commands that make the same runs again."""
    note = (
        "With the same seed, device and number of threads, and the same versions of discorl and "
        "PyTorch, the same numbers come out."
    )
    parts = [*map(_commands, experiments.values()), paragraph(note, "quiet")]
    return section("How to reproduce", parts)


def _commands(runs: Sequence[RunData]) -> Html:
    """The commands that train the same again, or why there are none."""
    problems: list[str] = []
    values = attempt(lambda: read_values(runs[0]), problems)
    if values is None:
        return notices(problems)
    if what := passed_as_object(runs[0], values):
        return paragraph(f"The {what} was passed as an object, from Python: no command names it.")
    lines = train_commands(runs, values, find_preset_of(runs[0], values))
    return join([paragraph("By flags, or with the run folder at hand:"), *map(command, lines)])
