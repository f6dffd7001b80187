"""What a comparison is told, and the training runs that follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from discorl.comparison.peers import (
    DEFAULTS,
    PeerConfig,
    is_peer,
    parse_peer_settings,
    peer_algorithm,
)
from discorl.envs.base import EnvironmentOptions
from discorl.errors import DiscorlError, UnknownNameError
from discorl.settings import check_known, check_least, flag
from discorl.training.config import TrainConfig
from discorl.training.presets import PresetName, make_config

_GIVEN_ELSEWHERE = {"env", "rule", "seed"}
_WITHOUT_EFFECT = {
    "log_every",
    "eval_every",
    "eval_episodes",
    "checkpoint_every",
    "keep_checkpoints",
    "wandb",
}
"""A comparison's runs have no folder: no logs, no evaluations, no checkpoints."""
SETTABLE = {f.name for f in fields(TrainConfig)} - _GIVEN_ELSEWHERE - _WITHOUT_EFFECT
"""Fields of `TrainConfig` that `--set` or a rule may change."""
_OF_ENVIRONMENT = {"discretize_actions", "env_workers", "env_timeout"}
"""Those of them that say how an environment is run, whoever learns in it."""


@dataclass(frozen=True)
class Entrant:
    """One rule or peer of a comparison, with settings of its own."""

    label: str
    """As it was given, which is how tables and pictures call it."""
    rule: str
    settings: dict[str, Any]

    @property
    def is_peer(self) -> bool:
        """Whether it is an algorithm of another package."""
        return is_peer(self.rule)


@dataclass(frozen=True)
class CompareConfig:
    """One comparison, reproducible from this alone (and the rules' weights)."""

    rules: tuple[str, ...] = ("disco103", "actor_critic")
    """Names or files of rules, each with training settings after a colon where wanted:
    actor_critic:learning_rate=0.001,torso=64,64. Or algorithms of stable-baselines3: sb3/ppo,
    sb3/dqn, sb3/a2c, with keyword arguments of theirs, and num_envs, after the colon."""
    envs: tuple[str, ...] = ("catch",)
    """Environments, with settings after a colon where wanted."""
    seeds: int = 5
    """Runs of each rule on each environment, with seeds 0, 1, ..."""
    steps: int = 1000
    """Training steps of each run."""
    env_steps: int | None = None
    """Environment steps of each run, instead of --steps; rounded up to whole rollouts."""
    preset: PresetName = "default"
    """Where the other settings' defaults come from, rule by rule, as in `discorl train`."""
    set: tuple[str, ...] = ()
    """Training settings of all runs, over the preset: num_envs=16 torso=64,64. A rule's own come
    over them."""

    def __post_init__(self) -> None:
        for name in ("rules", "envs", "set"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_least(self, {"seeds": 1, "steps": 1, "env_steps": 1})
        if self.env_steps is not None and self.steps != CompareConfig.steps:
            raise DiscorlError("--steps and --env-steps: give one of them")
        for name in ("rules", "envs"):
            values = getattr(self, name)
            if not values:
                raise DiscorlError(f"{flag(name)}: expected one or more")
            for value in values:
                if values.count(value) > 1:
                    raise DiscorlError(f"{flag(name)}: {value} is given twice")

    def entrants(self) -> list[Entrant]:
        """The rules with their settings; a DiscorlError for a setting that cannot be."""
        entrants = [_parse_entrant(entry) for entry in self.rules]
        for entrant in entrants:
            if entrant.is_peer and self.env_steps is None:
                raise DiscorlError(f"--rules {entrant.label}: give --env-steps instead of --steps")
        return entrants

    def run_config(self, entrant: Entrant, env: str, seed: int) -> TrainConfig | PeerConfig:
        """One run of a rule or a peer."""
        if entrant.is_peer:
            return self.peer_config(entrant, env, seed)
        return self.train_config(entrant, env, seed)

    def train_config(self, entrant: Entrant, env: str, seed: int) -> TrainConfig:
        """One run: the rule's preset, then the settings of all, then its own."""
        settings = {"seed": seed} | parse_settings(self.set, "--set") | entrant.settings
        if self.env_steps is None:
            return make_config(env, entrant.rule, self.preset, **{"steps": self.steps} | settings)
        if "steps" in settings:
            raise DiscorlError("--env-steps: drop the setting steps")
        config = make_config(env, entrant.rule, self.preset, **settings)
        return replace(config, steps=-(-self.env_steps // config.rollout_steps))

    def peer_config(self, entrant: Entrant, env: str, seed: int) -> PeerConfig:
        """One run of a peer: of the settings of all it takes only those of environments."""
        assert self.env_steps is not None
        algorithm = peer_algorithm(entrant.rule)
        settings = DEFAULTS[algorithm] | entrant.settings
        return PeerConfig(env, seed, self.env_steps, algorithm, settings, self.env_options)

    @property
    def env_options(self) -> EnvironmentOptions:
        """How environments from outside are run, where nothing but `--set` says it."""
        settings = parse_settings(self.set, "--set")
        own = {name: value for name, value in settings.items() if name in _OF_ENVIRONMENT}
        return TrainConfig(**own).env_options

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `config.json`."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> CompareConfig:
        """What `to_json` gave; unknown names are an error."""
        check_known(cls, values, "comparison setting")
        try:
            return cls(**values)
        except TypeError as error:
            raise DiscorlError(f"a setting has a value of the wrong type: {error}") from error


def parse_settings(items: Iterable[str], where: str) -> dict[str, Any]:
    """`field=value` items -> typed fields of `TrainConfig`.

    Args:
      where: what the items belong to, for errors.
    """
    values = {}
    for item in items:
        name, separator, text = item.partition("=")
        if not separator:
            raise DiscorlError(f"{where}: write field=value, got '{item}'")
        if name not in SETTABLE:
            hint = "Rules, environments and seeds are flags."
            raise UnknownNameError(f"setting in {where}:", name, SETTABLE, hint)
        try:
            values[name] = _convert(_KINDS[name], text)
        except ValueError as error:
            raise DiscorlError(f"{where}: {name}={text or '?'}: {error}") from error
    return values


def _parse_entrant(entry: str) -> Entrant:
    """`NAME:field=value,field=value`; a path may hold colons too."""
    rule, _, text = entry.rpartition(":")
    if not rule or "=" not in text:
        rule, text = entry, ""
    if is_peer(rule):
        peer_algorithm(rule)
    if not text:
        return Entrant(entry, rule, {})
    items: list[str] = []
    for part in text.split(","):
        if "=" in part or not items:
            items.append(part)
        else:  # torso=64,64: the comma belongs to the value.
            items[-1] += f",{part}"
    parse = parse_peer_settings if is_peer(rule) else parse_settings
    return Entrant(entry, rule, parse(items, f"--rules {entry}"))


_KINDS = get_type_hints(TrainConfig)


def _convert(kind: Any, text: str) -> Any:
    """A value of the kind from its text; ValueError says what was expected."""
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"expected one of {', '.join(get_args(kind))}")
        return text
    if get_origin(kind) is tuple:
        return tuple(_convert(get_args(kind)[0], part) for part in text.split(","))
    if get_origin(kind) is UnionType:
        return None if text.lower() == "none" else _convert(get_args(kind)[0], text)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {kind.__name__}") from None
