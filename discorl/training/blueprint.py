"""How a trained agent's network is built, and what it reads and returns: all but its parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from discorl.agents.base import Agent
from discorl.agents.config import NetworkConfig
from discorl.agents.given import agent_from_module
from discorl.agents.network import Network
from discorl.envs.space_files import space_from_json, space_to_json
from discorl.envs.spaces import ObservationReader
from discorl.envs.wrappers import NormalizedEnvironment
from discorl.errors import DiscorlError
from discorl.life.life import Life
from discorl.observations import ArraySpec, ObservationSpec
from discorl.outputs import HeadSpec
from discorl.settings import change

AGENT_FILE = "agent.json"
"""The blueprint in a run folder; the parameters are in its checkpoints."""

DAMAGE = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    OverflowError,
)
"""What making spaces, heads and settings from damaged values may raise."""


@dataclass(frozen=True)
class Blueprint:
    """Everything it takes to build an agent's network and to talk to it."""

    network: NetworkConfig
    heads: HeadSpec
    observation_space: gymnasium.Space[Any]
    """Of one copy, as the environment shows it."""
    action_space: gymnasium.Space[Any]
    discretize_actions: int = 0
    own_network: bool = False
    """Whether the network is a module of the user's own, which must be passed again."""

    def build(self, network: nn.Module | None = None) -> Agent:
        """The network, with whatever parameters."""
        spec = ObservationReader(self.observation_space).spec
        if self.own_network and network is None:
            raise DiscorlError(
                "this agent's network is a module of your own: pass it again, network=..."
            )
        if network is not None:
            return agent_from_module(network, spec, self.heads, self.network)
        return Network.for_observations(spec, self.heads, self.network)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        heads = asdict(self.heads) | {"loss_only": sorted(self.heads.loss_only)}
        return {
            "network": asdict(self.network),
            "heads": heads,
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "discretize_actions": self.discretize_actions,
            "own_network": self.own_network,
        }

    @classmethod
    def from_json(cls, values: Any) -> Blueprint:
        """From what `to_json` returned; raises ValueError or KeyError for anything else."""
        heads = values["heads"]
        return cls(
            network=change(NetworkConfig(), values["network"]),
            heads=HeadSpec(
                state={name: tuple(shape) for name, shape in heads["state"].items()},
                action={name: tuple(shape) for name, shape in heads["action"].items()},
                loss_only=frozenset(heads["loss_only"]),
                value_range={k: float(v) for k, v in heads["value_range"].items()},
                squashed={k: bool(v) for k, v in heads.get("squashed", {}).items()},
            ),
            observation_space=space_from_json(values["observation_space"]),
            action_space=space_from_json(values["action_space"]),
            discretize_actions=int(values["discretize_actions"]),
            own_network=bool(values["own_network"]),
        )


def blueprint_of(life: Life) -> Blueprint:
    """How the agent of a life is built."""
    agent = life.mind.learner.agent
    env = life.env.env if isinstance(life.env, NormalizedEnvironment) else life.env
    return Blueprint(
        network=life.config.network,
        heads=agent.heads,
        observation_space=getattr(env, "observation_space", _space(env.observation_spec)),
        action_space=getattr(env, "action_space", spaces.Discrete(env.num_actions)),
        discretize_actions=life.config.environment.discretize_actions,
        own_network=life.own_network,
    )


def _space(spec: ObservationSpec) -> gymnasium.Space[Any]:
    """The space of an environment that has none of its own."""
    if not isinstance(spec, ArraySpec):
        return spaces.Dict({name: _space(entry) for name, entry in spec.items()})
    if spec.dtype == torch.uint8:
        return spaces.Box(0, 1 if spec.scale == 1 else 255, spec.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, spec.shape, np.float32)
