"""Settings that were measured to work, by kind of rule."""

from __future__ import annotations

from typing import Any, Literal, get_args

from discorl.errors import UnknownNameError
from discorl.rules.library import is_discovered
from discorl.training.config import TrainConfig

PresetName = Literal["default", "published"]

_PUBLISHED_ACTOR_CRITIC = {"learning_rate": 5e-4, "torso": (64, 32, 32)}

_ACTOR_CRITIC = {
    "learning_rate": 0.002,
    "torso": (64, 32, 32),
    "value_width": 1.0,
    "num_envs": 16,
    "replay_fraction": 0.75,
    "learn_first_steps": True,
}

_DISCOVERED = {
    "learning_rate": 0.007,
    "activate_torso": True,
    "value_width": 1.0,
    "action_head_std": 0.001,
    "learn_first_steps": True,
}
"""A newborn agent that is sure that nothing is worth anything learns twice as fast: the
published initialisation makes its first values noise many times larger than the rewards."""

_SPROUT = {
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
"""As the agents lived that it was discovered with; and rewards on the scale that they had."""

_PRESETS: dict[tuple[PresetName, bool], dict[str, Any]] = {
    ("published", True): {},
    ("published", False): _PUBLISHED_ACTOR_CRITIC,
    ("default", True): _DISCOVERED,
    ("default", False): _ACTOR_CRITIC,
}
"""(preset, whether the rule is a discovered one) -> what differs from `TrainConfig`."""

_OF_RULE: dict[tuple[PresetName, str], dict[str, Any]] = {("default", "sprout"): _SPROUT}
"""(preset, rule) -> the same for rules with settings of their own."""


def make_config(
    env: str = TrainConfig.env,
    rule: str = TrainConfig.rule,
    preset: PresetName = "default",
    **settings: Any,
) -> TrainConfig:
    """A run's configuration: the preset for this rule, with the given settings over it."""
    if preset not in get_args(PresetName):
        raise UnknownNameError("preset", preset, get_args(PresetName))
    values = _OF_RULE.get((preset, rule), _PRESETS[preset, is_discovered(rule)])
    values = {**values, **settings}
    return TrainConfig.from_json({"env": env, "rule": rule, **values})
