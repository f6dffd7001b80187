"""Boxes that say what a rule and an environment are, and where they come from."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from discorl.envs.families import PREFIX, find_family
from discorl.envs.registry import GAMES, is_external, make_game, optimal_return
from discorl.envs.settings import default_settings
from discorl.envs.spaces import ObservationReader
from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.library.catalogue import RULES, StoredRule, load_rule, parameter_count
from discorl.observations import spec_entries
from discorl.reports.markup import Html, card, show
from discorl.rules.base import UpdateRule
from discorl.settings import split_spec
from discorl.training.blueprint import AGENT_FILE, DAMAGE, Blueprint

_HIDDEN = ("path", "config", "evaluation")
"""Provenance that is of this machine, or long and elsewhere in the report."""


def environment_card(env: str, folder: Path | None = None) -> Html:
    """What an environment is. None is made: the run folder tells what its agent sees.

    Args:
      folder: of a run that was trained in it.
    """
    entries: list[tuple[str, Any]] = []
    try:
        if env.startswith(f"{PREFIX}:"):
            entries = _family(env)
        elif not is_external(env):
            entries = _game(env)
    except DiscorlError as error:
        entries = [("problem", str(error))]
    return card(f"Environment: {env}", [*entries, *(_seen(folder) if folder else [])])


def rule_card(name: str, path: Path) -> Html:
    """What a rule is, and its provenance.

    Args:
      name: as the run's settings have it.
      path: of the run's own copy, if it is discovered.
    """
    try:
        rule = load_rule(path) if path.exists() else _hand_written(name)
    except DiscorlError as error:
        return card(f"Rule: {name}", [("problem", str(error))])
    if rule is None:
        return card(f"Rule: {name}", [("origin", "passed as an object, of which no copy was kept")])
    size, config = parameter_count(rule), asdict(rule.config)
    provenance = getattr(rule, "provenance", {}) or {"origin": "code of discorl"}
    entries = [
        ("name", rule.name),
        ("kind", f"discovered, {size:,} parameters" if size else "written by hand"),
        *((key.replace("_", " "), text) for key, text in provenance.items() if key not in _HIDDEN),
        ("evaluation", _score(provenance.get("evaluation"))),
        ("sizes", _listed(config.pop("sizes", {}))),
        ("settings", _listed(config)),
    ]
    return card(f"Rule: {name}", entries)


def _hand_written(name: str) -> UpdateRule | None:
    """A rule that is code; files that the settings name are not opened."""
    entry = RULES.get(split_spec(name)[0])
    return None if entry is None or isinstance(entry, StoredRule) else load_rule(name)


def _score(evaluation: str | None) -> str | None:
    """What the evaluation that a rule carries says of it."""
    if evaluation is None:
        return None
    try:
        return f"fresh agents score {json.loads(evaluation)['score']:.3f}"
    except (ValueError, KeyError, TypeError):
        return None


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={show(value)}" for key, value in values.items())


def _family(env: str) -> list[tuple[str, Any]]:
    family = find_family(env)
    summary = None if family is None else family.summary
    return [("what it is", summary), ("members", "drawn from the family")]


def _game(env: str) -> list[tuple[str, Any]]:
    game, best = make_game(env), optimal_return(env)
    return [
        ("what it is", (type(game).__doc__ or "").split("\n")[0]),
        ("settings", _game_settings(game)),
        ("best return", "not known" if best is None else f"{best:.3f}, on average"),
    ]


def _game_settings(game: Any) -> str:
    kind = next((kind for kind in GAMES.values() if type(game) is kind), None)
    names = [] if kind is None else default_settings(kind)
    return _listed({name: getattr(game, name) for name in names})


def _seen(folder: Path) -> list[tuple[str, Any]]:
    """What the agent sees and does, as its file tells."""
    try:
        blueprint = Blueprint.from_json(read_json(folder / AGENT_FILE))
        spec = spec_entries(ObservationReader(blueprint.observation_space).spec)
    except (DiscorlError, *DAMAGE):
        return []
    shapes = ", ".join(f"{name} {entry}" for name, entry in spec.items())
    actions = blueprint.heads.state.get("logits", (None,))[0]
    return [("observations", shapes.removeprefix("observations ")), ("actions", actions)]
