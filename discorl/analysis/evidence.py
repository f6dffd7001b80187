"""What a rule reads at one update, and how it changes if one thing in it is changed.

The *push* of a rule is how much likelier it wants the action taken to be. For a discovered rule it
is the log-ratio of policy target and policy, log π̂(a) - log π(a). A hand-written rule has no
target: there it is what multiplies the gradient of log π(a), read off the loss's gradient with
respect to the logits. Everything is float64, so that small differences are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from discorl.agents.base import Agent
from discorl.layers import Params
from discorl.learner import LearnerState
from discorl.outputs import AgentOutputs
from discorl.rollout import Rollout, Transitions
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoRule, DiscoState, DiscoTargets
from discorl.rules.meta_network import MetaInputs, MetaOutputs, apply_meta_network
from discorl.tree import tree_map
from discorl.values import ValueReading, lookup, signed_hyperbolic, two_hot_encode

_SMALL = 1e-12


@dataclass(frozen=True)
class Evidence:
    """T transitions of B trajectories, and what the agent thinks of their T + 1 states."""

    outputs: AgentOutputs
    target_outputs: AgentOutputs | None
    transitions: Transitions
    state: Any
    """The rule's memory of the agent."""

    def push_and_targets(self, rule: UpdateRule) -> tuple[Tensor, Any]:
        """The push [T, B], and the rule's targets."""
        targets, _ = rule.targets(self.outputs, self.target_outputs, self.transitions, self.state)
        return push_of(rule, self, targets), targets

    def push(self, rule: UpdateRule) -> Tensor:
        """[T, B]."""
        return self.push_and_targets(rule)[0]

    def as_one_episode(self) -> Evidence:
        """The same, as if no episode had ended and the agent's own policy had acted."""
        transitions = replace(
            self.transitions,
            terminals=torch.zeros_like(self.transitions.terminals),
            behaviour_logits=self.outputs.logits[:-1],
            gaps=None,
            linked=None,
        )
        return replace(self, transitions=transitions)


def look(agent: Agent, state: LearnerState, rollout: Rollout) -> Evidence:
    """What an agent's rule would read in an update on this rollout."""
    state, rollout = tree_map(_double, state), tree_map(_double, rollout)
    with torch.no_grad():
        outputs = agent.outputs(state.params, rollout.inputs())
        slow: Params | None = state.target_params
        target = None if slow is None else agent.outputs(slow, rollout.inputs(), for_targets=True)
    return Evidence(outputs, target, rollout.transitions(), state.rule)


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def push_of(rule: UpdateRule, evidence: Evidence, targets: Any) -> Tensor:
    """The push [T, B] that these targets stand for."""
    outputs, actions = evidence.outputs, evidence.transitions.actions
    if isinstance(targets, DiscoTargets):
        return _log_ratio(targets.policy, outputs.logits[:-1], actions)
    logits = outputs.logits.detach().requires_grad_()
    taken = replace(outputs, state=outputs.state | {"logits": logits}).taken(actions)
    loss, _ = rule.loss(taken, targets, evidence.transitions)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    others = 1 - lookup(torch.softmax(logits[:-1].detach(), dim=-1), actions)
    return -lookup(gradient[:-1], actions) / others.clamp(min=_SMALL)


def _log_ratio(target: Tensor, logits: Tensor, actions: Tensor) -> Tensor:
    return lookup(torch.log_softmax(target, dim=-1) - torch.log_softmax(logits, dim=-1), actions)


# --- what the rule computes from the evidence


def advantages(targets: Any) -> Tensor:
    """The advantages [T, B] that a rule estimated, before any normalisation."""
    if isinstance(targets, DiscoTargets):
        return targets.returns.advantage
    advantage: Tensor = targets.raw_advantage
    return advantage


def state_values(rule: DiscoRule | ActorCritic, evidence: Evidence) -> Tensor:
    """What each state is worth to the agent [T + 1, B]."""
    outputs = evidence.outputs
    if isinstance(rule, ActorCritic):
        return rule.reading(outputs.state["v"])
    return _expected(rule.reading(outputs.action["q"]), outputs.logits)


def _expected(values: Tensor, logits: Tensor) -> Tensor:
    return (torch.softmax(logits, dim=-1) * values).sum(dim=-1)


def meta_inputs(rule: DiscoRule, evidence: Evidence, targets: DiscoTargets) -> MetaInputs:
    """All that the meta-network read when it made these targets."""
    outputs, slow, transitions = evidence.outputs, evidence.target_outputs, evidence.transitions
    assert slow is not None
    policy = torch.softmax(outputs.logits, dim=-1)
    return MetaInputs(
        policy=policy,
        behaviour_policy=torch.softmax(transitions.behaviour_logits, dim=-1),
        target_policy=torch.softmax(targets.target_logits, dim=-1),
        actions=transitions.actions,
        rewards=transitions.rewards,
        continues=transitions.continues,
        links=transitions.links,
        values=(policy * targets.q_values).sum(dim=-1),
        advantage=targets.returns.advantage,
        normalized_advantage=targets.normalized_advantage,
        target_q=rule.reading(slow.action["q"])[:-1],
        qv_advantage=targets.returns.qv_advantage[:-1],
        normalized_qv_advantage=targets.normalized_qv_advantage[:-1],
        y=outputs.state["y"],
        target_y=slow.state["y"],
        z=outputs.action["z"],
        target_z=slow.action["z"],
    )


