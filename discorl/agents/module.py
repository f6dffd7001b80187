"""Any module that returns all heads, as an agent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from discorl.agents.base import Inputs
from discorl.agents.masks import keep_legal
from discorl.errors import DiscorlError
from discorl.layers import Params
from discorl.observations import Observation
from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Window
from discorl.tree import tree_map


class ModuleAgent:
    """Wraps a module that maps observations [..., *shape] to a dictionary of heads [..., *head].

    The simple way in: no work is saved, every head is computed for every action. Heads are
    returned in the parameters' type, whatever type they were computed in.

    Args:
      autocast: the context that the module runs under, if any.
    """

    def __init__(
        self, module: nn.Module, heads: HeadSpec, autocast: torch.autocast | None = None
    ) -> None:
        self.module = module
        self.heads = heads
        self.autocast = autocast

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The module's own parameters, as they are."""
        return {name: p.detach().clone() for name, p in self.module.named_parameters()}

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """[..., A]."""
        return self.call(params, observations)["logits"]

    def outputs(self, params: Params, inputs: Inputs, for_targets: bool = False) -> AgentOutputs:
        """Every head, for every action."""
        return AgentOutputs.from_dict(self.call(params, inputs), self.heads)

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

    def call(self, params: Params, inputs: Inputs) -> dict[str, Tensor]:
        """The module's heads with these parameters; any left out are the module's own."""
        dtype = next(iter(params.values())).dtype
        with self.autocast or nullcontext():
            outputs = functional_call(self.module, dict(params), self._arguments(inputs, dtype))
        heads = as_heads(outputs, dtype)
        # A module without logits is reported by whoever needs them.
        logits = {"logits": keep_legal(heads["logits"], inputs)} if "logits" in heads else {}
        return heads | logits

    def _arguments(self, inputs: Inputs, dtype: torch.dtype) -> tuple[Any, ...]:
        return (inputs,)


class SequenceModuleAgent(ModuleAgent):
    """Wraps a disco-torch module: `forward(observations [T, B, ...], should_reset [T, B])`.

    It reads windows whose memory is empty: whatever state the module keeps starts afresh with
    each trajectory.
    """

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """[B, A], from observations [B, ...] with nothing before them."""
        step = tree_map(lambda t: t.unsqueeze(0), observations)
        batch = next(iter(step.values())) if isinstance(step, dict) else step
        firsts = torch.ones(batch.shape[:2], dtype=torch.bool, device=batch.device)
        return self.call(params, Window(step, firsts, {}))["logits"][0]

    def _arguments(self, inputs: Inputs, dtype: torch.dtype) -> tuple[Any, ...]:
        assert isinstance(inputs, Window)
        return inputs.observations, inputs.firsts.to(dtype)


def module_agent(
    module: nn.Module, heads: HeadSpec, autocast: torch.autocast | None = None
) -> ModuleAgent:
    """The module as an agent; one with `forward_step` reads whole sequences."""
    kind = SequenceModuleAgent if has_forward_step(module) else ModuleAgent
    return kind(module, heads, autocast)


def has_forward_step(module: nn.Module) -> bool:
    """Whether the module is in disco-torch's style."""
    return callable(getattr(module, "forward_step", None))


def module_step(module: nn.Module, observations: Observation, state: Any) -> tuple[Any, Any]:
    """What a module returns when it acts on [B, ...], and what it carries along.

    One with `forward_step` reads [B, N] numbers of its own type; for others, nothing is carried.
    """
    if not has_forward_step(module):
        return module(observations), state
    dtype = next(module.parameters()).dtype
    step: Any = module.forward_step
    outputs, state = step(tree_map(lambda t: t.reshape(len(t), -1).to(dtype), observations), state)
    return outputs, state


def original_module(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given, with the same parameters; others unchanged."""
    original: nn.Module = getattr(module, "_orig_mod", module)
    return original


def as_heads(outputs: Any, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """A module's output as heads, cast to a type if given; it must be a dictionary of tensors."""
    if not isinstance(outputs, Mapping) or not all(isinstance(x, Tensor) for x in outputs.values()):
        raise DiscorlError(
            f"agent: its forward gave {type(outputs).__name__}; return a dictionary of tensors, "
            "one for each head"
        )
    return {name: head.to(dtype or head.dtype) for name, head in outputs.items()}
