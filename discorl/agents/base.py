"""What the learner and the actor ask of an agent."""

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
"""Observations; for agents with memory a window, [L, B] and what went before it."""


class Agent(Protocol):
    """A network as pure functions of its parameters, on any leading dimensions."""

    heads: HeadSpec

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh parameters on the generator's device."""
        ...

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """The policy head alone, to act with: [..., A]."""
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
        """What a rule's loss reads: T + 1 steps of observations, actions [T, B] of the first T.

        Of the action heads, those named in `only` are enough.
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
    """An agent that remembers. It learns from windows of [L, B] steps and acts step by step."""

    def initial_memory(self, batch: int, device: torch.device | str) -> Memory | None:
        """What an agent remembers that has seen nothing; None if it never does."""
        ...

    def policy_step(
        self, params: Params, observations: Observation, firsts: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Logits [B, A] for one step [B, ...], and the memory after it.

        Where `firsts` [B] says so, what is remembered is forgotten before.
        """
        ...

    def remember(self, params: Params, window: Window) -> Memory:
        """The memory after a window."""
        ...


def initial_memory(agent: Agent, batch: int, device: torch.device | str) -> Memory | None:
    """What the agent remembers at birth: nothing, for one that never remembers."""
    if not isinstance(agent, RecurrentAgent):
        return None
    return agent.initial_memory(batch, device)
