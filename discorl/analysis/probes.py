"""What an agent's outputs know: linear probes of the future."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from discorl.analysis.evidence import Evidence
from discorl.analysis.regression import cross_validated_r2
from discorl.analysis.responses import Row
from discorl.analysis.subjects import Subject
from discorl.values import entropy, lookup

HORIZONS = (1, 2, 4, 16)
"""Steps over which rewards are summed, up to the episode's end."""


def probes(subject: Subject) -> list[Row]:
    """R² of each quantity, told linearly from each output on trajectories that were not fitted."""
    evidence = subject.grown.evidence()
    quantities = future(evidence)
    known = torch.stack([~tensor.isnan() for tensor in quantities.values()]).all(dim=0)
    if known.sum() == 0:
        return []
    groups = torch.arange(known.shape[1]).expand_as(known)[known].numpy()
    aims = np.stack([tensor[known].numpy() for tensor in quantities.values()], axis=1)
    rows = []
    for name, output in _outputs(evidence).items():
        scores = cross_validated_r2(output[known].numpy(), aims, groups)
        for quantity, score in zip(quantities, scores.tolist(), strict=True):
            rows.append({"rule": subject.label, "output": name, "quantity": quantity, "r2": score})
    return rows


def _outputs(evidence: Evidence) -> dict[str, Tensor]:
    """What is read, as probabilities [T, B, n]: action heads for the action taken."""
    outputs, actions = evidence.outputs, evidence.transitions.actions
    read = {"policy": outputs.logits[:-1]}
    read |= {name: outputs.state[name][:-1] for name in ("y", "v") if name in outputs.state}
    read |= {k: lookup(outputs.action[k][:-1], actions) for k in ("z", "q") if k in outputs.action}
    return {name: _read(head) for name, head in read.items()}


def _read(head: Tensor) -> Tensor:
    """Probabilities of a categorical head; a scalar one as it is."""
    return torch.softmax(head, dim=-1) if head.shape[-1] > 1 else head


def future(evidence: Evidence) -> dict[str, Tensor]:
    """Quantities [T, B], not numbers where the window ends before the episode does."""
    transitions = evidence.transitions
    rewards, goes_on = transitions.rewards, transitions.links
    to_end = _to_the_end(goes_on)
    returns = {}
    for horizon in HORIZONS:
        name = "reward" if horizon == 1 else f"return, {horizon} steps"
        returns[name] = _return(rewards, goes_on, horizon) + 0 * to_end
    uncertainty = entropy(evidence.outputs.logits)
    return returns | {
        "policy entropy": uncertainty[:-1],
        "policy entropy, next step": uncertainty[1:].where(goes_on > 0, uncertainty[:-1]),
        "steps to the end": to_end,
    }


def _return(rewards: Tensor, goes_on: Tensor, horizon: int) -> Tensor:
    """The sum of the next rewards [T, B], up to the episode's end."""
    total = rewards
    for _ in range(horizon - 1):
        later = torch.cat([total[1:], torch.zeros_like(total[:1])])
        total = rewards + goes_on * later
    return total


def _to_the_end(goes_on: Tensor) -> Tensor:
    """How many more steps follow this one in its episode [T, B]."""
    left = torch.full_like(goes_on[0], float("nan"))
    counts = []
    for on in reversed(goes_on.unbind()):
        left = torch.where(on > 0, left + 1, torch.zeros_like(left))
        counts.append(left)
    return torch.stack(counts[::-1])
