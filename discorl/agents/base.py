"""What the learner and the actor ask of an agent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import torch
from torch import Tensor

from discorl.layers import Params
from discorl.rollout import AgentOutputs, HeadSpec, Observation, TakenOutputs


class Agent(Protocol):
    """A network as pure functions of its parameters, on any leading dimensions."""

    heads: HeadSpec

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh parameters on the generator's device."""
        ...

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """The policy head alone, to act with: [..., A]."""
        ...

    def outputs(
        self, params: Params, observations: Observation, for_targets: bool = False
    ) -> AgentOutputs:
        """Every head, for every action; or only those that a rule's targets read."""
        ...

    def taken(
        self,
        params: Params,
        observations: Observation,
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
        observations: Observation,
        actions: Tensor,
        differentiable: bool = False,
    ) -> tuple[AgentOutputs, TakenOutputs]:
        """`outputs(..., for_targets=True)` and `taken`, in one pass.

        The first carries gradient only if `differentiable`, the second always.
        """
        ...
