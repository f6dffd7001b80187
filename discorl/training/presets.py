"""Settings measured to work well, by kind of environment and by rule.

A preset knows what an agent sees (`Kind`), never which task it is: docs/zoo.md says on which tasks
the settings were chosen, and how they do on others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from discorl.agents.bodies import choose_body
from discorl.envs.base import EnvironmentConfig
from discorl.envs.registry import GIVEN, is_external, make_environment, make_game
from discorl.errors import UnknownNameError
from discorl.library.catalogue import DEFAULT_RULE, is_discovered, name_rule
from discorl.observations import ObservationSpec, spec_entries
from discorl.rules.base import UpdateRule
from discorl.settings import change, flat_settings, join_spec, split_spec
from discorl.training.config import TrainConfig
from discorl.training.paper import paper_domain, paper_environment

PresetName = Literal["default", "published", "paper"]
"""Ours; those of the published notebook, the same everywhere; the paper's, by environment."""
Kind = Literal["vector", "board", "pixels"]
"""What an agent sees in an external environment: numbers, a small board, or an image."""

_LARGE_GAMES: dict[str, Kind] = {"sokoban": "board"}
"""Games of ours that are learned with the settings for environments from outside."""

AUTO = "auto"
"""In place of a rule: the one that does best, of those that ship with the package."""

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
    "action_input_std": 1.0,
    "learn_first_steps": True,
}
"""An agent that is born sure that nothing is worth anything learns twice as fast: the published
initialisation makes its first values noise many times larger than the rewards. And one that is born
telling actions apart learns twice as fast again: at first Disco103 asks for little more than a
policy that is as sure as the action values differ."""

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

_SAPLING: Settings = {
    **{name: _SPROUT[name] for name in ("torso", "activate_torso", "model_size", "head_hidden")},
    **_DISCOVERED,
    "layer_norm": True,
    "num_envs": 16,
    "rollout_length": 16,
    "batch_size": None,
    "replay_fraction": 0.5,
    "normalize_rewards": 3.0,
}
"""A small agent, and returns somewhat larger than most games have them: the policy moves sooner."""

_OF_GAMES: dict[tuple[PresetName, str], Settings] = {
    ("published", "discovered"): {},
    ("published", "actor_critic"): _PUBLISHED_ACTOR_CRITIC,
    ("default", "discovered"): _DISCOVERED,
    ("default", "actor_critic"): _ACTOR_CRITIC,
    ("default", "sprout"): _SPROUT,
    ("default", "sapling"): _SAPLING,
}
"""(preset, rule) -> what differs from `TrainConfig`; `discovered` stands for all such rules that
have no entry of their own, `actor_critic` for all others."""

_SMALL_NETWORK: Settings = {"activate_torso": True, "model_size": 64, "head_hidden": 64}
"""Half of the published action model: updates cost less, which matters on a CPU."""

_FED: Settings = {
    **_SMALL_NETWORK,
    "layer_norm": True,
    "torso": (64, 64),
    "num_envs": 4,
    "rollout_length": 29,
    "batch_size": 32,
    "replay_fraction": 1.0,
    "replay_capacity": 4096,
    "replay_ratio": 4,
    "learning_rate": 0.003,
    "learning_rate_schedule": "cosine",
    "normalize_rewards": 10.0,
    "steps": 1725,
}
"""What Disco103 needs: every transition is learned from some thirty times, in batches that are all
replayed, and returns are large, as they were in the games that it was discovered on."""

_FED_BOARDS: Settings = {
    **_SMALL_NETWORK,
    "action_input_std": 2.5,
    "layer_norm": True,
    "torso": (128,),
    "num_envs": 8,
    "rollout_length": 16,
    "batch_size": None,
    "replay_fraction": 0.75,
    "replay_capacity": 4096,
    "replay_ratio": 4,
    "learning_rate": 0.003,
    "learning_rate_schedule": "cosine",
    "steps": 3907,
}

_ACTOR_CRITIC_FED: Settings = {
    "activate_torso": True,
    "layer_norm": True,
    "torso": (64, 64),
    "num_envs": 8,
    "rollout_length": 32,
    "replay_capacity": 1024,
    "replay_ratio": 4,
    "learning_rate": 0.001,
    "learning_rate_schedule": "linear",
    "normalize_rewards": 1.0,
    "steps": 782,
}

