"""What a rule responds to: sweeps of one quantity, small changes of every input, and lags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from discorl.analysis.evidence import (
    Evidence,
    meta_inputs,
    meta_outputs,
    pushes_at_advantages,
    with_probability,
    with_reward,
    with_value,
)
from discorl.analysis.subjects import Subject, Told
from discorl.rules.disco import DiscoRule, DiscoTargets
from discorl.rules.meta_network import MetaInputs, MetaOutputs

Row = dict[str, Any]
BY_REWARD, BY_Z = "policy target, by reward", "z target, by z"
"""What is changed k steps later, and what is looked at."""

_STEPS, _COPIES = 29, 16
"""Of the experience: stored steps and trajectories."""
_LAGS = 16
_PERTURBED = 4
"""So many steps in a row are changed, one at a time."""
_POINTS = 9
_SMALL_CHANGE = 1e-3
_SCALE = torch.linspace(-2, 2, _POINTS).tolist()
_PROBABILITIES = torch.linspace(0.02, 0.98, _POINTS).tolist()
SWEPT = {
    "advantage": _SCALE,
    "reward": _SCALE,
    "value": _SCALE,
    "probability": _PROBABILITIES,
}
"""What is swept -> the values it is given."""
INPUTS = {
    "policy": "π",
    "behaviour_policy": "μ",
    "target_policy": "π⁻",
    "rewards": "reward",
    "values": "value",
    "advantage": "advantage",
    "normalized_advantage": "normalised advantage",
    "target_q": "q⁻",
    "qv_advantage": "q⁻ - v⁻",
    "normalized_qv_advantage": "normalised q⁻ - v⁻",
    "y": "y",
    "target_y": "y⁻",
    "z": "z",
    "target_z": "z⁻",
}
"""Inputs of a meta-network, and how figures call them."""
TARGETS = ("policy", "y", "z")


def sweep(subject: Subject, told: Told) -> list[Row]:
    """The push at one step while one quantity there takes other values: quartiles over steps and
    trajectories."""
    evidence = subject.learning.evidence(steps=_STEPS, copies=_COPIES)
    start = (_STEPS - _PERTURBED) // 2
    rows: list[Row] = []
    for done, (name, grid) in enumerate(SWEPT.items()):
        told(f"sweeps of {subject.label}", done, len(SWEPT))
        steps = range(start, start + _PERTURBED)
        pushes = torch.stack([_swept(subject, evidence, name, step) for step in steps])
        quartiles = pushes.transpose(0, 1).flatten(1).quantile(_quarters(pushes), dim=1)
        for x, (low, middle, high) in zip(grid, quartiles.T.tolist(), strict=True):
            values = {"x": x, "push_low": low, "push": middle, "push_high": high}
            rows.append({"rule": subject.label, "input": name, **values})
    return rows


def _quarters(like: Tensor) -> Tensor:
    return torch.tensor([0.25, 0.5, 0.75], dtype=like.dtype)


def _swept(subject: Subject, evidence: Evidence, name: str, step: int) -> Tensor:
    """The push [points, B] at one step."""
    rule = subject.rule
    if name == "advantage":
        return torch.stack(pushes_at_advantages(rule, evidence, step, SWEPT[name]))
    changes: dict[str, Callable[[float], Evidence]] = {
        "reward": lambda x: with_reward(evidence, step, x),
        "value": lambda x: with_value(rule, evidence, step, x),
        "probability": lambda x: with_probability(evidence, step, x),
    }
    return torch.stack([changes[name](x).push(rule)[step] for x in SWEPT[name]])


def reward_credit(subject: Subject) -> list[Row]:
    """How the push at t changes with the reward at t + k, per unit of reward.

    Neighbouring trajectories are changed in opposite directions, so that moving averages over the
    batch stay where they are.
    """
    evidence = subject.learning.evidence(steps=_STEPS, copies=_COPIES).as_one_episode()
    rewards = evidence.transitions.rewards
    signs = 1 - 2 * (torch.arange(rewards.shape[1]) % 2).to(rewards.dtype)
    changes = []
    for step in range(_LAGS, _LAGS + _PERTURBED):
        up, down = (
            with_reward(evidence, step, rewards[step] + direction * _SMALL_CHANGE * signs)
            for direction in (1, -1)
        )
        change = (up.push(subject.rule) - down.push(subject.rule)) / (2 * _SMALL_CHANGE)
        changes.append(_by_lag(change.abs(), step))
    return _lag_rows(subject, BY_REWARD, torch.stack(changes).mean(dim=0))


def input_sensitivity(subject: Subject, told: Told) -> list[Row]:
    """How far each target moves at t, in total variation, when an input moves at t + k.

    Per standard deviation of the input, in a direction drawn at random: a central difference.
    """
    rule, rows = subject.rule, []
    if not isinstance(rule, DiscoRule):
        return []
    evidence = subject.learning.evidence(steps=_STEPS, copies=_COPIES).as_one_episode()
    _, targets = evidence.push_and_targets(rule)
    assert isinstance(targets, DiscoTargets)
    inputs = meta_inputs(rule, evidence, targets)
    generator = torch.Generator().manual_seed(subject.candidate.config.seed)
    for done, name in enumerate(INPUTS):
        told(f"sensitivity of {subject.label}", done, len(INPUTS))
        changes = _moved(rule, evidence, inputs, name, generator)
        for target in TARGETS:
            for lag, change in enumerate(changes[target].tolist()):
                rows.append(
                    {
                        "rule": subject.label,
                        "input": name,
                        "target": target,
                        "lag": lag,
                        "change": change,
                    }
                )
    return rows


def _moved(
    rule: DiscoRule,
    evidence: Evidence,
    inputs: MetaInputs,
    name: str,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Target -> its change by lag [lags] when one input is changed."""
    tensor: Tensor = getattr(inputs, name)
    deviation = tensor.std()
    changes: dict[str, list[Tensor]] = {target: [] for target in TARGETS}
    for step in range(_LAGS, _LAGS + _PERTURBED):
        signs = torch.randint(2, tensor[step].shape, generator=generator) * 2 - 1
        up, down = (
            _outputs_at(rule, evidence, inputs, name, step, direction * deviation * signs)
            for direction in (_SMALL_CHANGE, -_SMALL_CHANGE)
        )
        for target in TARGETS:
            moved = _variation(getattr(up, target), getattr(down, target)) / (2 * _SMALL_CHANGE)
            changes[target].append(_by_lag(moved, step))
    return {target: torch.stack(parts).mean(dim=0) for target, parts in changes.items()}


