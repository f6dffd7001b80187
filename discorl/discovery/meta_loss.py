"""What makes a rule good: the updated agent does better on a validation rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.discovery.value_function import ValueFunction, ValueState
from discorl.layers import Params
from discorl.learner import Learner, LearnerState
from discorl.rollout import Rollout
from discorl.rules.disco import DiscoTargets
from discorl.settings import NotNegative, check_fields
from discorl.values.distributions import categorical_kl, entropy, log_prob


@dataclass(frozen=True)
class MetaLossConfig:
    """Weights of the meta-loss; the defaults are the published ones."""

    entropy_cost: NotNegative = 0.01
    """Reward for the entropy of the updated policy."""
    prediction_entropy_cost: NotNegative = 0.001
    """Reward for the entropy of the updated y and z."""
    target_mean_cost: NotNegative = 0.001
    """Penalty for policy, y and z targets whose mean logit is not zero."""
    target_kl_cost: NotNegative = 0.01
    """Penalty for policy targets that depart from the target network's policy."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class MetaProblem:
    """One agent's N inner updates and the rollout that judges them; or those of a stack of agents,
    if the learner is one's."""

    learner: Learner
    rule_params: dict[str, Tensor]
    """The parameters to differentiate with respect to, which require gradient: those of the
    learner's rule, or a copy for each agent of a stack."""
    copied: bool
    """Whether they are copies."""
    value_function: ValueFunction
    train: Sequence[Rollout]
    valid: Rollout
    config: MetaLossConfig

    @property
    def own_params(self) -> dict[str, Tensor] | None:
        """Each agent's copy of the rule's parameters [P, ...], if there are copies."""
        return self.rule_params if self.copied else None


@dataclass(frozen=True)
class MetaGradient:
    """What one agent says about the rule, or each of a stack."""

    grads: dict[str, Tensor]
    """By the rule's parameter names."""
    state: LearnerState
    """The agent after its N updates."""
    value_state: ValueState
    metrics: dict[str, Tensor]
    """Scalars of the meta-loss."""
    inner_metrics: dict[str, Tensor]
    """Scalars of the last inner update."""


def validation_loss(
    problem: MetaProblem, params: Params, value_state: ValueState
) -> tuple[Tensor, dict[str, Tensor]]:
    """The meta-loss of an updated agent without the penalty for its targets, and its metrics."""

    def judge(
        params: Params, value_state: ValueState, valid: Rollout
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return _validation_loss(problem, params, value_state, valid)

    return problem.learner.each(judge)(params, value_state, problem.valid)


def _validation_loss(
    problem: MetaProblem, params: Params, value_state: ValueState, valid: Rollout
) -> tuple[Tensor, dict[str, Tensor]]:
    config = problem.config
    actions = valid.actions[:-1]
    outputs = problem.learner.agent.taken(params, valid.inputs(), actions, only=("z",))
    logits = outputs.logits[:-1]
    with torch.no_grad():
        judgement = problem.value_function.judge(value_state, valid, outputs.logits.detach())
    # Actions on an episode's last observation do nothing.
    pg_loss = valid.transitions().without_gaps(
        -log_prob(logits, actions) * judgement.normalized_advantage
    )
    pg_loss = pg_loss.mean()
    policy_entropy = entropy(logits).mean()
    prediction_entropy = entropy(outputs.state["y"]).mean() + entropy(outputs.action["z"]).mean()
    regulariser = (
        -config.entropy_cost * policy_entropy - config.prediction_entropy_cost * prediction_entropy
    )
    metrics = {
        "adv": judgement.returns.advantage.mean(),
        "normalized_adv": judgement.normalized_advantage.mean(),
        "entropy": policy_entropy.detach(),
        "value": judgement.values.mean(),
        "val_importance_weight": judgement.rho.clamp(max=1).mean(),
        "pg_loss": pg_loss.detach(),
        "reg_loss": regulariser.detach(),
    }
    return pg_loss + regulariser, metrics


def target_regulariser(problem: MetaProblem, targets: DiscoTargets) -> Tensor:
    """The penalty for one update's targets: [], or [P]."""
    config = problem.config

    def penalty(targets: DiscoTargets) -> Tensor:
        return _target_penalty(targets, config)

    return problem.learner.each(penalty)(targets)


def _target_penalty(targets: DiscoTargets, config: MetaLossConfig) -> Tensor:
    means = [targets.y.mean(), targets.z.mean(), targets.policy.mean()]
    mean_price = torch.stack([mean.square() for mean in means]).sum()
    kl_price = categorical_kl(targets.target_logits, targets.policy).mean()
    return config.target_mean_cost * mean_price + config.target_kl_cost * kl_price


def complete_metrics(metrics: dict[str, Tensor], regulariser: Tensor) -> dict[str, Tensor]:
    """Add the penalty for the targets, and the whole meta-loss, to the validation's metrics."""
    reg_loss = metrics["reg_loss"] + regulariser.detach()
    return metrics | {"reg_loss": reg_loss, "meta_loss": metrics["pg_loss"] + reg_loss}
