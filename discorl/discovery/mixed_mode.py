"""Meta-gradients in mixed mode: little memory, however many inner updates.

The updates run without a graph; then each is revisited, last first. An update is
`state' = apply(state, g)` with `g = gradient(params, targets(state, rule))`, and the derivative
goes back through its three parts. Where the second derivatives of the agent's loss are needed,
one forward-mode derivative of its gradient gives both products at once: by the parameters
(a Hessian-vector product) and by the targets.

Kemaev et al., "Scalable meta-learning via mixed-mode differentiation" (2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from discorl.discovery.meta_loss import (
    MetaGradient,
    MetaProblem,
    complete_metrics,
    target_regulariser,
    validation_loss,
)
from discorl.discovery.value_function import ValueState
from discorl.gradients import leaves, vector_jacobian
from discorl.layers import Params
from discorl.learner import Learner, LearnerState, apply_gradients, masked_loss, rule_targets
from discorl.rollout import Rollout
from discorl.rules.disco import DiscoState, DiscoTargets
from discorl.rules.meta_network import MetaRNNState
from discorl.tree import flatten, split_groups, tree_map

_TARGETS = ("policy", "y", "z")
"""The targets through which a rule acts on an agent."""


@dataclass(frozen=True)
class Cotangent:
    """Derivatives of the meta-loss by an agent's state; anything not here has none."""

    params: dict[str, Tensor]
    target_params: dict[str, Tensor]
    first: dict[str, Tensor]
    """By the optimiser's first moments."""
    hidden: Tensor
    """By the meta-RNN's hidden state."""
    cell: Tensor
    """By its cell."""


def mixed_gradient(
    problem: MetaProblem, state: LearnerState, value_state: ValueState
) -> MetaGradient:
    """By one forward-mode derivative for each update, last update first."""
    states, grads = [state], []
    learner = problem.learner
    regulariser = problem.valid.rewards.new_zeros(())
    for rollout in problem.train:
        last = rollout is problem.train[-1]
        update = learner.update(states[-1], rollout, differentiable=False, measured=last)
        logits = update.outputs.logits
        value_state = problem.value_function.update(value_state, rollout, logits, learner.each)
        with torch.no_grad():
            regulariser = regulariser + target_regulariser(problem, update.targets)
        states.append(tree_map(torch.Tensor.detach, update.state))
        grads.append(update.grads)
        metrics = update.metrics
    del update
    final = states.pop()
    cotangent, meta_metrics = _final_cotangent(problem, final, value_state)
    meta_grads = {name: torch.zeros_like(p) for name, p in problem.rule_params.items()}
    for rollout in reversed(problem.train):
        # Nothing comes before the first update: there the rule's own derivatives are enough.
        first = len(states) == 1
        cotangent, by_rule = _backward(
            problem, states.pop(), rollout, grads.pop(), cotangent, by_state=not first
        )
        for name, grad in by_rule.items():
            meta_grads[name] += grad
    meta_metrics = complete_metrics(meta_metrics, regulariser / len(problem.train))
    return MetaGradient(meta_grads, final, value_state, meta_metrics, metrics)


def _final_cotangent(
    problem: MetaProblem, state: LearnerState, value_state: ValueState
) -> tuple[Cotangent, dict[str, Tensor]]:
    """The validation loss depends on the final parameters alone."""
    params = leaves(state.params)
    with torch.enable_grad():
        loss, metrics = validation_loss(problem, params, value_state)
        by_params = vector_jacobian({"loss": loss.sum()}, params)
    zeros = {name: torch.zeros_like(p) for name, p in params.items()}
    rnn = state.rule.rnn
    zero_rnn = (torch.zeros_like(rnn.hidden), torch.zeros_like(rnn.cell))
    return Cotangent(by_params, zeros, dict(zeros), *zero_rnn), metrics


def _backward(
    problem: MetaProblem,
    state: LearnerState,
    rollout: Rollout,
    grads: Mapping[str, Tensor],
    after: Cotangent,
    by_state: bool,
) -> tuple[Cotangent, dict[str, Tensor]]:
    """From derivatives by the state after an update to those by the state before it, and by the
    rule's parameters; the former are left as they were unless `by_state`."""
    by_grads, direct = _through_optimiser(problem, state, grads, after)
    leaf = _leaf_state(state) if by_state else state
    learner = problem.learner
    with torch.enable_grad():
        targets, rule_state = learner.each(partial(_targets, learner))(
            leaf, rollout, problem.own_params
        )
        hessian, by_targets = _through_gradient(
            problem, state, rollout, targets, by_grads, by_state
        )
        regulariser = target_regulariser(problem, targets) / len(problem.train)
        results = {name: getattr(targets, name) for name in _TARGETS}
        results |= {"regulariser": regulariser}
        results |= {"hidden": rule_state.rnn.hidden, "cell": rule_state.rnn.cell}
        cotangents = by_targets | {"hidden": after.hidden, "cell": after.cell}
        cotangents["regulariser"] = torch.ones_like(regulariser)
        inputs = flatten({"rule": problem.rule_params}) | (_state_inputs(leaf) if by_state else {})
        groups = split_groups(vector_jacobian(results, inputs, cotangents))
    if not by_state:
        return after, groups["rule"]
    before = Cotangent(
        params=_sum(direct["params"], hessian, groups["params"]),
        target_params=_sum(direct["target_params"], groups["target_params"]),
        first=direct["first"],
        hidden=groups["rnn"]["hidden"],
        cell=groups["rnn"]["cell"],
    )
    return before, groups["rule"]


