"""Checks of the pure value functions: transforms, returns, moving averages, losses."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.policy_gradient import PolicyGradient
from discorl.values import (
    MovingAverage,
    ValueReading,
    importance_weights,
    retrace,
    signed_hyperbolic,
    signed_log,
    signed_parabolic,
    two_hot_decode,
    two_hot_encode,
    value_loss_from_td,
    vtrace,
)
from discorl.verify.files import GoldenFile
from discorl.verify.report import Check

INPUTS = (
    "transform/x",
    "two_hot/*/x",
    "two_hot/*/logits",
    "vtrace/in/*",
    "retrace/in/*",
    "importance/*_logits",
    "importance/actions",
    "moving_average/*/x",
    "value_loss/*/net_out",
    "value_loss/*/td",
    "policy_gradient/logits",
    "policy_gradient/actions",
    "policy_gradient/normalized_adv",
)
"""Names of the arrays that are given, not computed."""

_DECAY = 0.99
_MAX_ABS_VALUE = 300.0
_READINGS = {
    "cat0_nl0": ValueReading(None, nonlinear=False),
    "cat0_nl1": ValueReading(None, nonlinear=True),
    "cat1_nl0": ValueReading(_MAX_ABS_VALUE, nonlinear=False),
    "cat1_nl1": ValueReading(_MAX_ABS_VALUE, nonlinear=True),
}

Results = dict[str, Tensor]


def check_values(golden: GoldenFile, dtype: torch.dtype, weights: Path | None) -> list[Check]:
    """Every quantity of the groups of functions the file holds; no weights are needed."""
    groups = {
        "transform/": _transforms,
        "two_hot/": _two_hot,
        "vtrace/": _vtrace,
        "retrace/": _retrace,
        "importance/": _importance,
        "moving_average/": _moving_average,
        "value_loss/": _value_losses,
        "policy_gradient/": _policy_gradient,
    }
    results: Results = {}
    for prefix, group in groups.items():
        if any(key.startswith(prefix) for key in golden.arrays):
            results |= group(golden, dtype)
    return golden.compare(results)


def _transforms(golden: GoldenFile, dtype: torch.dtype) -> Results:
    x = golden.tensor("transform/x", dtype)
    return {
        "transform/signed_hyperbolic": signed_hyperbolic(x),
        "transform/signed_parabolic": signed_parabolic(x),
        "transform/signed_logp1": signed_log(x),
    }


def _two_hot(golden: GoldenFile, dtype: torch.dtype) -> Results:
    """One code per number of bins N, which are the integers from -(N - 1) / 2 up."""
    results = {}
    for bins in {key.split("/")[1] for key in golden.arrays if key.startswith("two_hot/")}:
        prefix, num_bins = f"two_hot/{bins}", int(bins)
        largest = (num_bins - 1) / 2
        x = golden.tensor(f"{prefix}/x", dtype)
        probs = torch.softmax(golden.tensor(f"{prefix}/logits", dtype), dim=-1)
        results[f"{prefix}/probs"] = two_hot_encode(x, num_bins, largest)
        results[f"{prefix}/expected"] = two_hot_decode(probs, largest)
    return results


def _vtrace(golden: GoldenFile, dtype: torch.dtype) -> Results:
    given = golden.under("vtrace/in/", dtype)
    returns = vtrace(
        rewards=given["rewards"],
        discounts=given["env_discounts"] * given["discount"],
        rho=given["rho"],
        values=given["values"],
        target_values=given["target_values"],
        lambda_=float(given["lambda_"]),
    )
    return {
        "vtrace/out/adv": returns.advantage,
        "vtrace/out/value_target": returns.value_target,
        "vtrace/out/td": returns.td,
    }


def _retrace(golden: GoldenFile, dtype: torch.dtype) -> Results:
    """On the same experience as V-trace: only the action values are its own."""
    given = golden.under("vtrace/in/", dtype) | golden.under("retrace/in/", dtype)
    returns = retrace(
        rewards=given["rewards"],
        discounts=given["env_discounts"] * given["discount"],
        rho=given["rho"],
        actions=given["actions"],
        target_values=given["target_values"],
        q_values=given["q_values"],
        target_q_values=given["target_q_values"],
        lambda_=float(given["lambda_"]),
    )
    # The published function returns these too; nothing reads them.
    clipped_rho = given["rho"].clamp(max=1)
    value_target = given["target_values"][:-1] + clipped_rho * returns.advantage
    return {
        "retrace/out/adv": returns.advantage,
        "retrace/out/value_target": value_target,
        "retrace/out/td": value_target - given["values"][:-1],
        "retrace/out/qv_adv": returns.qv_advantage,
        "retrace/out/q_target": returns.q_target,
        "retrace/out/q_td": returns.q_td,
    }


def _importance(golden: GoldenFile, dtype: torch.dtype) -> Results:
    rho = importance_weights(
        golden.tensor("importance/pi_logits", dtype),
        golden.tensor("importance/mu_logits", dtype),
        golden.tensor("importance/actions", dtype),
    )
    return {"importance/rho": rho}


def _moving_average(golden: GoldenFile, dtype: torch.dtype) -> Results:
    """A stream of arrays x: each one updates the average that then normalises it."""
    average = MovingAverage.initial(dtype)
    results = {}
    step = 0
    while f"moving_average/{step}/x" in golden.arrays:
        prefix = f"moving_average/{step}"
        x = golden.tensor(f"{prefix}/x", dtype)
        average = average.update(x, _DECAY)
        results[f"{prefix}/state"] = stack_average(average)
        results[f"{prefix}/normalized"] = average.normalize(x)
        results[f"{prefix}/scaled"] = average.scale(x)
        step += 1
    return results


def stack_average(average: MovingAverage) -> Tensor:
    """[3]: first moment, second moment, decay product, as golden files keep them."""
    return torch.stack([average.first, average.second, average.decay_product])


def _value_losses(golden: GoldenFile, dtype: torch.dtype) -> Results:
    results = {}
    for variant, reading in _READINGS.items():
        prefix = f"value_loss/{variant}"
        if f"{prefix}/net_out" in golden.arrays:
            net_out = golden.tensor(f"{prefix}/net_out", dtype)
            td = golden.tensor(f"{prefix}/td", dtype)
            results[f"{prefix}/loss"] = value_loss_from_td(net_out, td, reading)
    return results


def _policy_gradient(golden: GoldenFile, dtype: torch.dtype) -> Results:
    """The rule with its default costs; it reads no reward and no behaviour policy."""
    logits = golden.tensor("policy_gradient/logits", dtype)
    advantages = golden.tensor("policy_gradient/normalized_adv", dtype)
    transitions = Transitions(
        actions=golden.tensor("policy_gradient/actions", dtype)[:-1],
        rewards=torch.zeros_like(advantages),
        terminals=torch.zeros_like(advantages, dtype=torch.bool),
        behaviour_logits=logits[:-1],
        advantages=advantages,
    )
    rule = PolicyGradient()
    outputs = AgentOutputs({"logits": logits})
    targets, _ = rule.targets(outputs, None, transitions, None)
    loss, metrics = rule.loss(outputs.taken(transitions.actions), targets, transitions)
    return {
        "policy_gradient/loss_per_step": loss,
        "policy_gradient/entropy": metrics["entropy"],
    }
