"""Umbrella: one early decision, paid at the end, with small rewards in between."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, column, draw_index


@dataclass(frozen=True)
class Umbrella(StackableGame):
    """Take the umbrella if the forecast says rain; what it was worth is known at the end.

    The first action on a forecast decides: 1 takes the umbrella, 0 leaves it. Other actions do
    nothing. The last step pays 1 if the decision fits the forecast, else -1; the steps before it
    pay a small random amount. After Osband et al., "Behaviour suite for reinforcement learning".
    """

    length: int = 6
    """Steps from the forecast to the end."""
    distractors: int = 2
    """Random bits in each observation."""
    noise: float = 0.1
    """Size of the random rewards, plus or minus."""
    wait: int = 0
    """Steps before the forecast is shown and the decision is made."""

    num_actions = 2
    shows_end = True
    action_names = ("leave", "take")
    sizes = ("distractors",)

    def __post_init__(self) -> None:
        check_least(self, length=1, distractors=0, noise=0, wait=0)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Forecast, umbrella taken, share of time left, then the distractors."""
        return (3 + self.distractors,)

    @property
    def optimal_return(self) -> float:
        """Exact: the random rewards are zero on average."""
        return 1.0

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        forecast = draw_index(2, (num_envs,), generator)
        zeros = torch.zeros_like(forecast)
        bits = self._draw_bits(num_envs, generator)
        return {"forecast": forecast, "taken": zeros, "time": zeros.clone(), "bits": bits}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        taken = torch.where(state["time"] == self.wait, actions, state["taken"])
        time = state["time"] + 1
        terminal = time == self.wait + self.length
        fits = taken == state["forecast"]
        small = self.noise * (2 * draw_index(2, time.shape, generator) - 1)
        reward = torch.where(terminal, 2 * fits.float() - 1, small)
        bits = self._draw_bits(len(time), generator)
        return {**state, "taken": taken, "time": time, "bits": bits}, reward, terminal

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: float32."""
        left = 1 - state["time"] / (self.wait + self.length)
        forecast = state["forecast"] * (state["time"] >= self.wait)
        known = torch.stack([forecast, state["taken"], left], dim=1)
        return torch.cat([known, state["bits"]], dim=1).to(torch.float32)

    def _draw_bits(self, num_envs: int, generator: torch.Generator) -> Tensor:
        bits = draw_index(2, (num_envs, self.frame.distractors), generator)
        numbers = torch.arange(bits.shape[1], device=bits.device)
        return bits.masked_fill(numbers >= column(self.distractors), 0)
