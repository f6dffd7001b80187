"""Settings measured to work well, by kind of rule and by kind of environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from discorl.envs.registry import GIVEN, is_external, make_game
from discorl.errors import UnknownNameError
from discorl.library.catalogue import is_discovered, name_rule
from discorl.rules.base import UpdateRule
from discorl.settings import split_spec
from discorl.training.config import TrainConfig

PresetName = Literal["default", "published"]

Settings = dict[str, Any]
"""Fields of `TrainConfig` and their values."""

_PUBLISHED_ACTOR_CRITIC: Settings = {"learning_rate": 5e-4, "torso": (64, 32, 32)}

_ACTOR_CRITIC: Settings = {
    "learning_rate": 0.002,
    "torso": (64, 32, 32),
    "value_width": 1.0,
    "num_envs": 16,
    "batch_size": None,
    "replay_fraction": 0.75,
    "learn_first_steps": True,
}

_DISCOVERED: Settings = {
    "learning_rate": 0.007,
    "activate_torso": True,
    "value_width": 1.0,
    "action_head_std": 0.001,
    "learn_first_steps": True,
}
"""An agent that is born sure that nothing is worth anything learns twice as fast: the published
initialisation makes its first values noise many times larger than the rewards."""

_SPROUT: Settings = {
    "learning_rate": 0.005,
    "torso": (64, 64),
    "activate_torso": True,
    "model_size": 64,
    "head_hidden": 64,
    "value_width": 1.0,
    "action_head_std": 0.001,
    "num_envs": 32,
    "rollout_length": 16,
    "batch_size": None,
    "replay_fraction": 0.0,
    "learn_first_steps": True,
    "shrink_rewards": True,
}
"""How the agents lived that it was discovered with, and rewards on the scale that they had."""

_PRESETS: dict[tuple[PresetName, bool], Settings] = {
    ("published", True): {},
    ("published", False): _PUBLISHED_ACTOR_CRITIC,
    ("default", True): _DISCOVERED,
    ("default", False): _ACTOR_CRITIC,
}
"""(preset, whether the rule is a discovered one) -> what differs from `TrainConfig`."""

_OF_RULE: dict[tuple[PresetName, str], Settings] = {("default", "sprout"): _SPROUT}
"""(preset, rule) -> the same for rules with settings of their own."""

_SMALL_NETWORK: Settings = {"activate_torso": True, "model_size": 64, "head_hidden": 64}
"""Half of the published action model: updates cost less, which matters on a CPU."""

_VECTORS: Settings = {
    **_SMALL_NETWORK,
    "torso": (64, 64),
    "num_envs": 16,
    "rollout_length": 32,
    "batch_size": None,
    "replay_fraction": 0.0,
    "shrink_rewards": True,
    "steps": 1000,
}
"""Nothing is replayed: such environments are cheap. Rewards may have any scale."""

_BY_RULE: dict[str, Settings] = {
    "actor_critic": {"learning_rate": 0.005},
    "sprout": {"num_envs": 32, "rollout_length": 16, "steps": 1500},
}
"""Overrides `_VECTORS`: sprout does better with what it was discovered with."""


@dataclass(frozen=True)
class EnvironmentPreset:
    """What a kind of external environments changes in the rule's own preset."""

    pattern: str
    """Matches environments without their settings: `minatar/*`."""
    example: str
    summary: str
    settings: Settings
    """For every rule."""
    of_rule: dict[str, Settings] = field(default_factory=dict)
    """Rule -> settings that override these."""

    def matches(self, env: str) -> bool:
        """Whether the preset is for this environment."""
        return fnmatchcase(env.removeprefix(GIVEN).partition(":")[0], self.pattern)

    def for_rule(self, rule: str) -> Settings:
        """What a rule is trained with, where that differs from its own preset."""
        name, _ = split_spec(rule)
        return {**self.settings, **self.of_rule.get(name, {})}


ENVIRONMENT_PRESETS = (
    EnvironmentPreset(
        "minatar/*",
        "minatar/breakout",
        "MinAtar's five games",
        {
            **_SMALL_NETWORK,
            "torso": (128,),
            "num_envs": 8,
            "rollout_length": 16,
            "batch_size": None,
            "replay_fraction": 0.75,
            "steps": 1600,
        },
        {"actor_critic": {"reward_scale": 5.0}},
    ),
    EnvironmentPreset(
        "ALE/*",
        "ALE/Pong-v5",
        "Atari games",
        {
            **_SMALL_NETWORK,
            "torso": (256,),
            "channels": (16, 32, 32),
            "num_envs": 8,
            "rollout_length": 20,
            "batch_size": None,
            "replay_fraction": 0.0,
            "learning_rate": 5e-4,
            "clip_rewards": True,
            "shrink_rewards": False,
            "steps": 3000,
            "eval_episodes": 16,
        },
    ),
    EnvironmentPreset(
        "CartPole-v*",
        "CartPole-v1",
        "Gymnasium's cart-pole",
        _VECTORS,
        {
            "disco103": {
                "learning_rate": 0.005,
                "learning_rate_schedule": "cosine",
                "shrink_rewards": False,
                "reward_scale": 0.1,
            },
            **_BY_RULE,
        },
    ),
    EnvironmentPreset(
        "*",
        "Acrobot-v1",
        "Gymnasium's other environments, and functions",
        _VECTORS,
        _BY_RULE,
    ),
)
"""The first that matches counts. Each was measured: see docs/results.md."""


PRESET_SETTINGS = frozenset(
    name
    for settings in (
        *_PRESETS.values(),
        *_OF_RULE.values(),
        *(preset.settings for preset in ENVIRONMENT_PRESETS),
        *(own for preset in ENVIRONMENT_PRESETS for own in preset.of_rule.values()),
    )
    for name in settings
)
"""Every setting that some preset sets."""


def find_preset(env: str) -> EnvironmentPreset | None:
    """The preset of an external environment; our own have only the rule's."""
    if not is_external(env):
        return None
    return next(preset for preset in ENVIRONMENT_PRESETS if preset.matches(env))


def make_config(
    env: str = TrainConfig.env,
    rule: str | UpdateRule = TrainConfig.rule,
    preset: PresetName = "default",
    **settings: Any,
) -> TrainConfig:
    """A run's configuration: the preset for rule and environment, overridden by the settings."""
    if preset not in get_args(PresetName):
        raise UnknownNameError("preset", preset, get_args(PresetName))
    if not is_external(env):
        make_game(env)  # A typo is reported before anything else.
    discovered = is_discovered(rule) if isinstance(rule, str) else bool(rule.params)
    rule = rule if isinstance(rule, str) else name_rule(rule)
    name, _ = split_spec(rule)
    values = _OF_RULE.get((preset, name), _PRESETS[preset, discovered])
    of_env = find_preset(env) if preset == "default" else None
    if of_env is not None:
        values = {**values, **of_env.settings, **of_env.of_rule.get(name, {})}
    return TrainConfig.from_json({"env": env, "rule": rule, **values, **settings})
