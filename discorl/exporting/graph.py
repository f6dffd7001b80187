"""The policy as one graph: from observations as the environment shows them to logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from discorl.agents.base import initial_memory
from discorl.agents.network import Network
from discorl.envs.spaces import Entry, ObservationReader, one_hot_places
from discorl.life.acting import policy_step
from discorl.rollout import TimeStep
from discorl.training.agent import TrainedAgent

EPISODE_START = "episode_start"
"""The input that says where nothing before is to be remembered."""
LOGITS = "logits"
_NEXT = "next_"
"""Prefix of the outputs that are to be fed back."""
_PLAIN = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
"""Types of observations that a graph takes as they are."""


@dataclass(frozen=True)
class Port:
    """An input or output of the graph."""

    name: str
    kind: str
    """`observation`, `episode_start`, `memory` or `logits`."""
    shape: tuple[int, ...]
    """Without the batch dimension."""
    dtype: str

    def to_json(self, batch: str | int) -> dict[str, Any]:
        """Plain values, with the batch dimension."""
        shape = [batch, *self.shape]
        return {"name": self.name, "kind": self.kind, "shape": shape, "dtype": self.dtype}


class PolicyGraph(nn.Module):
    """An agent's policy with everything around it: reading, normalisation and memory.

    Its inputs are tensors [B, ...], one for each array of an observation; for agents with memory
    then booleans [B] that say where episodes start, and the memory. Its outputs are logits [B, A]
    and the memory for the next call.
    """

    def __init__(self, agent: TrainedAgent) -> None:
        super().__init__()
        self._agent, self._moments = agent.agent, agent.moments
        params = agent.params
        if isinstance(agent.agent, Network):
            params = dict(agent.agent.policy_params(params))
        self._names = list(params)
        self._params = nn.ParameterList(
            [nn.Parameter(p.detach().clone(), requires_grad=False) for p in params.values()]
        )
        space = agent.blueprint.observation_space
        self.entries = ObservationReader(space).entries
        self._plain = not isinstance(space, spaces.Dict | spaces.Tuple)
        memory = initial_memory(agent.agent, 1, "cpu") or {}
        self._memory = list(memory)
        kept = [Port(k, "memory", tuple(m.shape[1:]), _name(m.dtype)) for k, m in memory.items()]
        starts = [Port(EPISODE_START, EPISODE_START, (), "bool")] if kept else []
        seen = [_observation_port(entry) for entry in self.entries]
        self.inputs = [*seen, *_distinct([*starts, *kept], seen, "memory_")]
        fed_back = [
            Port(_NEXT + port.name, port.kind, port.shape, port.dtype)
            for port in self.inputs[len(seen) + len(starts) :]
        ]
        logits = Port(LOGITS, LOGITS, (agent.num_actions,), "float32")
        self.outputs = _distinct([logits, *fed_back], self.inputs, "output_")

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """See the class; inputs and outputs are in the order of `inputs` and `outputs`."""
        count = len(self.entries)
        pairs = zip(self.entries, tensors[:count], strict=True)
        read: Any = {entry.name: _read(entry, tensor) for entry, tensor in pairs}
        read = read[self.entries[0].name] if self._plain else read
        if self._moments is not None:
            read = self._moments.normalize(read)
        params = dict(zip(self._names, self._params, strict=True))
        memory = None
        starts = torch.zeros(1, dtype=torch.bool)
        if self._memory:
            starts = tensors[count]
            memory = dict(zip(self._memory, tensors[count + 1 :], strict=True))
        step = TimeStep(read, torch.zeros(1), starts)
        logits, after = policy_step(self._agent, params, step, memory)
        return logits, *((after or {})[name] for name in self._memory)

    def start(self, batch: int) -> list[Tensor]:
        """The memory of B agents that have seen nothing."""
        return list((initial_memory(self._agent, batch, "cpu") or {}).values())


def _observation_port(entry: Entry) -> Port:
    if isinstance(entry.space, spaces.Text):  # As bytes: graphs know no texts.
        return Port(entry.name, "observation", entry.spec.shape, _name(entry.spec.dtype))
    dtype = np.dtype(entry.space.dtype).name
    dtype = dtype if dtype in _PLAIN else _name(entry.spec.dtype)
    return Port(entry.name, "observation", tuple(entry.space.shape or ()), dtype)


def _distinct(ports: list[Port], others: list[Port], prefix: str) -> list[Port]:
    """The same ports, with a prefix to names that others have: entries of an observation may have
    any, and keep them."""
    taken, named = {port.name for port in others}, []
    for port in ports:
        name = port.name
        while name in taken:
            name = prefix + name
        taken.add(name)
        named.append(replace(port, name=name))
    return named


def _read(entry: Entry, tensor: Tensor) -> Tensor:
    """What the agent reads [B, *spec.shape], from what the environment shows [B, *space.shape]."""
    batch, space = tensor.shape[0], entry.space
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        shift, places = one_hot_places(space)
        ones = tensor.reshape(batch, -1).long() + torch.from_numpy(shift)
        return (ones.unsqueeze(-1) == torch.arange(places)).to(torch.float32).sum(dim=1)
    if len(space.shape or ()) > len(entry.spec.shape):  # A stack of coloured images.
        tensor = tensor.movedim(1, 3)
    return tensor.reshape(batch, *entry.spec.shape).to(entry.spec.dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