_PIXELS: Settings = {
    **_SMALL_NETWORK,
    "layer_norm": True,
    "centre_images": True,
    "torso": (256,),
    "channels": (16, 32, 32),
    "num_envs": 16,
    "rollout_length": 29,
    "batch_size": 16,
    "replay_fraction": 1.0,
    "replay_capacity": 4096,
    "replay_ratio": 2,
    "learning_rate": 0.001,
    "learning_rate_schedule": "cosine",
    "warmup_updates": 200,
    "clip_rewards": True,
    "steps": 6466,
    "eval_episodes": 16,
}

_FED_PIXELS: Settings = {
    **_PIXELS,
    "action_input_std": 2.5,
    "num_envs": 8,
    "replay_fraction": 0.75,
    "replay_capacity": 2048,
    "replay_ratio": 4,
    "normalize_rewards": 3.0,
    "steps": 12_932,
}
"""As Disco103 learns Pong: docs/results.md."""

_ACTOR_CRITIC_PIXELS: Settings = {
    **_PIXELS,
    "num_envs": 8,
    "rollout_length": 20,
    "replay_fraction": 0.5,
    "replay_capacity": 1024,
    "learning_rate": 5e-4,
    "learning_rate_schedule": "linear",
    "final_learning_rate": 0.2,
    "warmup_updates": 100,
    "steps": 18_750,
}

_RULE_SETTINGS: dict[str, Settings] = {
    "actor_critic": {"entropy_cost": 0.01, "discount": 0.99},
    "disco103": {"discount": 0.99},
    "sapling": {"discount": 0.99},
}
"""Rule -> settings of the rule itself, in external environments. The published entropy cost of 0.2
lets no policy settle beside advantages of about one; and values with a shorter horizon are known
sooner."""

_RULE_SETTINGS_OF_IMAGES: dict[str, Settings] = {
    **_RULE_SETTINGS,
    "disco103": {"discount": 0.99, "max_abs_value": 30},
}
"""Rewards are not scaled up there, or not much, so that values lie between -100 and 100 or so: ten
times as many bins for them."""

_ACTOR_CRITIC_OF_PIXELS: Settings = {
    "normalize_advantage": True,
    "value_cost": 2.5,
    "entropy_cost": 0.03,
    "final_entropy_cost": 0.003,
    "entropy_hold": 0.2,
    "entropy_fall": 0.5,
    "discount": 0.99,
}
"""In Pong an entropy cost of 0.01 lets the policy settle before it scores, and 0.03 to the end
keeps it from playing well. Beside normalised advantages, a value of less weight is learned late."""


@dataclass(frozen=True)
class KindPreset:
    """What a kind of external environments changes in the rules' own presets."""

    kind: Kind
    example: str
    summary: str
    of_rule: Mapping[str, Settings]
    """Rule -> settings; `discovered` and `actor_critic` stand for the others, as in `_OF_GAMES`."""
    rule_settings: Mapping[str, Settings]
    """Rule -> settings of the rule itself."""

    def for_rule(self, rule: str | UpdateRule) -> Settings:
        """What a rule is trained with here, where that differs from its own preset."""
        name, family = _names(rule)
        return self.of_rule.get(name, self.of_rule[family])


KIND_PRESETS = (
    KindPreset(
        "vector",
        "CartPole-v1",
        "Gymnasium's environments that show numbers, and functions that make such",
        {
            "discovered": _FED,
            "actor_critic": _ACTOR_CRITIC_FED,
            "sprout": {**_SMALL_NETWORK, "torso": (64, 64), "steps": 1500},
        },
        _RULE_SETTINGS,
    ),
    KindPreset(
        "board",
        "minatar/breakout",
        "small images, such as MinAtar's five games",
        {
            "discovered": _FED_BOARDS,
            "sapling": {**_FED_BOARDS, "normalize_rewards": 0.0},
            "actor_critic": {**_ACTOR_CRITIC_FED, "torso": (128,), "steps": 1954},
            "sprout": {**_SMALL_NETWORK, "torso": (128,), "num_envs": 8, "steps": 1600},
        },
        _RULE_SETTINGS_OF_IMAGES,
    ),
    KindPreset(
        "pixels",
        "ALE/Pong-v5",
        "images of 36 x 36 and more, such as Atari games",
        {
            "discovered": _FED_PIXELS,
            "actor_critic": _ACTOR_CRITIC_PIXELS,
            "sprout": {**_PIXELS, "shrink_rewards": True},
        },
        {**_RULE_SETTINGS_OF_IMAGES, "actor_critic": _ACTOR_CRITIC_OF_PIXELS},
    ),
)


PRESET_SETTINGS = frozenset(
    name
    for settings in (
        *_OF_GAMES.values(),
        *(own for preset in KIND_PRESETS for own in preset.of_rule.values()),
    )
    for name in settings
)
"""Every setting that some preset sets."""


