"""Settings that were measured to work, by kind of rule."""

from __future__ import annotations

from typing import Any, Literal

from discorl.rules.disco import DiscoRule
from discorl.rules.library import load_rule
from discorl.training.config import TrainConfig

PresetName = Literal["default", "published"]

_ACTOR_CRITIC = {"learning_rate": 5e-4, "torso": (64, 32, 32)}

_PRESETS: dict[tuple[PresetName, bool], dict[str, Any]] = {
    ("published", True): {},
    ("published", False): _ACTOR_CRITIC,
    ("default", True): {},
    ("default", False): _ACTOR_CRITIC,
}
"""(preset, whether the rule is a discovered one) -> what differs from `TrainConfig`."""


def make_config(
    env: str = TrainConfig.env,
    rule: str = TrainConfig.rule,
    preset: PresetName = "default",
    **settings: Any,
) -> TrainConfig:
    """A run's configuration: the preset for this rule, with the given settings over it."""
    values = {**_PRESETS[preset, isinstance(load_rule(rule), DiscoRule)], **settings}
    return TrainConfig.from_json({"env": env, "rule": rule, **values})