def _outputs_at(
    rule: DiscoRule,
    evidence: Evidence,
    inputs: MetaInputs,
    name: str,
    step: int,
    change: Tensor,
) -> MetaOutputs:
    tensor = getattr(inputs, name).clone()
    tensor[step] += change
    return meta_outputs(rule, replace(inputs, **{name: tensor}), evidence.state)


def _variation(one: Tensor, other: Tensor) -> Tensor:
    """Total variation between two distributions given by logits [..., N]: [...]."""
    difference = torch.softmax(one, dim=-1) - torch.softmax(other, dim=-1)
    return difference.abs().sum(dim=-1) / 2


def _by_lag(change: Tensor, step: int) -> Tensor:
    """[T, B] -> the mean over trajectories of what a change at `step` did k steps before: [k]."""
    return change[step - _LAGS : step + 1].flip(0).mean(dim=1)


def bootstrapping(subject: Subject, sensitivity: list[Row]) -> list[Row]:
    """How the z target at t changes with z at t + k; the agent's and its slow copy's together."""
    lags = [
        sum(
            row["change"]
            for row in sensitivity
            if row["lag"] == lag and row["target"] == "z" and row["input"] in ("z", "target_z")
        )
        for lag in range(_LAGS + 1)
    ]
    return _lag_rows(subject, BY_Z, torch.tensor(lags)) if sensitivity else []


def _lag_rows(subject: Subject, what: str, changes: Tensor) -> list[Row]:
    """Changes by lag, also relative to no lag."""
    now = float(changes[0])
    return [
        {
            "rule": subject.label,
            "what": what,
            "lag": lag,
            "change": change,
            "relative": change / now if now else None,
        }
        for lag, change in enumerate(changes.tolist())
    ]
