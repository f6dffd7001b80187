"""What an agent's network returns: the heads a rule asks for, and their outputs over time.

Notation: T transitions span T + 1 steps; B trajectories; A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from discorl.shapes import check_shape
from discorl.values.distributions import lookup


@dataclass(frozen=True)
class HeadSpec:
    """Which heads an agent must have: name -> shape of one output."""

    state: Mapping[str, tuple[int, ...]]
    """Heads of the observation alone; always has `logits` of shape (A,)."""
    action: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Heads for every action: their output is [A, *shape]."""
    loss_only: frozenset[str] = frozenset()
    """Action heads that the rule's loss reads but its targets do not."""
    value_range: Mapping[str, float] = field(default_factory=dict)
    """Heads that are categorical values over evenly spaced bins of [-x, x] -> x."""
    squashed: Mapping[str, bool] = field(default_factory=dict, compare=False)
    """Heads that stand for a value -> whether for `signed_hyperbolic` of it. For those who look at
    an agent: no rule and no network reads it."""

    def for_targets(self) -> HeadSpec:
        """The heads that the rule's targets read."""
        action = {n: shape for n, shape in self.action.items() if n not in self.loss_only}
        return HeadSpec(self.state, action)


@dataclass(frozen=True)
class AgentOutputs:
    """The agent's heads over a stretch of time."""

    state: dict[str, Tensor]
    """Name -> [T, B, *shape]."""
    action: dict[str, Tensor] = field(default_factory=dict)
    """Name -> [T, B, A, *shape]."""

    @property
    def logits(self) -> Tensor:
        """[T, B, A]: the policy head, which every agent has."""
        return self.state["logits"]

    @classmethod
    def from_dict(cls, outputs: Mapping[str, Tensor], heads: HeadSpec) -> AgentOutputs:
        """Sort a flat dictionary of heads into those of the state and those of each action."""
        missing = [name for name in (*heads.state, *heads.action) if name not in outputs]
        if missing:
            raise ValueError(
                f"the agent lacks the heads {missing}: it has {sorted(outputs)}, "
                f"the rule needs {[*heads.state, *heads.action]}"
            )
        return cls(
            state={name: outputs[name] for name in heads.state},
            action={name: outputs[name] for name in heads.action},
        )

    def taken(self, actions: Tensor) -> TakenOutputs:
        """Keep the heads of the actions taken [T, B] in the first T of T + 1 steps."""
        return TakenOutputs(
            state=self.state,
            action={name: lookup(x[:-1], actions) for name, x in self.action.items()},
        )

    def check(self, heads: HeadSpec, steps: int, batch: int) -> None:
        """Raise ValueError, naming the head, unless every head has its shape."""
        for name, shape in heads.state.items():
            check_shape(name, self.state.get(name), (steps, batch, *shape))
        num_actions = self.logits.shape[-1]
        for name, shape in heads.action.items():
            check_shape(name, self.action.get(name), (steps, batch, num_actions, *shape))


@dataclass(frozen=True)
class TakenOutputs:
    """The heads a loss reads: T + 1 steps of the state's, T steps of the taken action's.

    A loss never looks at the actions not taken, so a network need not run their heads.
    """

    state: dict[str, Tensor]
    """Name -> [T + 1, B, *shape]."""
    action: dict[str, Tensor]
    """Name -> [T, B, *shape]."""

    @property
    def logits(self) -> Tensor:
        """[T + 1, B, A]: the policy head."""
        return self.state["logits"]

    def check(self, heads: HeadSpec, steps: int, batch: int) -> None:
        """Raise ValueError, naming the head, unless every head has its shape; T = `steps`."""
        for name, shape in heads.state.items():
            check_shape(name, self.state.get(name), (steps + 1, batch, *shape))
        for name, shape in heads.action.items():
            check_shape(name, self.action.get(name), (steps, batch, *shape))
