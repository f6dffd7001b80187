"""Actor-critic with V-trace targets, as an update rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from discorl.errors import DiscorlError
from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Transitions
from discorl.rules.base import HandWritten, Metrics
from discorl.settings import NotNegative, Positive, Range, Search, Share, check_fields
from discorl.values import (
    MovingAverage,
    ValueReading,
    importance_weights,
    lookup,
    update_together,
    value_loss_from_target,
    vtrace,
)
from discorl.values.distributions import entropy_of, unmasked


@dataclass(frozen=True)
class ActorCriticState:
    """Moving averages, kept up to date whether or not they are used, and the agent's age."""

    advantage: MovingAverage
    td: MovingAverage
    updates: Tensor | None = None
    """[]: how many there were; None if the entropy cost does not depend on it."""


@dataclass(frozen=True)
class ActorCriticTargets:
    """Each [T, B], without gradient."""

    advantage: Tensor
    """What the policy gradient uses: raw or normalised."""
    raw_advantage: Tensor
    td: Tensor
    """Raw or scaled."""
    value_target: Tensor
    """What the value should be: what it is, and its TD error."""
    mean_value: Tensor
    """[]: mean of v over all T + 1 states."""
    entropy_cost: Tensor
    """[]: weight of the entropy bonus at this age."""


