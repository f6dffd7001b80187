"""From an environment's steps to what a learner reads; where episodes end is decided only here.

Notation: L stored steps hold T = L - 1 transitions; B trajectories; A actions. `rollout_length`
always means L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from discorl.group import SOLO, Group
from discorl.observations import Observation, observation_leaves
from discorl.shapes import check_integers, check_prefix, check_shape
from discorl.tree import stack

Memory = dict[str, Tensor]
"""What an agent remembers of B streams: name -> [B, ...]."""


@dataclass(frozen=True)
class TimeStep:
    """What B copies of an environment return together.

    An episode's last reward comes with a step that is `terminated` or `truncated`. Most
    environments begin the next episode in that same step: `observation` is already its first one,
    and `last` is what the old episode ended on. Others show the old episode's last observation
    and begin the next one a step later: that step is a `reset`.
    """

    observation: Observation
    """[B, *shape], any dtype, or a dictionary of such: what to act on."""
    reward: Tensor
    """[B] float: the outcome of the action before this observation."""
    terminated: Tensor
    """[B] booleans: the episode ended by itself; nothing is worth anything after it."""
    truncated: Tensor | None = None
    """[B] booleans: the episode was cut off, by a time limit; its value continues. None from
    environments that never cut one off."""
    reset: Tensor | None = None
    """[B] booleans: this step did nothing but begin a new episode. None from environments that
    begin it in the step that ends the old one."""
    last: Observation | None = None
    """[B, *shape]: `observation`, but where an episode was cut off and the next one has begun, what
    the old one ended on. None if there is no such copy."""

    @property
    def ended(self) -> Tensor:
        """[B] booleans: the last reward of an episode came with this step."""
        return self.terminated if self.truncated is None else self.terminated | self.truncated

    @property
    def first(self) -> Tensor:
        """[B] booleans: `observation` begins a new episode. Not set after `Environment.reset`."""
        return self.ended if self.reset is None else self.reset

    @property
    def idle(self) -> Tensor:
        """[B] booleans: this step was nothing but a reset."""
        return torch.zeros_like(self.terminated) if self.reset is None else self.reset

    @property
    def discount(self) -> Tensor:
        """[B]: 0 where no value continues from the step before to this one, else 1."""
        over = self.terminated if self.reset is None else self.terminated | self.reset
        return 1 - over.to(self.reward.dtype)


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
    cut off, and its value continues. None if the environment shows no such observations."""
    memory: Memory | None = None
    """Name -> [1, B, ...]: what the agent remembered before the first step, if it has memory."""

    def __post_init__(self) -> None:
        if self.actions.dim() != 2 or len(self.actions) < 2:
            raise ValueError(
                f"actions: expected [L, B] with L >= 2, got {list(self.actions.shape)}"
            )
        prefix = tuple(self.actions.shape)
        check_integers("actions", self.actions)
        check_shape("rewards", self.rewards, prefix)
        check_shape("discounts", self.discounts, prefix)
        check_prefix("logits", self.logits, prefix, dims=3)
        for name, leaf in observation_leaves(self.observations).items():
            check_prefix(name, leaf, prefix)
        if self.final is not None:
            check_shape("final", self.final, prefix)
        for name, leaf in (self.memory or {}).items():
            check_prefix(name, leaf, (1, prefix[1]))

    @classmethod
    def from_steps(
        cls,
        steps: Sequence[TimeStep],
        actions: Sequence[Tensor],
        logits: Sequence[Tensor],
        memory: Memory | None = None,
    ) -> Rollout:
        """What was acted on, step by step.

        Where an episode was cut off and the next one began in the same step, there are two
        observations and room for one. The old episode's last one is stored, to bootstrap from; so
        the new one's first step is not learned from. But an agent with memory must have read it.
        Then the episode counts as cut off one step earlier, where its value is just as good.

        Args:
          steps: L steps of B copies.
          actions: [B] for each of them.
          logits: [B, A] for each of them.
          memory: what the agent remembered before the first one, if it has memory.
        """
        observations = [s.observation for s in steps]
        rewards = torch.stack([s.reward for s in steps])
        over = [s.terminated if s.reset is None else s.terminated | s.reset for s in steps]
        final: list[Tensor] = []
        if steps[0].truncated is not None:
            for t, step in enumerate(steps):
                assert step.truncated is not None
                if step.reset is not None:
                    final.append(step.ended)
                elif memory is None:
                    observations[t] = step.observation if step.last is None else step.last
                    final.append(step.truncated)
                else:
                    over[t] = over[t] | step.truncated
                    final.append(torch.zeros_like(step.truncated))
                    if t:
                        final[t - 1] = final[t - 1] | step.truncated
        return cls(
            observations=stack(observations),
            actions=torch.stack(list(actions)),
            rewards=rewards,
            discounts=1 - torch.stack(over).to(rewards.dtype),
            logits=torch.stack(list(logits)),
            final=torch.stack(final) if final else None,
            memory=None if memory is None else {k: m.unsqueeze(0) for k, m in memory.items()},
        )

    @property
    def num_actions(self) -> int:
        return self.logits.shape[-1]

    def inputs(self) -> Observation | Window:
        """What the agent's network reads."""
        if self.memory is None:
            return self.observations
        return self.window({name: tensor[0] for name, tensor in self.memory.items()})

    def window(self, memory: Memory) -> Window:
        """The rollout as read by a network that remembered `memory` [B, ...] before it."""
        return Window(self.observations, self.firsts(), memory)

    def firsts(self) -> Tensor:
        """[L, B] booleans: an episode's first observation, or the first of it that is stored."""
        firsts = self.discounts == 0
        if self.final is not None:
            # A final observation after an ending belongs to the episode before it.
            firsts = firsts & ~self.final
            firsts = torch.cat([firsts[:1], firsts[1:] | self.final[:-1]])
        return firsts

    def transitions(self, group: Group = SOLO, measured: bool = True) -> Transitions:
        """The T = L - 1 transitions of the rollout, aligned for a rule.

        Args:
          group: the processes that each have a part of the batch.
          measured: whether anybody reads the rule's metrics.
        """
        terminals = self.discounts[1:] == 0
        gaps = links = None
        if self.final is not None:
            gaps = self.final[:-1]
            terminals = terminals | gaps
            links = ~(terminals | self.final[1:])
        return Transitions(
            actions=self.actions[:-1],
            rewards=self.rewards[1:],
            terminals=terminals,
            behaviour_logits=self.logits[:-1],
            gaps=gaps,
            linked=links,
            group=group,
            measured=measured,
        )

    def loss_mask(self, first_steps: bool = False) -> Tensor:
        """[T, B]: 1 where the step counts in the loss.

        A new episode's first step counts if `first_steps`. The step from an episode's last
        observation to the next one's first is not a transition, and never counts.
        """
        counts = self.discounts[:-1] > 0
        if first_steps:
            counts = torch.ones_like(counts)
        if self.final is not None:
            counts = counts & ~self.final[:-1]
        return counts.to(self.rewards.dtype)

    def to(self, dtype: torch.dtype) -> Rollout:
        """The same rollout with its rewards, discounts and logits in another float type."""
        if self.rewards.dtype == self.discounts.dtype == self.logits.dtype == dtype:
            return self
        return replace(
            self,
            rewards=self.rewards.to(dtype),
            discounts=self.discounts.to(dtype),
            logits=self.logits.to(dtype),
        )


