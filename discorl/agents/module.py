"""Any module that returns all heads, as an agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from discorl.agents.base import Inputs
from discorl.layers import Params
from discorl.rollout import AgentOutputs, HeadSpec, Observation, TakenOutputs
from discorl.tree import tree_map


class ModuleAgent:
    """Wraps a module that maps observations [..., *shape] to a dictionary of heads [..., *head].

    The simple way in: no work is saved, every head is computed for every action.
    """

    def __init__(self, module: nn.Module, heads: HeadSpec) -> None:
        self.module = module
        self.heads = heads

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The module's own parameters, as they are."""
        return {name: p.detach().clone() for name, p in self.module.named_parameters()}

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """[..., A]."""
        return self._call(params, observations)["logits"]

    def outputs(self, params: Params, inputs: Inputs, for_targets: bool = False) -> AgentOutputs:
        """Every head, for every action."""
        return AgentOutputs.from_dict(self._call(params, inputs), self.heads)

    def taken(
        self,
        params: Params,
        inputs: Inputs,
        actions: Tensor,
        only: Collection[str] | None = None,
    ) -> TakenOutputs:
        """See `Agent.taken`."""
        return self.outputs(params, inputs).taken(actions)

    def learn(
        self,
        params: Params,
        inputs: Inputs,
        actions: Tensor,
        differentiable: bool = False,
    ) -> tuple[AgentOutputs, TakenOutputs]:
        """See `Agent.learn`."""
        outputs = self.outputs(params, inputs)
        given = outputs if differentiable else tree_map(torch.Tensor.detach, outputs)
        return given, outputs.taken(actions)

    def _call(self, params: Params, inputs: Inputs) -> Mapping[str, Tensor]:
        heads: Mapping[str, Tensor] = functional_call(self.module, dict(params), (inputs,))
        return heads