@dataclass(frozen=True)
class ActorCritic(HandWritten):
    """V-trace actor-critic; the defaults are the published baseline's."""

    categorical_value: bool = True
    """Whether the value is a distribution over `num_bins` values, or one number."""
    num_bins: Annotated[int, Range(2)] = 601
    """Bins of that distribution."""
    max_abs_value: Positive = 300.0
    """Range of those bins, on the squashed scale if values are squashed."""
    nonlinear_value: bool = True
    """Whether the value head stands for `signed_hyperbolic` of the value."""
    normalize_advantage: bool = False
    """Shift and scale advantages by their moving averages."""
    normalize_td: bool = False
    """Scale TD errors too; only with a scalar value, as the target `v + td` must stay a value."""
    discount: Annotated[Share, Search(0.95, 0.999)] = 0.997
    """What a reward is worth if it comes one step later."""
    vtrace_lambda: Annotated[Share, Search(0.8, 1.0)] = 0.95
    """V-trace's trace decay: 0 looks one step ahead, 1 as far as the rollout goes."""
    pg_cost: NotNegative = 1.0
    """Weight of the policy gradient."""
    value_cost: Annotated[NotNegative, Search(0.1, 1.0, log=True)] = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[NotNegative, Search(1e-3, 0.3, log=True)] = 0.2
    """Weight of the entropy bonus; of a newborn agent's, if it falls."""
    final_entropy_cost: NotNegative = 0.0
    """Where it ends, if it falls."""
    entropy_hold: Share = 0.0
    """Share of the run before it begins to fall."""
    entropy_fall: Share = 0.0
    """Share of the run over which it falls, in a straight line; 0: it does not."""
    run_updates: Annotated[int, Range(0)] = 0
    """Updates of the whole run, for a cost that falls; in `discorl train` the run sets it."""
    moving_average_decay: Share = 0.99
    """Decay of the moving averages of advantages and TD errors."""

    name = "actor_critic"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.normalize_td and self.categorical_value:
            raise ValueError(
                "normalize_td: only with categorical_value=False; a categorical head needs "
                "targets on the scale of the value"
            )

    @property
    def reading(self) -> ValueReading:
        """How the head `v` stands for a value."""
        return ValueReading(
            self.max_abs_value if self.categorical_value else None, self.nonlinear_value
        )

    def heads(self, num_actions: int) -> HeadSpec:
        """A policy and a value."""
        bins = self.num_bins if self.categorical_value else 1
        value_range = {"v": self.max_abs_value} if self.categorical_value else {}
        return HeadSpec(
            {"logits": (num_actions,), "v": (bins,)},
            value_range=value_range,
            squashed={"v": self.nonlinear_value},
        )

    def for_run(self, updates: int) -> ActorCritic:
        """See `UpdateRule.for_run`: the entropy cost may fall over shares of the run."""
        return replace(self, run_updates=updates) if self.entropy_fall else self

    def initial_state(self, dtype: torch.dtype, device: torch.device | str) -> ActorCriticState:
        """Moving averages that have seen nothing."""
        if self.entropy_fall and not self.run_updates:
            raise DiscorlError(
                "actor_critic: entropy_fall is a share of the run, whose length is not known: set "
                "run_updates to its number of updates"
            )
        return ActorCriticState(
            advantage=MovingAverage.initial(dtype, device),
            td=MovingAverage.initial(dtype, device),
            updates=torch.zeros((), dtype=dtype, device=device) if self.entropy_fall else None,
        )

    def targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs | None,
        transitions: Transitions,
        state: ActorCriticState,
        differentiable: bool = False,
    ) -> tuple[ActorCriticTargets, ActorCriticState]:
        """V-trace advantages and TD errors, and the updated moving averages."""
        steps, batch = transitions.rewards.shape
        outputs.check(self.heads(transitions.behaviour_logits.shape[-1]), steps + 1, batch)
        values = self.reading(outputs.state["v"]).detach()
        rho = importance_weights(
            outputs.logits[:-1], transitions.behaviour_logits, transitions.actions
        )
        discounts = self.discount * transitions.continues
        traces = transitions.trace_decay(self.vtrace_lambda)
        returns = vtrace(transitions.rewards, discounts, rho, values, values, traces)
        raw_advantage = advantage = transitions.without_gaps(returns.advantage)
        td = transitions.without_gaps(returns.td)
        advantage_average, td_average = update_together(
            (state.advantage, state.td),
            (advantage, td),
            self.moving_average_decay,
            transitions.group,
        )
        new_state = ActorCriticState(
            advantage=advantage_average,
            td=td_average,
            updates=None if state.updates is None else state.updates + 1,
        )
        if self.normalize_advantage:
            advantage = new_state.advantage.normalize(advantage)
        if self.normalize_td:
            td = new_state.td.scale(td)
        mean_value = values.mean()
        cost = self._entropy_cost(state.updates, mean_value)
        targets = ActorCriticTargets(
            advantage, raw_advantage, td, values[:-1] + td, mean_value, cost
        )
        return targets, new_state

    def loss(
        self, outputs: TakenOutputs, targets: ActorCriticTargets, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """Per-step loss [T, B] and metrics."""
        logits = outputs.logits[:-1]
        log_policy = torch.log_softmax(logits, dim=-1)
        policy_entropy = entropy_of(log_policy)
        pg_loss = -lookup(log_policy, transitions.actions) * targets.advantage
        value = outputs.state["v"][:-1]
        value_loss = value_loss_from_target(value, targets.value_target, self.reading)
        loss = (
            self.pg_cost * pg_loss
            + self.value_cost * value_loss
            - targets.entropy_cost * policy_entropy
        )
        if not transitions.measured:
            return loss, {}
        metrics = {
            "logits": torch.where(unmasked(logits), logits, 0.0).detach().mean(),
            "entropy": policy_entropy.detach().mean(),
            "pg_advs": targets.advantage.mean(),
            "raw_advs": targets.raw_advantage.mean(),
            "avg_value": targets.mean_value,
            "pg_loss": pg_loss.detach().mean(),
            "value_loss": value_loss.detach().mean(),
        }
        return loss, metrics

    def _entropy_cost(self, updates: Tensor | None, like: Tensor) -> Tensor:
        """[]: the weight of the entropy bonus after so many updates."""
        if updates is None:
            return torch.full_like(like, self.entropy_cost)
        lived = updates / self.run_updates
        share = ((lived - self.entropy_hold) / self.entropy_fall).clamp(0.0, 1.0)
        return self.entropy_cost + share * (self.final_entropy_cost - self.entropy_cost)
