"""A search's settings, and what is searched."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from discorl.comparison.config import SETTABLE
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line
from discorl.library.catalogue import load_rule, rule_settings
from discorl.settings import (
    Count,
    Search,
    Seed,
    change,
    check_fields,
    flat_settings,
    join_spec,
    parse_values,
    search_range,
    split_settings,
    split_spec,
)
from discorl.training.config import TrainConfig
from discorl.training.presets import AUTO, PresetName, default_rule, make_config

PrunerName = Literal["median", "halving", "none"]
_SEARCHED_FIRST = {
    "hand-written": ("learning_rate", "entropy_cost", "discount"),
    "discovered": ("learning_rate", "replay_ratio", "normalize_rewards", "discount"),
}
"""What is searched if nothing is named, as far as the rule has it."""


def require_optuna() -> None:
    """Raise DiscorlError, with the line that installs it, if Optuna is missing."""
    if importlib.util.find_spec("optuna") is None:
        raise DiscorlError(f"a search needs optuna: {install_line('tune')}")


@dataclass(frozen=True)
class TuneConfig:
    """One search, reproducible from this alone (and the rule's weights)."""

    env: str = "catch"
    """Environment, optionally with settings after a colon."""
    rule: str = AUTO
    """Update rule, optionally with settings after a colon; by default as in `discorl train`."""
    search: tuple[str, ...] = ()
    """Settings to search: of training, or of the rule itself; by default a few that matter for the
    rule. A range of your own follows the name: learning_rate=0.0001..0.01, torso=64,64|256,256."""
    trials: Count = 50
    """Trials of the study that come to an end, finished or pruned, over all processes."""
    seeds: Count = 3
    """Agents in each trial, with seeds 0, 1, ...; their mean return counts."""
    steps: Count = 1000
    """Training steps of each agent."""
    env_steps: Count | None = None
    """Environment steps of each agent, in place of --steps; rounded up to whole rollouts."""
    pruner: PrunerName = "median"
    """What ends hopeless trials early: being worse than the median of the others at the same time,
    successive halving, or nothing."""
    preset: PresetName = "default"
    """Where the other settings come from, as in `discorl train`."""
    set: tuple[str, ...] = ()
    """Training settings for all trials, overriding the preset: num_envs=16 torso=64,64."""
    seed: Seed = 0
    """Fixes what is tried, if one process does all the trials."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.env_steps is not None and self.steps != TuneConfig.steps:
            raise DiscorlError("--steps and --env-steps: give one of them")
        if self.rule == AUTO:
            object.__setattr__(self, "rule", default_rule(self.env))

    def space(self) -> dict[str, Search]:
        """Setting -> where it is searched; DiscorlError for one that cannot be."""
        types = self._types()
        texts = {n: t for n, _, t in (item.partition("=") for item in self.search)}
        if not texts:
            kind = "discovered" if load_rule(self.rule).params else "hand-written"
            texts = {name: "" for name in _SEARCHED_FIRST[kind] if name in types}
        fixed = split_settings(self.set, "--set") | split_spec(self.rule)[1]
        return {
            name: _range(name, text, types)
            for name, text in texts.items()
            if self.search or name not in fixed
        }

    def train_config(self, values: Mapping[str, Any], seed: int = 0) -> TrainConfig:
        """One agent's run with these values of what is searched; DiscorlError if they clash."""
        fixed = parse_values(SETTABLE, split_settings(self.set, "--set"), "--set")
        own = {name: str(value) for name, value in values.items() if name not in SETTABLE}
        given = fixed | {name: value for name, value in values.items() if name in SETTABLE}
        steps = {} if self.env_steps is not None else {"steps": self.steps}
        config = make_config(self.env, self.rule, self.preset, **(steps | given | {"seed": seed}))
        if own:  # Beside those that the preset gives the rule.
            name, settings = split_spec(config.rule)
            config = replace(config, rule=join_spec(name, settings | own))
        if self.env_steps is None:
            return config
        return replace(config, steps=-(-self.env_steps // config.life.experience.rollout_steps))

    def present(self, name: str) -> Any:
        """What a setting is without a search."""
        config = self.train_config({})
        if name in SETTABLE:
            return flat_settings(config)[name]
        return getattr(load_rule(config.rule).config, name)

    def _types(self) -> dict[str, Any]:
        return rule_settings(load_rule(self.rule)) | SETTABLE

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `config.json`."""
        values = flat_settings(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TuneConfig:
        """From what `to_json` returned; unknown names are an error."""
        return change(cls(), values, "setting of a search")


def _range(name: str, text: str, types: Mapping[str, Any]) -> Search:
    """Where a setting is searched: as the user says, or as it is declared."""
    if name not in types:
        raise UnknownNameError("setting to --search:", name, types)
    declared = search_range(types[name])
    if not text:
        if declared is None:
            raise DiscorlError(
                f"--search {name}: no range is declared for it: give one, {name}=LOW..HIGH or "
                f"{name}=A|B|C"
            )
        return declared
    low, dots, high = text.partition("..")
    words = [low, high] if dots else text.split("|")
    values = [parse_values(types, {name: word}, "--search")[name] for word in words]
    if not dots:
        return Search(choices=tuple(values))
    if not all(type(value) in (int, float) for value in values) or not values[0] < values[1]:
        raise DiscorlError(f"--search {name}={text}: expected two numbers, LOW..HIGH")
    # Evenly by factors where the declared range is, or where it spans more than one of ten.
    log = declared.log if declared and not declared.choices else values[1] > 10 * values[0] > 0
    return Search(values[0], values[1], log=log and values[0] > 0)
