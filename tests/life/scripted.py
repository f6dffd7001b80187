"""Environments that hand out what they are told to: episodes that end in every way."""

from __future__ import annotations

from functools import partial

import torch

from discorl.observations import ArraySpec
from discorl.rollout import TimeStep


class Scripted:
    """Hands out given steps, whatever is done."""

    num_envs, num_actions, observation_spec = 2, 3, ArraySpec((1,))

    def __init__(self, *steps: TimeStep) -> None:
        self.steps = list(steps)

    def reset(self, seed: int = 0) -> TimeStep:
        return self.steps.pop(0)

    def step(self, actions: torch.Tensor) -> TimeStep:
        return self.steps.pop(0)


def scripted_step(
    seen: float,
    reward: float = 1.0,
    terminated: bool = False,
    truncated: bool = False,
    reset: bool | None = None,
    last: float | None = None,
) -> TimeStep:
    """What two copies hand out; the second one's episode just goes on."""

    def flags(value: bool) -> torch.Tensor:
        return torch.tensor([value, False])

    def observation(value: float) -> torch.Tensor:
        return torch.tensor([[float(value)], [5.0]])

    return TimeStep(
        observation(seen),
        torch.tensor([reward, 1.0]),
        flags(terminated),
        flags(truncated),
        None if reset is None else flags(reset),
        None if last is None else observation(last),
    )


waiting_step = partial(scripted_step, reset=False)
"""Of an environment that takes a step to reset."""

SCRIPTS = {
    "cut, then a reset step": [
        waiting_step(10, reward=0.0),
        waiting_step(11),
        waiting_step(12, truncated=True),
        waiting_step(20, reward=0.0, reset=True),
        waiting_step(21),
        waiting_step(22),
    ],
    "end, then a reset step": [
        waiting_step(10, reward=0.0),
        waiting_step(11),
        waiting_step(12, terminated=True),
        waiting_step(20, reward=0.0, reset=True),
        waiting_step(21),
        waiting_step(22),
    ],
    "cut and reset at once": [
        scripted_step(10, reward=0.0),
        scripted_step(11),
        scripted_step(20, truncated=True, last=12),
        scripted_step(21),
        scripted_step(22),
        scripted_step(23),
    ],
    "end and reset at once": [
        scripted_step(10, reward=0.0),
        scripted_step(11),
        scripted_step(20, terminated=True),
        scripted_step(21),
        scripted_step(22),
        scripted_step(23),
    ],
}