def _names(rule: str | UpdateRule) -> tuple[str, str]:
    """The rule's name, and what stands for rules that have no settings of their own."""
    discovered = is_discovered(rule) if isinstance(rule, str) else bool(rule.params)
    name, _ = split_spec(rule if isinstance(rule, str) else name_rule(rule))
    return name, "discovered" if discovered else "actor_critic"


def find_preset(kind: Kind) -> KindPreset:
    """The preset of a kind of environment."""
    return next(preset for preset in KIND_PRESETS if preset.kind == kind)


def observation_kind(spec: ObservationSpec) -> Kind:
    """What an agent that sees this sees: the most demanding entry counts."""
    bodies = {choose_body(entry) for entry in spec_entries(spec).values()}
    if "nature" in bodies:
        return "pixels"
    images = any(entry.is_image or entry.is_map for entry in spec_entries(spec).values())
    return "board" if images else "vector"


def environment_kind(env: str, settings: Settings) -> Kind | None:
    """The kind of an environment from outside, which is made once to see, or of a game of ours that
    is as large as those; None for our small games."""
    if not is_external(env):
        return _large_game(env)
    if env.startswith("ALE/"):
        return "pixels"
    if env.startswith("minatar/"):
        return "board"
    if env.startswith(GIVEN):
        return "vector"
    return _probe(env, environment_config(settings))


def environment_config(settings: Settings) -> EnvironmentConfig:
    """What settings of a run say of how its environment is run."""
    known = flat_settings(EnvironmentConfig())
    own = {name: value for name, value in settings.items() if name in known}
    return change(EnvironmentConfig(), own)


def _large_game(env: str) -> Kind | None:
    """What agents see in a game of ours that is as large as those from outside; None of others."""
    return _LARGE_GAMES.get(env.partition(":")[0])


@cache
def _probe(env: str, config: EnvironmentConfig) -> Kind:
    with closing(make_environment(env, 1, config=config)) as made:
        return observation_kind(made.observation_spec)


def default_rule(env: str) -> str:
    """What `auto` stands for: sprout in our small games, where it was discovered; actor-critic
    elsewhere.

    Measured: docs/zoo.md.
    """
    return "actor_critic" if is_external(env) or _large_game(env) else DEFAULT_RULE


def without_preset(rule: str) -> str:
    """A rule as it was asked for: without the settings that a preset gives it."""
    name, settings = split_spec(rule)
    presets = (_written(preset.rule_settings.get(name, {})) for preset in KIND_PRESETS)
    given = max((p for p in presets if p.keys() <= settings.keys()), key=len, default={})
    own = {k: v for k, v in settings.items() if given.get(k) != v}
    return join_spec(name, own)


def _written(settings: Settings) -> dict[str, str]:
    """A rule's settings as they are written after its name."""
    return {name: str(value).lower() for name, value in settings.items()}


def make_config(
    env: str = TrainConfig.env,
    rule: str | UpdateRule = AUTO,
    preset: PresetName = "default",
    kind: Kind | None = None,
    **settings: Any,
) -> TrainConfig:
    """A run's configuration: the preset for rule and environment, overridden by the settings.

    Args:
      rule: `auto` is `default_rule`, or Disco103 with the paper's preset. A name without settings
        of its own gets those of the preset.
      kind: of the environment, if it is known; otherwise an external one is made once to see.
    """
    if preset not in get_args(PresetName):
        raise UnknownNameError("preset", preset, get_args(PresetName))
    if not is_external(env):
        make_game(env)  # A typo is reported before anything else.
    if rule == AUTO:
        rule = "disco103" if preset == "paper" else default_rule(env)
    text = rule if isinstance(rule, str) else name_rule(rule)
    name, family = _names(rule)
    if preset == "paper":
        own = paper_domain(env).settings()
        return TrainConfig.from_json(
            {"env": paper_environment(env), "rule": text, **own, **settings}
        )
    values = _OF_GAMES.get((preset, name), _OF_GAMES[preset, family])
    if preset == "default" and (kind := kind or environment_kind(env, settings)) is not None:
        of_kind = find_preset(kind)
        values = {**values, **of_kind.for_rule(rule)}
        if isinstance(rule, str) and (wanted := of_kind.rule_settings.get(name)):
            _, own = split_spec(rule)
            text = join_spec(name, {**_written(wanted), **own})
    return TrainConfig.from_json({"env": env, "rule": text, **values, **settings})
