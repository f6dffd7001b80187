"""What the learner and the actor ask of an agent."""

from __future__ import annotations

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

    def learn(
        self, params: Params, observations: Observation, actions: Tensor, differentiable: bool
    ) -> tuple[AgentOutputs, TakenOutputs]:
        """One forward pass for both of a learner's needs.

        Args:
          observations: T + 1 steps.
          actions: [T, B], taken in the first T.
          differentiable: whether the first result carries gradient.

        Returns:
          What a rule's targets read (it may lack heads that only the loss reads), and what its
          loss reads, with gradient.
        """
        ...
