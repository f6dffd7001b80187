"""One update: experience in, a better agent out. The same step serves training and discovery.

Everything is a tensor and nothing leaves the device: no value is read back to decide anything.
docs/symbols.md has the symbols and their names here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from discorl.agents.base import Agent
from discorl.errors import DiscorlError
from discorl.gradients import leaves, vector_jacobian
from discorl.group import SOLO, Group
from discorl.layers import Params
from discorl.optim import AdamState, ClippedAdam, apply_updates, for_each, global_norm
from discorl.outputs import AgentOutputs, TakenOutputs
from discorl.rollout import Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.stacking import ALONE, Each
from discorl.tree import flatten, tree_map

_MASK_EPS = 1e-8


@dataclass(frozen=True)
class LearnerState:
    """All there is to an agent: what it knows, and what its rule and optimiser remember."""

    params: dict[str, Tensor]
    target_params: dict[str, Tensor] | None
    """A slow copy of the parameters, if the rule wants one."""
    optimiser: AdamState
    rule: Any
    """The rule's memory of this agent."""


@dataclass(frozen=True)
class Learner:
    """Who learns, by which rule, with which optimiser: fixed for an agent's life."""

    agent: Agent
    rule: UpdateRule
    optimiser: ClippedAdam
    learn_first_steps: bool = False
    """Whether an episode's first step counts in the loss; in the published learner it does not."""
    each: Each = ALONE
    """One agent, or a stack of them that learn at once."""
    group: Group = SOLO
    """Processes that learn as one, each from its part of the batch."""

    def init(self, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> LearnerState:
        """A newborn agent."""
        params = {k: v.to(dtype) for k, v in self.agent.init(generator).items()}
        return self.init_from(params)

    def init_from(self, params: dict[str, Tensor]) -> LearnerState:
        """A newborn agent with the given parameters."""
        example = next(iter(params.values()))
        has_target = self.rule.target_params_decay is not None
        return LearnerState(
            params=params,
            target_params={k: v.clone() for k, v in params.items()} if has_target else None,
            optimiser=self.optimiser.init(params),
            rule=self.rule.initial_state(example.dtype, example.device),
        )

    def step(
        self,
        state: LearnerState,
        rollout: Rollout,
        differentiable: bool = False,
        measured: bool = True,
    ) -> tuple[LearnerState, Metrics]:
        """Move the agent towards the rule's targets on one batch of trajectories.

        Args:
          state: the agent before.
          rollout: L = T + 1 stored steps of B trajectories.
          differentiable: keep the graph, so that the new state can be differentiated with
            respect to the old one and the rule's parameters.
          measured: whether anybody reads the metrics.

        Returns:
          The agent after, and scalar metrics; none unless measured.
        """
        update = self.update(state, rollout, differentiable, measured=measured)
        return update.state, update.metrics

    def update(
        self,
        state: LearnerState,
        rollout: Rollout,
        differentiable: bool = False,
        rule_params: Params | None = None,
        measured: bool = True,
    ) -> LearnerUpdate:
        """`step`, with everything it computed on the way.

        Args:
          rule_params: to learn by in place of the rule's own; in a stack, each agent's.
        """
        return learner_update(
            state,
            rollout,
            self.rule,
            self.agent,
            self.optimiser,
            differentiable,
            self.learn_first_steps,
            self.each,
            rule_params,
            self.group,
            measured,
        )

    def compiled_step(self) -> Callable[[LearnerState, Rollout], tuple[LearnerState, Metrics]]:
        """`step` as one compiled graph, gradient included: slow to build, then faster.

        The first call compiles, for the shapes it is called with.
        """
        if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
            raise DiscorlError(
                f"compile: torch {torch.__version__} cannot compile a step that takes gradients; "
                "2.13 can"
            )
        torch._dynamo.config.trace_autograd_ops = True
        return torch.compile(self.step, dynamic=False, fullgraph=True)


@dataclass(frozen=True)
class LearnerUpdate:
    """A learner step with its intermediate results."""

    state: LearnerState
    metrics: Metrics
    targets: Any
    """What the rule asked for."""
    outputs: AgentOutputs
    """The agent on the rollout, before the update."""
    grads: dict[str, Tensor]


def learner_update(
    state: LearnerState,
    rollout: Rollout,
    rule: UpdateRule,
    agent: Agent,
    optimiser: ClippedAdam,
    differentiable: bool = False,
    learn_first_steps: bool = False,
    each: Each = ALONE,
    rule_params: Params | None = None,
    group: Group = SOLO,
    measured: bool = True,
) -> LearnerUpdate:
    """See `Learner.update`."""
    if group.size > 1 and (differentiable or each.agents is not None):
        raise ValueError("group: several processes share a plain step of one agent, no other")
    carries = differentiable and any(p.requires_grad for p in state.params.values())
    params = state.params if carries else leaves(state.params)

    def look(params: Params, rollout: Rollout) -> tuple[AgentOutputs, TakenOutputs]:
        return agent.learn(params, rollout.inputs(), rollout.actions[:-1], carries)

    def aim(
        state: LearnerState, rollout: Rollout, outputs: AgentOutputs, own: Params | None
    ) -> tuple[Any, Any]:
        by = rule if own is None else replace(rule, params=own)  # type: ignore[type-var]
        return rule_targets(state, rollout, outputs, by, agent, differentiable, group)

    def measure(taken: TakenOutputs, targets: Any, rollout: Rollout) -> tuple[Tensor, Metrics]:
        return masked_loss(taken, targets, rollout, rule, learn_first_steps, group, measured)

    def move(state: LearnerState, grads: Params, rule_state: Any) -> tuple[LearnerState, Params]:
        return apply_gradients(state, grads, rule_state, rule, optimiser)

    outputs, taken = each(look)(params, rollout)
    targets, rule_state = each(aim)(state, rollout, outputs, rule_params)
    if differentiable:
        # First by the heads, then by the parameters: so the targets, which may depend on the
        # parameters too, count as constants in the update, though not beyond it.
        heads = tree_map(_view, taken)
        loss, metrics = each(measure)(heads, targets, rollout)
        by_heads = vector_jacobian({"loss": loss.sum()}, flatten(heads), create_graph=True)
        grads = vector_jacobian(flatten(taken), params, by_heads, create_graph=True)
    else:
        loss, metrics = each(measure)(taken, targets, rollout)
        grads = vector_jacobian({"loss": loss.sum()}, params)
    if group.size > 1:
        weight = rollout.loss_mask(learn_first_steps).sum() + _MASK_EPS / group.size
        grads, loss, metrics = _over_group(group, grads, loss, weight, metrics, rollout)
    with torch.set_grad_enabled(differentiable):
        new_state, updates = each(move)(state, grads, rule_state)
    if not measured:
        return LearnerUpdate(new_state, {}, targets, outputs, grads)
    with torch.no_grad():
        metrics = metrics | {
            "total_loss": loss.detach(),
            "global_gradient_norm": each(global_norm)(grads),
            "global_update_norm": each(global_norm)(updates),
        }
    return LearnerUpdate(new_state, metrics, targets, outputs, grads)


def rule_targets(
    state: LearnerState,
    rollout: Rollout,
    outputs: AgentOutputs,
    rule: UpdateRule,
    agent: Agent,
    differentiable: bool,
    group: Group = SOLO,
) -> tuple[Any, Any]:
    """What the rule asks for, given the agent's outputs, and the rule's new memory."""
    target_outputs = None
    with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        if state.target_params is not None:
            target_outputs = agent.outputs(state.target_params, rollout.inputs(), for_targets=True)
        return rule.targets(
            outputs, target_outputs, rollout.transitions(group), state.rule, differentiable
        )


def masked_loss(
    taken: TakenOutputs,
    targets: Any,
    rollout: Rollout,
    rule: UpdateRule,
    learn_first_steps: bool = False,
    group: Group = SOLO,
    measured: bool = True,
) -> tuple[Tensor, Metrics]:
    """The mean loss [] over steps that count, in this process, and the rule's metrics."""
    loss_per_step, metrics = rule.loss(taken, targets, rollout.transitions(group, measured))
    mask = rollout.loss_mask(learn_first_steps)
    return (loss_per_step * mask).sum() / (mask.sum() + _MASK_EPS / group.size), metrics


def apply_gradients(
    state: LearnerState,
    grads: Params,
    rule_state: Any,
    rule: UpdateRule,
    optimiser: ClippedAdam,
) -> tuple[LearnerState, dict[str, Tensor]]:
    """The agent after an update, and the update."""
    updates, optimiser_state = optimiser.update(grads, state.optimiser, state.params)
    new_state = LearnerState(
        params=apply_updates(state.params, updates),
        target_params=_follow(state.target_params, state.params, rule.target_params_decay),
        optimiser=optimiser_state,
        rule=rule_state,
    )
    return new_state, updates


def _over_group(
    group: Group,
    grads: dict[str, Tensor],
    loss: Tensor,
    weight: Tensor,
    metrics: Metrics,
    rollout: Rollout,
) -> tuple[dict[str, Tensor], Tensor, Metrics]:
    """Gradient, loss and metrics of the whole batch, from those of every process's part.

    The loss is a mean over steps that count, of which a part may have more than another; metrics
    are means over all steps.
    """
    own = [*grads.values(), loss.detach(), *metrics.values()]
    weights = [weight] * (len(grads) + 1) + [rollout.actions.shape[1]] * len(metrics)
    means = iter(group.means(own, weights))
    grads = {name: next(means) for name in grads}
    loss = next(means)
    return grads, loss, {name: next(means) for name in metrics}


def _view(tensor: Tensor) -> Tensor:
    return tensor.view_as(tensor)


def _follow(
    target_params: Params | None, params: Params, decay: float | None
) -> dict[str, Tensor] | None:
    """Target parameters move towards the parameters *before* this update."""
    if target_params is None or decay is None:
        return None
    before = [params[name] for name in target_params]
    moved = for_each("lerp", before, list(target_params.values()), decay)
    return dict(zip(target_params, moved, strict=True))