def _through_optimiser(
    problem: MetaProblem, state: LearnerState, grads: Mapping[str, Tensor], after: Cotangent
) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """Derivatives by the agent's gradient, and by what else the optimiser reads."""
    leaf = _leaf_state(state)
    leaf_grads = leaves(grads)
    learner = problem.learner
    with torch.enable_grad():
        apply = partial(apply_gradients, rule=learner.rule, optimiser=learner.optimiser)
        new, _ = learner.each(apply)(leaf, leaf_grads, state.rule)
        results = _read_by_optimiser(new)
        cotangents = flatten(
            {"params": after.params, "target_params": after.target_params, "first": after.first}
        )
        inputs = flatten({"grads": leaf_grads}) | _read_by_optimiser(leaf)
        groups = split_groups(vector_jacobian(results, inputs, cotangents))
    return groups["grads"], groups


def _through_gradient(
    problem: MetaProblem,
    state: LearnerState,
    rollout: Rollout,
    targets: DiscoTargets,
    by_grads: Mapping[str, Tensor],
    by_state: bool,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Products of the direction `by_grads` with the second derivatives of the agent's loss:
    by the parameters twice (if `by_state`), and by the parameters and the targets."""
    learner = problem.learner
    params = leaves(state.params) if by_state else state.params
    leaf_targets = leaves({name: getattr(targets, name) for name in _TARGETS})
    free: Any = leaf_targets
    targets = replace(tree_map(torch.Tensor.detach, targets), **free)
    with forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(p, by_grads[name]) for name, p in params.items()}
        loss = learner.each(partial(_loss, learner))(dual, targets, rollout)
        inputs = flatten({"targets": leaf_targets} | ({"params": params} if by_state else {}))
        gradient = vector_jacobian({"loss": loss.sum()}, inputs)
        tangents = {name: _tangent(g) for name, g in gradient.items()}
    groups = split_groups(tangents)
    return groups.get("params", {}), groups["targets"]


def _targets(
    learner: Learner, state: LearnerState, rollout: Rollout, own_params: Params | None
) -> tuple[DiscoTargets, DiscoState]:
    """What the rule, or one with its own parameters, asks of an agent, and its new memory of it."""
    outputs = learner.agent.outputs(state.params, rollout.inputs(), for_targets=True)
    rule = learner.rule
    if own_params is not None:
        rule = replace(rule, params=own_params)  # type: ignore[type-var]
    return rule_targets(state, rollout, outputs, rule, learner.agent, differentiable=True)


def _loss(learner: Learner, params: Params, targets: DiscoTargets, rollout: Rollout) -> Tensor:
    """An agent's loss []."""
    taken = learner.agent.taken(params, rollout.inputs(), rollout.actions[:-1])
    first_steps = learner.learn_first_steps
    return masked_loss(taken, targets, rollout, learner.rule, first_steps, measured=False)[0]


def _tangent(dual: Tensor) -> Tensor:
    tangent = forward_ad.unpack_dual(dual).tangent
    return torch.zeros_like(dual) if tangent is None else tangent.detach()


def _leaf_state(state: LearnerState) -> LearnerState:
    """The same state, with whatever carries meta-gradient as leaves of a new graph."""
    assert state.target_params is not None
    assert isinstance(state.rule, DiscoState)
    rnn = MetaRNNState(**leaves({"hidden": state.rule.rnn.hidden, "cell": state.rule.rnn.cell}))
    return LearnerState(
        params=leaves(state.params),
        target_params=leaves(state.target_params),
        optimiser=replace(state.optimiser, first=leaves(state.optimiser.first)),
        rule=replace(state.rule, rnn=rnn),
    )


def _state_inputs(leaf: LearnerState) -> dict[str, Tensor]:
    """The parts of an agent's state that its targets depend on."""
    return flatten(
        {"params": leaf.params, "target_params": leaf.target_params, "rnn": leaf.rule.rnn}
    )


def _read_by_optimiser(state: LearnerState) -> dict[str, Tensor]:
    """The parts of an agent's state that an update reads and writes, besides its gradient."""
    first = state.optimiser.first
    return flatten({"params": state.params, "target_params": state.target_params, "first": first})


def _sum(*parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: sum((p[name] for p in parts[1:]), parts[0][name]) for name in parts[0]}
