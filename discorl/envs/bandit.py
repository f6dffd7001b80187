"""Bandit: one choice, paid at once or later."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, draw_index, look_up, mark


@dataclass(frozen=True)
class Bandit(StackableGame):
    """Choose the arm that pays best in the context shown, with noise and a delay.

    The seed fixes the mean pay of every arm in every context, from 0 to 1. The first action in a
    context chooses; `delay` actions without effect follow, and the last one brings the pay.
    """

    arms: int = 4
    """Arms to choose from."""
    contexts: int = 1
    """Contexts, equally likely; 1 is a plain bandit."""
    noise: float = 0.1
    """Standard deviation of the pay."""
    delay: int = 0
    """Steps between the choice and the pay."""
    seed: int = 0
    """Fixes the mean pays."""
    wait: int = 0
    """Steps before the context is shown and the choice is made."""

    sizes = ("arms", "contexts", "delay")

    def __post_init__(self) -> None:
        check_least(self, arms=1, contexts=1, noise=0, delay=0, seed=0, wait=0)

    @property
    def num_actions(self) -> int:
        """One for each arm."""
        return self.arms

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions mean."""
        return tuple(f"arm {number}" for number in range(self.num_actions))

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """1 at the context for the choice; after it 1 at the step of the delay; before, nothing."""
        return (self.contexts + self.delay,)

    @property
    def means(self) -> list[list[float]]:
        """The mean pay, [contexts, arms]."""
        rng = random.Random(f"bandit {self.seed}")
        return [[rng.random() for _ in range(self.arms)] for _ in range(self.contexts)]

    @property
    def optimal_return(self) -> float:
        """Exact: the best arm of each context."""
        return sum(max(row) for row in self.means) / self.contexts

    def lay_out(self, frame: Bandit) -> dict[str, Tensor]:
        """See `StackableGame.lay_out`: the mean pays."""
        means = torch.zeros(frame.contexts, frame.arms)
        means[: self.contexts, : self.arms] = torch.tensor(self.means)
        return {"means": means.flatten()}

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        context = draw_index(self.contexts, (num_envs,), generator)
        pay = torch.zeros(num_envs, device=generator.device)
        return {"context": context, "pay": pay, "time": torch.zeros_like(context)}

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        arm = state["context"] * self.frame.arms + actions
        chosen = look_up(self.tables(generator.device)["means"], arm)
        pay = torch.where(state["time"] == self.wait, chosen, state["pay"])
        noise = torch.randn(pay.shape, generator=generator, device=pay.device)
        time = state["time"] + 1
        terminal = time > self.wait + self.delay
        reward = terminal.float() * (pay + self.noise * noise)
        return {**state, "pay": pay, "time": time}, reward, terminal

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        time = state["time"] - self.wait
        shown = torch.where(time > 0, self.contexts + time - 1, state["context"])
        (size,) = self.frame.observation_shape
        return mark(shown[:, None], size) * (time >= 0)[:, None]
