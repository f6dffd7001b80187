"""Checks of one step of a discovered rule: targets, new state, losses, metrics, gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from discorl.library.catalogue import load_rule, require_discovered
from discorl.library.published import from_published, infer_sizes
from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.disco import DiscoConfig, DiscoRule, DiscoState, DiscoTargets
from discorl.rules.meta_network import MetaRNNState
from discorl.values import MovingAverage
from discorl.verify.files import GoldenFile
from discorl.verify.report import Check
from discorl.verify.values import Results, stack_average

INPUTS = ("in/*", "state/*", "meta_params/*")
"""Names of the arrays that are given, not computed."""

NOT_COMPARED = {
    "new/target_w": "the file lacks the parameters it comes from; learner files check it",
}
"""Arrays that cannot be computed from the file's inputs, and why."""


def check_rule(golden: GoldenFile, dtype: torch.dtype, weights: Path | None) -> list[Check]:
    """Every quantity of one call of the rule on given outputs of the agent."""
    heads = golden.under("in/agent_out/", dtype)
    heads = {name: tensor.requires_grad_() for name, tensor in heads.items()}
    target_heads = golden.under("in/target_out/", dtype)
    transitions = _transitions(golden, dtype)
    num_actions = transitions.behaviour_logits.shape[-1]
    rule = golden_rule(golden, dtype, weights, num_bins=_num_bins(golden))
    spec = rule.heads(num_actions)
    outputs = AgentOutputs.from_dict(heads, spec)
    target_outputs = AgentOutputs.from_dict(target_heads, spec)

    targets, state = rule.targets(outputs, target_outputs, transitions, _state(golden, dtype))
    results = _target_results(targets) | _state_results(state)
    results |= _loss_results(rule, heads, outputs, targets, transitions)
    skipped = [Check(key, None, why) for key, why in NOT_COMPARED.items() if key in golden.arrays]
    return golden.compare(results) + skipped


def golden_rule(
    golden: GoldenFile, dtype: torch.dtype, weights: Path | None, num_bins: int
) -> DiscoRule:
    """The rule a file was made with: the one it carries, else `weights`, else Disco103.

    Its action values have `num_bins` bins, one apart, around zero.
    """
    arrays = golden.under("meta_params/", dtype)
    rule = _own_rule(arrays) if arrays else _library_rule(weights)
    config = replace(rule.config, num_bins=num_bins, max_abs_value=(num_bins - 1) / 2)
    return replace(rule, config=config).to(dtype)


def _own_rule(arrays: dict[str, Tensor]) -> DiscoRule:
    sizes = infer_sizes({name: tuple(array.shape) for name, array in arrays.items()})
    return DiscoRule(DiscoConfig(sizes=sizes), from_published(arrays))


def _library_rule(weights: Path | None) -> DiscoRule:
    return require_discovered(load_rule("disco103" if weights is None else weights))


def _num_bins(golden: GoldenFile) -> int:
    return golden.tensor("in/agent_out/q", torch.float64).shape[-1]


def _transitions(golden: GoldenFile, dtype: torch.dtype) -> Transitions:
    """The file has actions and behaviour of T + 1 steps; the last ones have no outcome yet."""
    return Transitions(
        actions=golden.tensor("in/actions", dtype)[:-1],
        rewards=golden.tensor("in/rewards", dtype),
        terminals=golden.tensor("in/is_terminal", dtype),
        behaviour_logits=golden.tensor("in/behaviour_logits", dtype)[:-1],
    )


def _state(golden: GoldenFile, dtype: torch.dtype) -> DiscoState:
    return DiscoState(
        rnn=MetaRNNState(golden.tensor("state/h", dtype), golden.tensor("state/c", dtype)),
        advantage=MovingAverage(*golden.tensor("state/adv", dtype)),
        td=MovingAverage(*golden.tensor("state/td", dtype)),
    )


def _target_results(targets: DiscoTargets) -> Results:
    returns = targets.returns
    return {
        "out/pi": targets.policy,
        "out/y": targets.y,
        "out/z": targets.z,
        "out/meta_input_emb": targets.meta_input,
        "out/q_target": returns.q_target,
        "out/adv": returns.advantage,
        "out/normalized_adv": targets.normalized_advantage,
        "out/qv_adv": returns.qv_advantage,
        "out/normalized_qv_adv": targets.normalized_qv_advantage,
        "out/q_value": targets.q_values,
        "out/q_td": returns.q_td,
        "out/normalized_q_td": targets.normalized_q_td,
    }


def _state_results(state: DiscoState) -> Results:
    return {
        "new/h": state.rnn.hidden,
        "new/c": state.rnn.cell,
        "new/adv": stack_average(state.advantage),
        "new/td": stack_average(state.td),
    }


def _loss_results(
    rule: DiscoRule,
    heads: dict[str, Tensor],
    outputs: AgentOutputs,
    targets: DiscoTargets,
    transitions: Transitions,
) -> Results:
    """Both losses, the metrics, and the gradient of the losses' sum by every head."""
    taken = outputs.taken(transitions.actions)
    prediction_loss, prediction_metrics = rule.prediction_loss(taken, targets, transitions)
    value_loss, value_metrics = rule.value_loss(taken, targets, transitions)
    gradients = torch.autograd.grad(
        (prediction_loss + value_loss).sum(), list(heads.values()), materialize_grads=True
    )
    results = {"loss/meta_per_step": prediction_loss, "loss/value_per_step": value_loss}
    results |= {f"log/{k}": v for k, v in (prediction_metrics | value_metrics).items()}
    return results | {
        f"grad/{name}": gradient for name, gradient in zip(heads, gradients, strict=True)
    }