def meta_outputs(rule: DiscoRule, inputs: MetaInputs, state: DiscoState) -> MetaOutputs:
    """What the meta-network makes of its inputs."""
    with torch.no_grad():
        return apply_meta_network(rule.params, inputs, state.rnn)[0]


# --- one thing changed, at one step of all trajectories


def with_reward(evidence: Evidence, step: int, reward: float | Tensor) -> Evidence:
    """With this reward [B] at one step."""
    rewards = _put(evidence.transitions.rewards, step, reward)
    return replace(evidence, transitions=replace(evidence.transitions, rewards=rewards))


def with_value(
    rule: DiscoRule | ActorCritic, evidence: Evidence, step: int, value: float
) -> Evidence:
    """With one state worth so much; what is known of its actions beside one another is kept."""
    heads = [evidence.outputs, evidence.target_outputs]
    changed = [
        None if outputs is None else _with_value(rule, outputs, step, value) for outputs in heads
    ]
    assert changed[0] is not None
    return replace(evidence, outputs=changed[0], target_outputs=changed[1])


def _with_value(
    rule: DiscoRule | ActorCritic, outputs: AgentOutputs, step: int, value: float
) -> AgentOutputs:
    reading = rule.reading
    if isinstance(rule, ActorCritic):
        head = outputs.state["v"]
        written = _write(reading, torch.full_like(reading(head[step]), value), head.shape[-1])
        return replace(outputs, state=outputs.state | {"v": _put(head, step, written)})
    head = outputs.action["q"]
    q = reading(head[step])
    shifted = q + value - _expected(q, outputs.logits[step]).unsqueeze(-1)
    written = _write(reading, shifted, head.shape[-1])
    return replace(outputs, action=outputs.action | {"q": _put(head, step, written)})


def _write(reading: ValueReading, value: Tensor, bins: int) -> Tensor:
    """What a head must say [..., bins] to be read as this value."""
    number = signed_hyperbolic(value) if reading.nonlinear else value
    if reading.max_abs_value is None:
        return number.unsqueeze(-1)
    return two_hot_encode(number, bins, reading.max_abs_value).clamp(min=_SMALL).log()


def with_probability(evidence: Evidence, step: int, probability: float) -> Evidence:
    """With the action taken at one step so likely: to the agent, its slow copy and the actor."""
    transitions, action = evidence.transitions, evidence.transitions.actions[step]

    def changed(logits: Tensor) -> Tensor:
        probs = torch.softmax(logits[step], dim=-1)
        taken = torch.zeros_like(probs).scatter(-1, action.unsqueeze(-1).long(), 1.0)
        others = probs * (1 - taken) + _SMALL
        others = others / (others * (1 - taken)).sum(dim=-1, keepdim=True) * (1 - probability)
        return _put(logits, step, torch.where(taken > 0, probability, others).log())

    def of(outputs: AgentOutputs) -> AgentOutputs:
        return replace(outputs, state=outputs.state | {"logits": changed(outputs.logits)})

    slow = evidence.target_outputs
    return Evidence(
        of(evidence.outputs),
        None if slow is None else of(slow),
        replace(transitions, behaviour_logits=changed(transitions.behaviour_logits)),
        evidence.state,
    )


def pushes_at_advantages(
    rule: DiscoRule | ActorCritic, evidence: Evidence, step: int, grid: Sequence[float]
) -> list[Tensor]:
    """The push [B] at one step for each advantage there, all else as it was."""
    targets, state = rule.targets(
        evidence.outputs, evidence.target_outputs, evidence.transitions, evidence.state
    )
    return [_push_at(rule, evidence, targets, state, step, value) for value in grid]


def _push_at(
    rule: DiscoRule | ActorCritic,
    evidence: Evidence,
    targets: Any,
    state: Any,
    step: int,
    value: float,
) -> Tensor:
    at = torch.full_like(evidence.transitions.rewards[step], value)
    normal = state.advantage.normalize(at)
    if isinstance(rule, ActorCritic):
        used = normal if rule.normalize_advantage else at
        changed = replace(targets, advantage=_put(targets.advantage, step, used))
        return push_of(rule, evidence, changed)[step]
    inputs = meta_inputs(rule, evidence, targets)
    inputs = replace(
        inputs,
        advantage=_put(inputs.advantage, step, at),
        normalized_advantage=_put(inputs.normalized_advantage, step, normal),
    )
    policy = meta_outputs(rule, inputs, evidence.state).policy
    return _log_ratio(policy, evidence.outputs.logits[:-1], evidence.transitions.actions)[step]


def _put(tensor: Tensor, step: int, value: float | Tensor) -> Tensor:
    changed = tensor.clone()
    changed[step] = value
    return changed
