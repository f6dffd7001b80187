"""Memory: act on a cue that is no longer there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, draw_index, mark


@dataclass(frozen=True)
class Memory(StackableGame):
    """Remember a cue that is shown once, and name it some steps later.

    The first observation shows the cue. Actions do nothing until the last, `delay` steps later:
    naming the cue pays 1, any other action -1. An agent without memory can only guess, unless the
    cue stays visible: then the game asks which of the steps the reward was for.
    """

    cues: int = 2
    """Number of different cues, and of actions."""
    delay: int = 3
    """Steps from the cue to the answer."""
    visible: bool = False
    """The cue is shown at every step."""

    sizes = ("cues", "delay")

    def __post_init__(self) -> None:
        check_least(self, cues=2, delay=1)

    @property
    def num_actions(self) -> int:
        """One for each cue."""
        return self.cues

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions mean."""
        return tuple(f"cue {number}" for number in range(self.num_actions))

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """1 at the cue while it is shown; after the first step also 1 at the step."""
        return (self.cues + self.delay,)

    @property
    def optimal_return(self) -> float:
        """Exact, for a policy with memory or a visible cue."""
        return 1.0

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        cue = draw_index(self.cues, (num_envs,), generator)
        return {"cue": cue, "time": torch.zeros_like(cue)}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        time = state["time"] + 1
        terminal = time > self.delay
        right = actions == state["cue"]
        reward = terminal.float() * (2 * right.float() - 1)
        return {**state, "time": time}, reward, terminal

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        cue, time = state["cue"], state["time"]
        first = time == 0
        step = torch.where(first, cue, self.cues + time - 1)
        shown = torch.where(first | self.visible, cue, step)
        (size,) = self.frame.observation_shape
        return mark(torch.stack([shown, step], dim=1), size)
