"""What a rule must answer. A rule is a value: it knows no environment and no network."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from discorl.rollout import AgentOutputs, HeadSpec, TakenOutputs, Transitions

Metrics = dict[str, Tensor]


@runtime_checkable
class UpdateRule(Protocol):
    """Turns experience and the agent's outputs into targets, and targets into a loss.

    `State` and `Targets` below stand for whatever dataclasses of tensors the rule likes.
    """

    @property
    def name(self) -> str:
        """A short name, for logs and run folders."""
        ...

    @property
    def target_params_decay(self) -> float | None:
        """How slowly target parameters follow the agent's, or None if none are needed."""
        ...

    @property
    def needs_advantages(self) -> bool:
        """Whether `Transitions.advantages` must be given from outside."""
        ...

    def heads(self, num_actions: int) -> HeadSpec:
        """The heads an agent with so many actions must have."""
        ...

    def initial_state(self, dtype: torch.dtype, device: torch.device | str) -> Any:
        """The rule's memory of an agent that has learned nothing yet: a State."""
        ...

    def targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs | None,
        transitions: Transitions,
        state: Any,
        differentiable: bool = False,
    ) -> tuple[Any, Any]:
        """Targets for T transitions, and the new State.

        Args:
          outputs: the agent on T + 1 steps.
          target_outputs: the same with the target parameters; None where
            `target_params_decay` is None.
          transitions: T steps of experience.
          state: from `initial_state` or the last call.
          differentiable: let gradients flow through the targets to the rule's parameters (and
            to predictions among the outputs), as discovery needs; else they carry none.
        """
        ...

    def loss(
        self, outputs: TakenOutputs, targets: Any, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """Per-step loss [T, B], and scalar metrics. Gradients flow into `outputs`, and into
        `targets` where those carry any."""
        ...
