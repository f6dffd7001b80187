"""The hand-written update that comes closest: the push regressed on what such updates use."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from discorl.analysis.evidence import Evidence, advantages, state_values
from discorl.analysis.regression import cross_validated_r2, slope
from discorl.analysis.responses import Row
from discorl.analysis.subjects import Subject
from discorl.rules.disco import DiscoTargets
from discorl.values import lookup

ALL = "all together"
_SMALL = 1e-12


def closest_updates(subject: Subject) -> list[Row]:
    """How well each feature alone, and all together, explain the push on experience that was not
    fitted; and the slope of each alone."""
    evidence = subject.learning.evidence()
    push, targets = evidence.push_and_targets(subject.rule)
    features = _features(subject, evidence, targets)
    kept = _real_steps(evidence)
    groups = torch.arange(kept.shape[1]).expand_as(kept)[kept].numpy()
    aim = push[kept].numpy()[:, None]
    columns = {name: feature[kept].numpy() for name, feature in features.items()}
    rows = [
        _row(subject, name, column[:, None], aim, groups, slope(column, aim[:, 0]))
        for name, column in columns.items()
    ]
    rows.append(_row(subject, ALL, np.stack(list(columns.values()), axis=1), aim, groups, None))
    return rows


def _row(
    subject: Subject,
    name: str,
    features: np.ndarray,
    aim: np.ndarray,
    groups: np.ndarray,
    slope_alone: float | None,
) -> Row:
    explained = float(cross_validated_r2(features, aim, groups)[0])
    return {"rule": subject.label, "feature": name, "r2": explained, "slope": slope_alone}


def _features(subject: Subject, evidence: Evidence, targets: Any) -> dict[str, Tensor]:
    """What hand-written updates push by, each [T, B]."""
    rule, transitions, actions = subject.rule, evidence.transitions, evidence.transitions.actions
    advantage, values = advantages(targets), state_values(rule, evidence)
    scaled = advantage / advantage.std().clamp(min=_SMALL)
    discounts = rule.config.discount * transitions.continues
    features = {
        "advantage": advantage,
        "clipped advantage": scaled.clamp(-1, 1),
        "sign of advantage": advantage.sign(),
        "one-step TD error": transitions.rewards + discounts * values[1:] - values[:-1],
        "reward": transitions.rewards,
        "entropy bonus": _entropy_push(evidence),
    }
    if isinstance(targets, DiscoTargets):
        log_policy = torch.log_softmax(evidence.outputs.logits[:-1], dim=-1)
        slow = torch.log_softmax(targets.target_logits, dim=-1)
        features["q - v of the action"] = lookup(targets.returns.qv_advantage[:-1], actions)
        features["pull to the slow policy"] = lookup(slow - log_policy, actions)
    return features


def _entropy_push(evidence: Evidence) -> Tensor:
    """The push of a bonus for entropy of weight one."""
    log_policy = torch.log_softmax(evidence.outputs.logits[:-1], dim=-1)
    entropy = -(log_policy.exp() * log_policy).sum(dim=-1)
    taken = lookup(log_policy, evidence.transitions.actions)
    return -taken.exp() * (taken + entropy) / (1 - taken.exp()).clamp(min=_SMALL)


def _real_steps(evidence: Evidence) -> Tensor:
    """[T, B] booleans: not the step from one episode to the next."""
    transitions = evidence.transitions
    real = torch.ones_like(transitions.terminals)
    return real if transitions.gaps is None else real & ~transitions.gaps
