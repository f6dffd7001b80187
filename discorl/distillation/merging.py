"""Fewer predictions: bins of y and z that a rule reads alike become one.

A rule reads y only as softmax(y) times a matrix with a row for each bin. Bins with equal rows
could be one bin with their sum: the rule would never know. And summing bins commutes with
predicting: what an agent learns to expect of a sum is the sum of what it expects. So a student
with P' predictions is asked for the teacher's targets, summed over P' groups of bins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from discorl.outputs import AgentOutputs
from discorl.rules.disco import DiscoRule

_ROUNDS = 50


@dataclass(frozen=True)
class Groups:
    """Which of P bins belong to which of P' groups; none is empty."""

    of_bin: Tensor
    """[P] integers."""
    sizes: Tensor
    """[P'] integers."""

    @classmethod
    def of(cls, of_bin: Tensor) -> Groups:
        """From each bin's group."""
        return cls(of_bin, torch.bincount(of_bin))

    def merge(self, logits: Tensor) -> Tensor:
        """Logits over bins [..., P] -> logits over groups [..., P'], whose softmax is the sum."""
        probs = torch.softmax(logits, dim=-1)
        sums = probs.new_zeros(*probs.shape[:-1], len(self.sizes))
        sums = sums.index_add(-1, self.of_bin, probs)
        return sums.clamp(min=torch.finfo(sums.dtype).tiny).log()

    def spread(self, logits: Tensor) -> Tensor:
        """Logits over groups [..., P'] -> over bins [..., P], each group's evenly on its bins."""
        return (logits - self.sizes.to(logits.dtype).log()).index_select(-1, self.of_bin)

    def mean(self, rows: Tensor) -> Tensor:
        """[P, N] -> [P', N]: what the bins of each group have in common."""
        sums = rows.new_zeros(len(self.sizes), rows.shape[1]).index_add(0, self.of_bin, rows)
        return sums / self.sizes.unsqueeze(1).to(rows.dtype)


@dataclass(frozen=True)
class Merging:
    """The groups of y's and z's bins."""

    y: Groups
    z: Groups

    def merge(self, outputs: AgentOutputs) -> AgentOutputs:
        """An agent of the teacher, as the student sees it."""
        return _changed(outputs, self.y.merge, self.z.merge)

    def spread(self, outputs: AgentOutputs) -> AgentOutputs:
        """An agent of the student, as the teacher sees it."""
        return _changed(outputs, self.y.spread, self.z.spread)


def find_merging(teacher: DiscoRule, predictions: int) -> Merging | None:
    """The groups for a student with this many predictions; None if there is nothing to merge."""
    if predictions == teacher.config.sizes.predictions:
        return None
    return Merging(_groups(teacher, "y_net", predictions), _groups(teacher, "z_net", predictions))


def _changed(
    outputs: AgentOutputs, y: Callable[[Tensor], Tensor], z: Callable[[Tensor], Tensor]
) -> AgentOutputs:
    return replace(
        outputs,
        state=outputs.state | {"y": y(outputs.state["y"])},
        action=outputs.action | {"z": z(outputs.action["z"])},
    )


def _groups(teacher: DiscoRule, net: str, count: int) -> Groups:
    """Bins by how both of the teacher's nets read them."""
    weights = [teacher.params[f"{prefix}{net}.0.w"] for prefix in ("", "meta.")]
    rows = torch.cat(weights, dim=1).to("cpu", torch.float64)
    return Groups.of(cluster(rows, count).to(weights[0].device))


def cluster(points: Tensor, count: int) -> Tensor:
    """k-means: points [N, D] -> each one's cluster, none of them empty: [N].

    It begins with points that are far from each other and draws nothing by chance.
    """
    chosen = [int((points - points.mean(dim=0)).square().sum(dim=1).argmax())]
    distance = torch.full((len(points),), float("inf"), dtype=points.dtype)
    while len(chosen) < count:
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(dim=1))
        distance[chosen] = -1  # So that equal points are not chosen twice.
        chosen.append(int(distance.argmax()))
    centres, seeds = points[chosen], torch.tensor(chosen)
    found = torch.cdist(points, centres).argmin(dim=1)
    for _ in range(_ROUNDS):
        found[seeds] = torch.arange(count)
        centres = Groups.of(found).mean(points)
        nearest = torch.cdist(points, centres).argmin(dim=1)
        if torch.equal(nearest, found) or len(nearest.unique()) < count:
            break
        found = nearest
        seeds = torch.cdist(points, centres).argmin(dim=0)
        if len(seeds.unique()) < count:
            break
    return found
