"""What flows from actor to learner, and what the agent's network gives: time-major tensors.

Notation: L stored steps hold T = L - 1 transitions; B trajectories; A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from discorl.values.distributions import lookup
from discorl.values.returns import check_shape

Observation = Tensor | dict[str, Tensor]
Memory = dict[str, Tensor]
"""What an agent remembers of B streams: name -> [B, ...]."""


@dataclass(frozen=True)
class Window:
    """A stretch of time as agents with memory read it."""

    observations: Observation
    """[L, B, ...]."""
    firsts: Tensor
    """[L, B] booleans: nothing before this step is to be remembered."""
    memory: Memory
    """As it was before the first step."""


@dataclass(frozen=True)
class Rollout:
    """What the actor had in hand each time it acted.

    `reward[t]` and `discount[t]` *arrived with* `observation[t]`: they are the outcome of
    `action[t - 1]`. `discount[t] == 0` marks the first observation of a new episode, and the
    reward beside it is the last one of the old episode.
    """

    observations: Observation
    """[L, B, ...], any dtype, or a dictionary of such."""
    actions: Tensor
    """[L, B] integers."""
    rewards: Tensor
    """[L, B]."""
    discounts: Tensor
    """[L, B]: 0 on the first observation of an episode, else 1."""
    logits: Tensor
    """[L, B, A]: the policy that acted."""
    final: Tensor | None = None
    """[L, B] booleans: the last observation of an episode, shown before the next one begins. The
    action beside it did nothing. With a discount of 1 the episode did not end by itself but was
    cut off, and its value goes on. None if the environment shows no such observations."""
    memory: Memory | None = None
    """Name -> [1, B, ...]: what the agent remembered before the first step, if it does."""

    def __post_init__(self) -> None:
        if self.actions.dim() != 2 or len(self.actions) < 2:
            raise ValueError(
                f"actions: expected [L, B] with L >= 2, got {list(self.actions.shape)}"
            )
        prefix = tuple(self.actions.shape)
        check_integers("actions", self.actions)
        check_shape("rewards", self.rewards, prefix)
        check_shape("discounts", self.discounts, prefix)
        _check_prefix("logits", self.logits, prefix, dims=3)
        for name, leaf in observation_leaves(self.observations).items():
            _check_prefix(name, leaf, prefix)
        if self.final is not None:
            check_shape("final", self.final, prefix)
        for name, leaf in (self.memory or {}).items():
            _check_prefix(name, leaf, (1, prefix[1]))

    @property
    def num_actions(self) -> int:
        return self.logits.shape[-1]

    def inputs(self) -> Observation | Window:
        """What the agent's network reads."""
        if self.memory is None:
            return self.observations
        memory = {name: tensor[0] for name, tensor in self.memory.items()}
        return Window(self.observations, self.firsts(), memory)

    def firsts(self) -> Tensor:
        """[L, B] booleans: an episode's first observation, or the first of it that is stored."""
        firsts = self.discounts == 0
        if self.final is not None:
            # A final observation after an ending belongs to the episode before it.
            firsts = firsts & ~self.final
            firsts = torch.cat([firsts[:1], firsts[1:] | self.final[:-1]])
        return firsts

    def transitions(self) -> Transitions:
        """The T = L - 1 transitions of the rollout, aligned for a rule."""
        terminals = self.discounts[1:] == 0
        return Transitions(
            actions=self.actions[:-1],
            rewards=self.rewards[1:],
            terminals=terminals if self.final is None else terminals | self.final[:-1],
            behaviour_logits=self.logits[:-1],
            final=self.final,
        )

    def loss_mask(self, first_steps: bool = False) -> Tensor:
        """[T, B]: 1 where the step counts in the loss.

        A new episode's first step does if `first_steps`. What is no transition never does: the
        step from an episode's last observation to the next one's first.
        """
        counts = self.discounts[:-1] > 0
        if first_steps:
            counts = torch.ones_like(counts)
        if self.final is not None:
            counts = counts & ~self.final[:-1]
        return counts.to(self.rewards.dtype)

    def to(self, dtype: torch.dtype) -> Rollout:
        """The same rollout with its rewards, discounts and logits in another float type."""
        return replace(
            self,
            rewards=self.rewards.to(dtype),
            discounts=self.discounts.to(dtype),
            logits=self.logits.to(dtype),
        )


@dataclass(frozen=True)
class Transitions:
    """T transitions as a rule sees them."""

    actions: Tensor
    """[T, B]: taken in state t."""
    rewards: Tensor
    """[T, B]: received for it."""
    terminals: Tensor
    """[T, B] booleans: it ended the episode, or is no transition at all."""
    behaviour_logits: Tensor
    """[T, B, A]: the policy that took it."""
    advantages: Tensor | None = None
    """[T, B], given from outside for rules that estimate none (policy gradient)."""
    final: Tensor | None = None
    """[T + 1, B] booleans: see `Rollout.final`."""

    def __post_init__(self) -> None:
        if self.rewards.dim() != 2 or len(self.rewards) < 1:
            raise ValueError(
                f"rewards: expected [T, B] with T >= 1, got {list(self.rewards.shape)}"
            )
        prefix = tuple(self.rewards.shape)
        check_integers("actions", self.actions)
        check_shape("actions", self.actions, prefix)
        check_shape("terminals", self.terminals, prefix)
        _check_prefix("behaviour_logits", self.behaviour_logits, prefix, dims=3)
        if self.advantages is not None:
            check_shape("advantages", self.advantages, prefix)
        if self.final is not None:
            check_shape("final", self.final, (prefix[0] + 1, prefix[1]))

    @property
    def continues(self) -> Tensor:
        """[T, B]: 1 - terminal, in the rewards' type."""
        return 1 - self.terminals.to(self.rewards.dtype)

    @property
    def links(self) -> Tensor:
        """[T, B]: 1 where the next transition belongs to the same episode, else 0."""
        if self.final is None:
            return self.continues
        return self.continues * ~self.final[1:]

    def trace_decay(self, lambda_: float) -> float | Tensor:
        """How much of what the next transition learned counts: lambda, and 0 at cuts [T, B]."""
        return lambda_ if self.final is None else lambda_ * self.links

    def without_gaps(self, values: Tensor) -> Tensor:
        """[T, B] with zeros where there is no transition."""
        return values if self.final is None else values.masked_fill(self.final[:-1], 0)


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
    """Heads that are categorical values over even bins of [-x, x] -> x."""

    def for_targets(self) -> HeadSpec:
        """The heads that the rule's targets read."""
        action = {n: shape for n, shape in self.action.items() if n not in self.loss_only}
        return HeadSpec(self.state, action)


@dataclass(frozen=True)
class AgentOutputs:
    """The agent's heads on a stretch of time."""

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


def observation_leaves(observations: Observation) -> dict[str, Tensor]:
    """The tensors of an observation by name; a plain tensor is called `observations`."""
    if isinstance(observations, Tensor):
        return {"observations": observations}
    return observations


def check_integers(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless the tensor holds integers."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: expected integers, got {tensor.dtype}")


def _check_prefix(
    name: str, tensor: Tensor, prefix: tuple[int, ...], dims: int | None = None
) -> None:
    if tuple(tensor.shape[: len(prefix)]) != prefix or (dims and tensor.dim() != dims):
        wanted = [*prefix, "A"] if dims else [*prefix, "..."]
        raise ValueError(f"{name}: expected {wanted}, got {list(tensor.shape)}")
