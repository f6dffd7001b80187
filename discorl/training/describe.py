"""What training in an environment would be: its shapes, the network, and the settings."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import torch

from discorl.agents.network import Network
from discorl.envs.base import ArraySpec, spec_entries
from discorl.envs.registry import is_external, make_environment, optimal_return
from discorl.rules.library import load_rule
from discorl.training.presets import make_config

_SHOWN = (
    "steps",
    "num_envs",
    "rollout_length",
    "batch_size",
    "replay_fraction",
    "replay_capacity",
    "learning_rate",
    "learn_first_steps",
    "clip_rewards",
    "reward_scale",
    "shrink_rewards",
    "normalize_observations",
    "body",
    "torso",
    "memory",
)
"""The settings that environments differ in."""


def describe_environment(spec: str, rule: str, **settings: Any) -> dict[str, Any]:
    """The environment, the network that `rule` would train in it, and the preset's settings.

    Args:
      spec: an environment, as `make_environment` reads it.
      rule: a name from the library of rules, or a rule file.
      settings: fields of `TrainConfig`, over the preset's.
    """
    config = make_config(spec, rule, **settings)
    with closing(make_environment(spec, 1, options=config.env_options)) as env:
        heads = load_rule(rule).heads(env.num_actions)
        network = Network.for_observations(env.observation_spec, heads, config.network)
        entries = spec_entries(env.observation_spec)
    return {
        "environment": spec,
        "observations": {name: _describe_array(entry) for name, entry in entries.items()},
        "actions": env.num_actions,
        "optimum": None if is_external(spec) else optimal_return(spec),
        "rule": rule,
        "network": type(network.torso).__name__,
        "parameters": sum(p.numel() for p in network.init(torch.Generator()).values()),
        "env_steps": config.env_steps,
        "settings": {name: getattr(config, name) for name in _SHOWN},
    }


def _describe_array(spec: ArraySpec) -> str:
    return f"{str(spec.dtype).removeprefix('torch.')} {list(spec.shape)}"
