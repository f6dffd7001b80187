"""A comparison's settings, and the training runs that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from discorl.comparison.peers import PeerConfig, is_peer, peer_algorithm, peer_settings
from discorl.comparison.suites import expand_suites
from discorl.envs.base import EnvironmentConfig
from discorl.errors import DiscorlError
from discorl.library.catalogue import DEFAULT_RULE, load_rule, rule_settings
from discorl.runs.config import RunConfig
from discorl.settings import (
    Count,
    change,
    check_fields,
    flag,
    flat_settings,
    flat_types,
    guess_value,
    parse_values,
    split_settings,
    split_spec,
)
from discorl.training.config import TrainConfig
from discorl.training.presets import PresetName, make_config

_GIVEN_ELSEWHERE = {"env", "rule", "seed"}
_WITHOUT_EFFECT = {"eval_episodes", *flat_settings(RunConfig())} - {"device"}
"""A comparison's runs have no folder: no logs, no evaluations, no checkpoints."""
SETTABLE = {
    name: kind
    for name, kind in flat_types(TrainConfig()).items()
    if name not in _GIVEN_ELSEWHERE and name not in _WITHOUT_EFFECT
}
"""Training settings that `--set` or a rule may change, and their types."""


@dataclass(frozen=True)
class Entrant:
    """One rule or peer of a comparison, with its own settings."""

    label: str
    """As it was given, which is what tables and pictures call it."""
    rule: str
    settings: dict[str, Any]

    @property
    def is_peer(self) -> bool:
        """Whether it is an algorithm of another package."""
        return is_peer(self.rule)


@dataclass(frozen=True)
class CompareConfig:
    """One comparison, reproducible from this alone (and the rules' weights)."""

    rules: tuple[str, ...] = (DEFAULT_RULE, "actor_critic")
    """Names or files of rules, optionally with training settings, or the rule's own, after a
    colon: actor_critic:learning_rate=0.001,torso=64,64,entropy_cost=0.01. Or algorithms of
    stable-baselines3: sb3/ppo, sb3/dqn, sb3/a2c, or zoo/ppo, zoo/dqn with the settings that
    rl-baselines3-zoo has for the environment; with their keyword arguments, num_envs, normalize
    and net_arch after the colon."""
    envs: tuple[str, ...] = ("catch",)
    """Environments, optionally with settings after a colon; suite:selection, suite:report,
    suite:everyday and suite:minatar stand for several."""
    seeds: Count = 5
    """Runs of each rule on each environment, with seeds 0, 1, ..."""
    steps: Count = 1000
    """Training steps of each run."""
    env_steps: Count | None = None
    """Environment steps of each run, instead of --steps; rounded up to whole rollouts."""
    preset: PresetName = "default"
    """Where the other settings' defaults come from, rule by rule, as in `discorl train`."""
    against: str | None = None
    """One of the rules. Scores are then of whole learning curves: 1 is the mean of this rule's
    curves, so that whoever learns the same sooner has more."""
    set: tuple[str, ...] = ()
    """Training settings for all runs, overriding the preset: num_envs=16 torso=64,64. A rule's
    own override these."""

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "envs", expand_suites(self.envs))
        if self.against is not None and self.against not in self.rules:
            raise DiscorlError(
                f"--against {self.against}: not among --rules, which are {', '.join(self.rules)}"
            )
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
        """The rules with their settings; raises DiscorlError for a wrong setting."""
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
        """One run: the rule's preset, overridden by the settings for all, then by its own."""
        settings: dict[str, Any] = {"seed": seed} | self._settings_of_all() | entrant.settings
        if self.env_steps is None:
            settings = {"steps": self.steps} | settings
            return make_config(env, entrant.rule, self.preset, **settings)
        if "steps" in settings:
            raise DiscorlError("--env-steps: drop the setting steps")
        config = make_config(env, entrant.rule, self.preset, **settings)
        return replace(config, steps=-(-self.env_steps // config.life.experience.rollout_steps))

    def peer_config(self, entrant: Entrant, env: str, seed: int) -> PeerConfig:
        """One run of a peer: of the settings for all, it takes only those of environments."""
        assert self.env_steps is not None
        settings = peer_settings(entrant.rule, env, self.env_steps, entrant.settings)
        algorithm = peer_algorithm(entrant.rule)
        return PeerConfig(env, seed, self.env_steps, algorithm, settings, self.environment)

    @property
    def environment(self) -> EnvironmentConfig:
        """How environments are run, going by `--set` alone."""
        settings = self._settings_of_all()
        known = flat_settings(EnvironmentConfig())
        own = {name: value for name, value in settings.items() if name in known}
        return EnvironmentConfig(**own)

    def _settings_of_all(self) -> dict[str, Any]:
        texts = split_settings(self.set, "--set")
        return parse_values(SETTABLE, texts, "--set", "Rules, environments and seeds are flags.")

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `config.json`."""
        values = flat_settings(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> CompareConfig:
        """From what `to_json` returned; unknown names are an error."""
        return change(cls(), values, "comparison setting")


def _parse_entrant(entry: str) -> Entrant:
    """A rule or peer with its settings; those of the rule itself stay with its name."""
    name, texts = split_spec(entry)
    where = f"--rules {entry}"
    if is_peer(name):
        peer_algorithm(name)
        return Entrant(entry, name, {key: guess_value(text) for key, text in texts.items()})
    own = {key: text for key, text in texts.items() if key not in SETTABLE}
    rule = f"{name}:{','.join(f'{k}={v}' for k, v in own.items())}" if own else name
    if own:  # Raises for wrong ones before anything runs.
        known = {**rule_settings(load_rule(name)), **SETTABLE}
        parse_values(known, texts, where)
    settings = {key: text for key, text in texts.items() if key in SETTABLE}
    return Entrant(entry, rule, parse_values(SETTABLE, settings, where))
