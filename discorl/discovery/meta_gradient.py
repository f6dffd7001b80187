"""The meta-gradient: how the rule's parameters change what an agent becomes.

N inner updates with the rule, then the meta-loss of the updated agent on a validation rollout,
and its gradient with respect to the rule. There are two ways to the same number:

- `reverse`: autograd through all N updates. Fast, but every update's graph stays in memory.
- `mixed`: see `mixed_mode`. Each update is computed twice, and memory hardly grows with N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from discorl.discovery.meta_loss import (
    MetaGradient,
    MetaLossConfig,
    MetaProblem,
    complete_metrics,
    target_regulariser,
    validation_loss,
)
from discorl.discovery.mixed_mode import mixed_gradient
from discorl.discovery.value_function import ValueFunction, ValueState
from discorl.gradients import leaves
from discorl.learner import Learner, LearnerState
from discorl.rollout import Rollout
from discorl.tree import tree_map

Mode = Literal["auto", "reverse", "mixed"]
REVERSE_UP_TO = 4
"""`auto` takes `reverse` up to this many inner updates, `mixed` for more."""


def meta_gradient(
    learner: Learner,
    state: LearnerState,
    value_function: ValueFunction,
    value_state: ValueState,
    train: Sequence[Rollout],
    valid: Rollout,
    config: MetaLossConfig | None = None,
    mode: Mode = "auto",
    apart: bool = True,
) -> MetaGradient:
    """The gradient of the meta-loss with respect to the parameters of `learner.rule`.

    Args:
      learner: the agent and the discovered rule that it learns by; or a stack of agents, whose
        meta-gradients are returned side by side.
      state: the agent before its updates.
      value_function, value_state: judge the agent; trained along with it.
      train: N rollouts, one for each inner update.
      valid: the rollout that the updated agent is judged on.
      config: weights of the meta-loss.
      mode: how the derivative is computed; the result is the same.
      apart: whether each agent of a stack has a meta-gradient of its own. Otherwise the stack's
        mean stands for all of them: it costs less, because the rule's products are then of all
        agents' experience with one set of weights.
    """
    rule = learner.rule
    if not rule.params:
        raise TypeError(f"rule: only discovered rules have parameters, got {type(rule).__name__}")
    if not train:
        raise ValueError("train: expected one or more rollouts")
    if mode == "auto":
        mode = "reverse" if len(train) <= REVERSE_UP_TO else "mixed"
    own = apart and learner.each.agents is not None
    params = leaves(learner.each.copies(rule.params) if own else rule.params)
    problem = MetaProblem(
        learner if own else replace(learner, rule=replace(rule, params=params)),  # type: ignore[type-var]
        params,
        own,
        value_function,
        train,
        valid,
        config or MetaLossConfig(),
    )
    state = tree_map(torch.Tensor.detach, state)
    compute = _reverse_gradient if mode == "reverse" else mixed_gradient
    result = compute(problem, state, value_state)
    agents = learner.each.agents
    if own or agents is None:
        return result
    means = {
        name: (grad / agents).expand(agents, *grad.shape) for name, grad in result.grads.items()
    }
    return replace(result, grads=means)


def _reverse_gradient(
    problem: MetaProblem, state: LearnerState, value_state: ValueState
) -> MetaGradient:
    """By autograd through all updates."""
    learner = problem.learner
    regulariser = problem.valid.rewards.new_zeros(())
    with torch.enable_grad():
        for rollout in problem.train:
            last = rollout is problem.train[-1]
            update = learner.update(state, rollout, True, problem.own_params, measured=last)
            logits = update.outputs.logits.detach()
            value_state = problem.value_function.update(value_state, rollout, logits, learner.each)
            state = update.state
            regulariser = regulariser + target_regulariser(problem, update.targets)
            metrics = update.metrics
        regulariser = regulariser / len(problem.train)
        loss, meta_metrics = validation_loss(problem, state.params, value_state)
        gradients = torch.autograd.grad(
            (loss + regulariser).sum(),
            list(problem.rule_params.values()),
            allow_unused=True,
            materialize_grads=True,
        )
    return MetaGradient(
        grads=dict(zip(problem.rule_params, gradients, strict=True)),
        state=tree_map(torch.Tensor.detach, state),
        value_state=value_state,
        metrics=complete_metrics(meta_metrics, regulariser),
        inner_metrics=metrics,
    )
