"""What an agent says along its episodes: how sure it is, what it expects, what it gets."""

from __future__ import annotations

import math

from torch import Tensor

from discorl.analysis.evidence import Evidence, state_values
from discorl.analysis.responses import Row
from discorl.analysis.subjects import Subject
from discorl.values import entropy, lookup

QUANTITIES = ("y_confidence", "z_confidence", "value", "policy_entropy", "reward")
SHOWN = 16
"""Steps of the first trajectory in the figure."""


def traces(subject: Subject) -> list[Row]:
    """A row for each step of each trajectory that the agent's own policy made."""
    evidence = subject.grown.evidence(own=True)
    quantities = along(subject, evidence)
    ended = evidence.transitions.terminals
    steps, copies = ended.shape
    return [
        {
            "rule": subject.label,
            "trajectory": copy,
            "step": step,
            **{name: float(tensor[step, copy]) for name, tensor in quantities.items()},
            "ended": bool(ended[step, copy]),
        }
        for copy in range(copies)
        for step in range(steps)
    ]


def along(subject: Subject, evidence: Evidence) -> dict[str, Tensor]:
    """Each quantity [T, B]; y and z only if the agent has them.

    Confidence is how far a prediction's entropy is below that of a uniform one, in nats.
    """
    outputs, transitions = evidence.outputs, evidence.transitions
    told = {}
    if "y" in outputs.state:
        told["y_confidence"] = _confidence(outputs.state["y"][:-1])
        taken = lookup(outputs.action["z"][:-1], transitions.actions)
        told["z_confidence"] = _confidence(taken)
    return told | {
        "value": state_values(subject.rule, evidence)[:-1],
        "policy_entropy": entropy(outputs.logits[:-1]),
        "reward": transitions.rewards,
    }


def _confidence(logits: Tensor) -> Tensor:
    return math.log(logits.shape[-1]) - entropy(logits)


def before_the_end(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Quantity -> steps to the episode's end -> mean over all trajectories; the last step has 0."""
    sums: dict[str, dict[str, list[float]]] = {}
    for row, left in zip(rows, steps_to_the_end(rows), strict=True):
        for name in QUANTITIES:
            if name in row and left is not None:
                sums.setdefault(name, {}).setdefault(str(left), []).append(row[name])
    return {
        name: {left: sum(values) / len(values) for left, values in sorted(by.items(), key=_number)}
        for name, by in sums.items()
    }


def _number(item: tuple[str, list[float]]) -> int:
    return int(item[0])


def steps_to_the_end(rows: list[Row]) -> list[int | None]:
    """For each row; None in an episode that did not end in the window."""
    left: int | None = None
    found: list[int | None] = []
    for index in reversed(range(len(rows))):
        last = index + 1 == len(rows) or rows[index + 1]["trajectory"] != rows[index]["trajectory"]
        if rows[index]["ended"]:
            left = 0
        elif last:
            left = None
        elif left is not None:
            left += 1
        found.append(left)
    return found[::-1]
