"""Checks of whole learner updates: parameters, targets, memory and metrics after each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from discorl.agents.config import NetworkConfig
from discorl.agents.network import Network
from discorl.agents.published import from_published, to_published
from discorl.learner import Learner, LearnerState
from discorl.optim import ClippedAdam, Schedule
from discorl.rollout import Rollout
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoState
from discorl.verify.files import GoldenFile
from discorl.verify.report import Check
from discorl.verify.rule import golden_rule
from discorl.verify.values import Results, stack_average

INPUTS = ("params/0/*", "forward/observation", "rollout/*", "meta_params/*")
"""Names of the arrays that are given, not computed."""

LEARNING_RATE = 0.01
"""What all golden files were made with."""


def check_learner(golden: GoldenFile, dtype: torch.dtype, weights: Path | None) -> list[Check]:
    """The forward pass, then every update of the file in turn, each from our own last state."""
    learner = _learner(golden, dtype, weights)
    state = learner.init_from(published_params(golden, "params/0/", learner.rule, dtype))
    results = _forward_results(golden, learner, state, dtype)
    update = 0
    while f"rollout/{update}/actions" in golden.arrays:
        rollout = golden_rollout(golden, f"rollout/{update}/", dtype)
        targets = _policy_targets(learner, state, rollout)
        if targets is not None:
            results[f"meta_out/{update}/pi"] = targets
        state, metrics = learner.step(state, rollout)
        results |= {f"log/{update}/{name}": value for name, value in metrics.items()}
        update += 1
        results |= _state_results(learner.rule, state, update)
    return golden.compare(results)


def state_heads(rule: UpdateRule) -> tuple[str, str]:
    """The names of the two linear heads, in published order."""
    first, second = rule.heads(num_actions=1).state
    return first, second


def published_params(
    golden: GoldenFile, prefix: str, rule: UpdateRule, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Agent parameters from a file under our names."""
    return from_published(golden.under(prefix, dtype), state_heads(rule))


def golden_rollout(golden: GoldenFile, prefix: str, dtype: torch.dtype) -> Rollout:
    """A rollout from a file."""
    arrays = golden.under(prefix, dtype)
    return Rollout(
        observations=arrays["observations"],
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        discounts=arrays["discounts"],
        logits=arrays["logits"],
    )


def params_results(prefix: str, params: Mapping[str, Tensor], rule: UpdateRule) -> Results:
    """Agent parameters as a file names them."""
    arrays = to_published(params, state_heads(rule))
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def golden_network(
    golden: GoldenFile,
    prefix: str,
    rule: UpdateRule,
    num_actions: int,
    observation_shape: tuple[int, ...],
) -> Network:
    """The network of a file's agent, with its sizes read off the parameters."""
    params = published_params(golden, prefix, rule, torch.float64)
    layers = [p for name, p in params.items() if name.startswith("torso") and p.dim() == 2]
    config = NetworkConfig(torso=tuple(len(weights) for weights in layers))
    if "model.root.weight" in params:
        config = NetworkConfig(
            torso=config.torso,
            model_size=len(params["model.root.weight"]),
            head_hidden=len(params["model.z.0.weight"]),
        )
    return Network.mlp(observation_shape, rule.heads(num_actions), config)


def _learner(golden: GoldenFile, dtype: torch.dtype, weights: Path | None) -> Learner:
    rule: UpdateRule = ActorCritic()
    if "forward/out/q" in golden.arrays:
        rule = golden_rule(golden, dtype, weights, golden.arrays["forward/out/q"].shape[-1])
    num_actions = golden.tensor("forward/out/logits", dtype).shape[-1]
    shape = tuple(golden.tensor("forward/observation", dtype).shape[1:])
    network = golden_network(golden, "params/0/", rule, num_actions, shape)
    return Learner(network, rule, ClippedAdam(Schedule(LEARNING_RATE)))


def _forward_results(
    golden: GoldenFile, learner: Learner, state: LearnerState, dtype: torch.dtype
) -> Results:
    observation = golden.tensor("forward/observation", dtype)
    outputs = learner.agent.outputs(state.params, observation)
    heads = outputs.state | outputs.action
    return {f"forward/out/{name}": value for name, value in heads.items()}


def _policy_targets(learner: Learner, state: LearnerState, rollout: Rollout) -> Tensor | None:
    """What the rule asks of the policy in this update, if it says so."""
    if state.target_params is None:
        return None
    with torch.no_grad():
        targets, _ = learner.rule.targets(
            learner.agent.outputs(state.params, rollout.observations),
            learner.agent.outputs(state.target_params, rollout.observations),
            rollout.transitions(),
            state.rule,
        )
    policy: Tensor = targets.policy
    return policy


def _state_results(rule: UpdateRule, state: LearnerState, update: int) -> Results:
    """Everything that lives on after an update, under the file's names."""
    results = params_results(f"params/{update}/", state.params, rule)
    if state.target_params is not None:
        results |= params_results(f"target_params/{update}/", state.target_params, rule)
    results[f"ema/{update}/adv"] = stack_average(state.rule.advantage)
    results[f"ema/{update}/td"] = stack_average(state.rule.td)
    if isinstance(state.rule, DiscoState):
        results[f"meta_rnn/{update}/h"] = state.rule.rnn.hidden
        results[f"meta_rnn/{update}/c"] = state.rule.rnn.cell
    return results
