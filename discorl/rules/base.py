"""What a rule must provide. It knows neither environments nor networks.

docs/symbols.md has the symbols of the equations and their names here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Transitions

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
    def params(self) -> Mapping[str, Tensor]:
        """What was learned in discovery; empty for rules that are code."""
        ...

    @property
    def config(self) -> Any:
        """The dataclass of its settings: what `NAME:setting=value` can set."""
        ...

    @property
    def target_params_decay(self) -> float | None:
        """How slowly target parameters follow the agent's, or None if none are needed."""
        ...

    @property
    def needs_advantages(self) -> bool:
        """Whether `Transitions.advantages` must be given from outside."""
        ...

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Self:
        """The same rule in another type or on another device."""
        ...

    def configured(self, **settings: Any) -> Self:
        """The same rule with other settings."""
        ...

    def for_run(self, updates: int) -> Self:
        """The same rule for a run of so many updates: for rules that change with an agent's age."""
        ...

    def heads(self, num_actions: int) -> HeadSpec:
        """The heads an agent with this many actions must have."""
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
          target_outputs: the same with the target parameters; None if
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


class HandWritten:
    """What all rules that are code have in common.

    Subclass it as a frozen dataclass whose fields are the rule's settings.
    """

    params: ClassVar[Mapping[str, Tensor]] = MappingProxyType({})
    target_params_decay: ClassVar[float | None] = None
    needs_advantages: ClassVar[bool] = False

    @property
    def config(self) -> Self:
        """See `UpdateRule.config`: the rule itself."""
        return self

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Self:
        """See `UpdateRule.to`: there is nothing to move."""
        return self

    def configured(self, **settings: Any) -> Self:
        """See `UpdateRule.configured`."""
        return replace(self, **settings)  # type: ignore[type-var]

    def for_run(self, updates: int) -> Self:
        """See `UpdateRule.for_run`: most rules do not ask how long a run is."""
        return self

    def initial_state(self, dtype: torch.dtype, device: torch.device | str) -> Any:
        """See `UpdateRule.initial_state`: nothing to remember."""
        return None
