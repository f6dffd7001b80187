"""What the learner and the actor need from an agent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from discorl.layers import Params
from discorl.observations import Observation
from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Memory, Window

Inputs = Observation | Window
"""Observations; for agents with memory a window, [L, B] and what came before it."""


class Agent(Protocol):
    """A network as pure functions of its parameters, on any leading dimensions."""

    heads: HeadSpec

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh parameters on the generator's device."""
        ...

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """The policy head alone, for acting: [..., A]."""
        ...

    def outputs(self, params: Params, inputs: Inputs, for_targets: bool = False) -> AgentOutputs:
        """Every head, for every action; or only those that a rule's targets read."""
        ...

    def taken(
        self,
        params: Params,
        inputs: Inputs,
        actions: Tensor,
        only: Collection[str] | None = None,
    ) -> TakenOutputs:
        """What a rule's loss reads, for T + 1 steps of observations and T of actions [T, B].

        Of the action heads, only those named in `only` are needed.
        """
        ...

    def learn(
        self,
        params: Params,
        inputs: Inputs,
        actions: Tensor,
        differentiable: bool = False,
    ) -> tuple[AgentOutputs, TakenOutputs]:
        """`outputs(..., for_targets=True)` and `taken`, in one pass.

        The first carries gradient only if `differentiable`, the second always.
        """
        ...


@runtime_checkable
class RecurrentAgent(Agent, Protocol):
    """An agent with memory. It learns from windows of [L, B] steps and acts step by step."""

    def initial_memory(self, batch: int, device: torch.device | str) -> Memory | None:
        """The memory of an agent that has seen nothing; None if it has no memory at all."""
        ...

    def policy_step(
        self, params: Params, observations: Observation, firsts: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Logits [B, A] for one step [B, ...], and the memory after it.

        Where `firsts` [B] is true, the memory is cleared first.
        """
        ...

    def remember(self, params: Params, window: Window) -> Memory:
        """The memory after a window."""
        ...


def initial_memory(agent: Agent, batch: int, device: torch.device | str) -> Memory | None:
    """The memory of an agent that has seen nothing; None if it has no memory at all."""
    if not isinstance(agent, RecurrentAgent):
        return None
    return agent.initial_memory(batch, device)