@dataclass(frozen=True)
class Transitions:
    """T transitions as a rule sees them; `Rollout.transitions` makes them."""

    actions: Tensor
    """[T, B]: taken in state t."""
    rewards: Tensor
    """[T, B]: received for it."""
    terminals: Tensor
    """[T, B] booleans: it ended the episode, or is not a transition at all."""
    behaviour_logits: Tensor
    """[T, B, A]: the policy that took it."""
    advantages: Tensor | None = None
    """[T, B], given from outside for rules that estimate none (policy gradient)."""
    gaps: Tensor | None = None
    """[T, B] booleans: no transition but the step from one episode to the next. None if nowhere."""
    linked: Tensor | None = None
    """[T, B] booleans: the next transition continues the same episode. None if that is so
    wherever this one is not terminal: no episode was cut off."""
    group: Group = SOLO
    """The processes that have the rest of the batch: what a rule keeps of a batch must be a mean
    over all of it."""
    measured: bool = True
    """Whether anybody reads the metrics; if not, a rule may leave them out."""

    def __post_init__(self) -> None:
        if self.rewards.dim() != 2 or len(self.rewards) < 1:
            raise ValueError(
                f"rewards: expected [T, B] with T >= 1, got {list(self.rewards.shape)}"
            )
        prefix = tuple(self.rewards.shape)
        check_integers("actions", self.actions)
        check_prefix("behaviour_logits", self.behaviour_logits, prefix, dims=3)
        for name in ("actions", "terminals", "advantages", "gaps", "linked"):
            if (tensor := getattr(self, name)) is not None:
                check_shape(name, tensor, prefix)

    @property
    def continues(self) -> Tensor:
        """[T, B]: 1 - terminal, in the rewards' type."""
        return 1 - self.terminals.to(self.rewards.dtype)

    @property
    def links(self) -> Tensor:
        """[T, B]: 1 where the next transition belongs to the same episode, else 0."""
        return self.continues if self.linked is None else self.linked.to(self.rewards.dtype)

    def trace_decay(self, lambda_: float) -> float | Tensor:
        """How much of what the next transition learned counts: lambda, and 0 at cuts [T, B]."""
        return lambda_ if self.linked is None else lambda_ * self.links

    def without_gaps(self, values: Tensor) -> Tensor:
        """[T, B] with zeros where there is no transition."""
        return values if self.gaps is None else values.masked_fill(self.gaps, 0)
