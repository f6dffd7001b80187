"""Games on places in a line, with two actions that mean back and forth."""

from __future__ import annotations

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import draw_flips, look_up, mark, pad


class Line(StackableGame):
    """What such games have in common: how they begin, what is seen, and which action leads forth.

    A subclass has the settings `length` and `seed`; the seed fixes at which places the two actions
    are swapped, and 0 swaps none.
    """

    length: int
    seed: int

    num_actions = 2
    shows_end = True
    sizes = ("length",)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """1 at the place, else 0."""
        return (self.length,)

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """What the actions mean, if they mean the same everywhere."""
        return None if self.seed else ("back", "forth")

    def lay_out(self, frame: Line) -> dict[str, Tensor]:
        """See `StackableGame.lay_out`: 1 where action 0 goes forth."""
        return {"flips": pad(draw_flips(self.length, self.seed), frame.length)}

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`."""
        zeros = torch.zeros(num_envs, dtype=torch.int64, device=generator.device)
        return {"place": zeros, "time": zeros.clone()}

    def leads_forth(self, actions: Tensor, place: Tensor) -> Tensor:
        """Whether each action [B] means forth at its place [B]."""
        return actions != look_up(self.tables(place.device)["flips"], place)

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        return mark(state["place"][:, None], self.frame.length)
