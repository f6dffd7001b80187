"""Checks of meta-gradients: the meta-loss, all its derivatives, and what the agent becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from discorl.discovery.meta_gradient import Mode, meta_gradient
from discorl.discovery.meta_loss import MetaGradient
from discorl.discovery.value_function import ValueConfig, ValueFunction
from discorl.learner import Learner
from discorl.library.published import to_published
from discorl.observations import ArraySpec
from discorl.optim import ClippedAdam, Schedule
from discorl.rollout import Rollout
from discorl.verify.files import GoldenFile
from discorl.verify.learner import (
    LEARNING_RATE,
    golden_network,
    golden_rollout,
    params_results,
    published_params,
)
from discorl.verify.report import Check
from discorl.verify.rule import golden_rule
from discorl.verify.values import Results

INPUTS = ("agent/*", "target/*", "value/*", "train/*", "valid/*", "meta_params/*")
"""Names of the arrays that are given, not computed."""

_VALUE_LAYERS = {
    "torso.layers.0": "value_fn/~_embedding_pass/torso/~/linear_0",
    "torso.layers.1": "value_fn/~_embedding_pass/torso/~/linear_1",
    "head": "value_fn/~_head_pass/torso_head/~/linear_0",
}


def check_meta(golden: GoldenFile, dtype: torch.dtype, weights: Path | None) -> list[Check]:
    """Every quantity in both modes; each check reports the larger of the two errors."""
    reverse = golden.compare(_results(golden, dtype, weights, "reverse"))
    mixed = golden.compare(_results(golden, dtype, weights, "mixed"))
    return [_worse(a, b) for a, b in zip(reverse, mixed, strict=True)]


def _worse(a: Check, b: Check) -> Check:
    if a.error is None or b.error is None:
        return a
    return b if not b.error <= a.error else a


def _results(golden: GoldenFile, dtype: torch.dtype, weights: Path | None, mode: Mode) -> Results:
    num_bins = golden.tensor("agent/mlp/mlp_2/~/linear_1/b", dtype).shape[0]
    rule = golden_rule(golden, dtype, weights, num_bins)
    valid = golden_rollout(golden, "valid/", dtype)
    shape = tuple(golden.tensor("valid/observations", dtype).shape[2:])
    network = golden_network(golden, "agent/", rule, valid.num_actions, shape)
    learner = Learner(network, rule, ClippedAdam(Schedule(LEARNING_RATE)))
    state = learner.init_from(published_params(golden, "agent/", rule, dtype))
    state = replace(state, target_params=published_params(golden, "target/", rule, dtype))
    value_params = _value_params(golden.under("value/", dtype))
    sizes = tuple(len(value_params[f"torso.layers.{i}.bias"]) for i in range(2))
    value_function = ValueFunction(ArraySpec(shape), ValueConfig(value_torso=sizes))
    train: list[Rollout] = []
    while f"train/{len(train)}/actions" in golden.arrays:
        train.append(golden_rollout(golden, f"train/{len(train)}/", dtype))
    value_state = value_function.init_from(value_params)
    result = meta_gradient(learner, state, value_function, value_state, train, valid, mode=mode)
    return _named(result, learner)


def _named(result: MetaGradient, learner: Learner) -> Results:
    results = {f"meta_grad/{name}": g for name, g in to_published(result.grads).items()}
    results |= {f"log/{name}": value for name, value in result.metrics.items()}
    results |= params_results("agent_after/", result.state.params, learner.rule)
    for ours, published in _VALUE_LAYERS.items():
        params = result.value_state.params
        results[f"value_after/{published}/w"] = params[f"{ours}.weight"].t()
        results[f"value_after/{published}/b"] = params[f"{ours}.bias"]
    return results


def _value_params(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    params = {}
    for ours, published in _VALUE_LAYERS.items():
        params[f"{ours}.weight"] = arrays[f"{published}/w"].t().contiguous()
        params[f"{ours}.bias"] = arrays[f"{published}/b"]
    return params
