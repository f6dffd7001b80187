"""What was set in a run: against its preset and the defaults, and as a command to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from discorl.comparison.config import CompareConfig
from discorl.discovery.config import DiscoverConfig
from discorl.distillation.config import DistilConfig
from discorl.envs.registry import GIVEN, is_external
from discorl.envs.spaces import ObservationReader
from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.library.catalogue import RULES
from discorl.reports.read import RunData
from discorl.runs.folder import CONFIG_FILE, RULE_FILE
from discorl.settings import flat_settings, split_spec, typed
from discorl.training.blueprint import AGENT_FILE, DAMAGE, Blueprint
from discorl.training.config import TrainConfig
from discorl.training.paper import is_in_paper
from discorl.training.presets import Kind, PresetName, make_config, observation_kind
from discorl.tuning.config import TuneConfig

PRESET_FILE = "preset.json"
"""In the folder of a search: the best trial's settings."""

AnyConfig = TrainConfig | DiscoverConfig | DistilConfig | CompareConfig | TuneConfig
CONFIGS: dict[str, type[AnyConfig]] = {
    "train": TrainConfig,
    "discover": DiscoverConfig,
    "distil": DistilConfig,
    "compare": CompareConfig,
    "tune": TuneConfig,
}
"""Command -> its settings."""


@dataclass(frozen=True)
class Preset:
    """What a run would have been without flags."""

    name: PresetName
    values: dict[str, Any]


def read_values(run: RunData) -> dict[str, Any]:
    """A run's settings by flat name, in their declared types; DiscorlError if they are none."""
    return flat_settings(CONFIGS[run.kind].from_json(run.config))


def defaults(run: RunData) -> dict[str, Any]:
    """The defaults of the same settings."""
    return flat_settings(CONFIGS[run.kind]())


def differing(values: dict[str, Any], others: dict[str, Any]) -> list[str]:
    """The names of settings that differ, in the order of the settings."""
    return [name for name, value in values.items() if others.get(name, value) != value]


def find_preset_of(run: RunData, values: dict[str, Any]) -> Preset | None:
    """The preset that a training run is nearest to; None if it cannot be told.

    No environment is made: what the agent sees is read from the run folder.
    """
    rule = split_spec(values["rule"])[0]
    if not _knows_rule(run, values):
        return None
    try:
        kind = _observed(run.folder) if is_external(values["env"]) else None
        names = [n for n in get_args(PresetName) if n != "paper" or is_in_paper(values["env"])]
        found = [_preset(values, rule, name, kind) for name in names]
    except (DiscorlError, *DAMAGE):
        return None
    return min(found, key=lambda preset: len(differing(values, preset.values)))


def passed_as_object(run: RunData, values: dict[str, Any]) -> str | None:
    """What of a training run was passed as an object, which no command can name, if anything."""
    if values["env"].startswith(GIVEN):
        return "environment"
    return None if _knows_rule(run, values) else "rule"


def train_commands(
    runs: Sequence[RunData], values: dict[str, Any], preset: Preset | None
) -> list[str]:
    """What trains the same agents again: by flags, if the preset is known, and by the settings'
    file."""
    run, seeds = runs[0], _seeds(runs)
    by_file = _join(["train", "--config", str(run.folder / CONFIG_FILE), *seeds])
    if preset is None:
        return [by_file]
    known = split_spec(values["rule"])[0] in RULES
    words = [values["env"], "--rule", values["rule"] if known else str(run.folder / RULE_FILE)]
    words += [] if preset.name == "default" else ["--preset", preset.name]
    changed = [n for n in differing(values, preset.values) if n not in ("env", "rule", "seed")]
    words += [word for name in changed for word in typed(name, values[name])]
    return [_join(["train", *words, *seeds]), by_file]


def rule_run_commands(run: RunData, values: dict[str, Any]) -> list[str]:
    """What repeats a discovery or a distillation: by flags, and by the settings' file."""
    changed = [name for name in differing(values, defaults(run)) if name != "teacher"]
    words = [word for name in changed for word in typed(name, values[name])]
    teacher = [values["teacher"]] if run.kind == "distil" else []
    file = str(run.folder / CONFIG_FILE)
    return [_join([run.kind, *teacher, *words]), _join([run.kind, "--config", file])]


def compare_command(values: dict[str, Any]) -> str:
    """What repeats a comparison."""
    plain = flat_settings(CompareConfig())
    names = ["rules", "envs", *(n for n in differing(values, plain) if n not in ("rules", "envs"))]
    return _join(["compare", *(word for name in names for word in typed(name, values[name]))])


def tune_commands(run: RunData, values: dict[str, Any]) -> tuple[str, str]:
    """What repeats a search, and what trains with the settings it found."""
    changed = [name for name in differing(values, defaults(run)) if name not in ("env", "rule")]
    flags = [word for name in changed for word in typed(name, values[name])]
    again = _join(["tune", values["env"], "--rule", values["rule"], *flags])
    return again, _join(["train", "--config", str(run.folder / PRESET_FILE)])


def _knows_rule(run: RunData, values: dict[str, Any]) -> bool:
    """Whether the rule is one of discorl's, or a discovered one that the folder has a copy of."""
    return split_spec(values["rule"])[0] in RULES or (run.folder / RULE_FILE).exists()


def _preset(values: dict[str, Any], rule: str, name: PresetName, kind: Kind | None) -> Preset:
    config = flat_settings(make_config(values["env"], rule, name, kind))
    if rule not in RULES:
        config["rule"] = values["rule"]
    return Preset(name, config)


def _observed(folder: Path) -> Kind:
    """What the agent of a run sees, as its own file tells."""
    blueprint = Blueprint.from_json(read_json(folder / AGENT_FILE))
    return observation_kind(ObservationReader(blueprint.observation_space).spec)


def _seeds(runs: Sequence[RunData]) -> list[str]:
    """The flags that count through the seeds, or name the first where they have gaps."""
    seeds = sorted({run.config.get("seed", 0) for run in runs})
    if len(seeds) > 1 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return ["--seed", str(seeds[0]), "--seeds", str(len(seeds))]
    return ["--seed", str(seeds[0])]


def _join(words: Iterable[str]) -> str:
    return shlex.join(["discorl", *words])
