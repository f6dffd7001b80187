"""What training in an environment involves: its shapes, the network, and the settings."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import torch

from discorl.agents.network import Network
from discorl.envs.registry import is_external, make_environment, optimal_return
from discorl.library.catalogue import load_rule
from discorl.observations import spec_entries
from discorl.settings import flat_settings
from discorl.training.presets import PRESET_SETTINGS, make_config


def describe_environment(spec: str, rule: str, **settings: Any) -> dict[str, Any]:
    """The environment, the network that `rule` would train in it, and the preset's settings.

    Args:
      spec: an environment, as `make_environment` reads it.
      rule: a name from the library of rules, or a rule file.
      settings: fields of `TrainConfig`, which override the preset's.
    """
    config = make_config(spec, rule, **settings)
    with closing(make_environment(spec, 1, config=config.life.environment)) as env:
        heads = load_rule(config.rule).heads(env.num_actions)
        network = Network.for_observations(env.observation_spec, heads, config.life.network)
        entries = spec_entries(env.observation_spec)
    return {
        "environment": spec,
        "observations": {name: str(entry) for name, entry in entries.items()},
        "actions": env.num_actions,
        "optimum": None if is_external(spec) else optimal_return(spec),
        "rule": config.rule,
        "network": type(network.torso).__name__,
        "parameters": sum(p.numel() for p in network.init(torch.Generator()).values()),
        "env_steps": config.env_steps,
        "settings": {n: v for n, v in flat_settings(config).items() if n in PRESET_SETTINGS},
    }
