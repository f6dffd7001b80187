"""Seats at a stacked environment: each agent has its own environment, and all of them step at once.

An agent lives in one environment, and is born and dies apart from the others. A population whose
games step as one tensor sits around a table: the stacked environment is the table, and what an
agent takes for its environment is a seat.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from discorl.envs.families import find_family
from discorl.envs.registry import make_game
from discorl.envs.sources import EnvironmentSource
from discorl.envs.stacked import Padding, StackedEnvironment
from discorl.envs.tensor import TensorEnvironment
from discorl.rollout import TimeStep


class Seat:
    """One member's place at a stacked environment, as an `Environment` of its own."""

    max_episode_steps = TensorEnvironment.max_episode_steps

    def __init__(self, table: StackedEnvironment, place: int, spec: str, num_envs: int) -> None:
        if num_envs != table.copies:
            raise ValueError(f"expected {table.copies} copies, as the table has, got {num_envs}")
        self.table = table
        self.place = place
        self.num_envs = num_envs
        self.num_actions = table.num_actions
        self.observation_spec = table.observation_spec
        self._spec = spec

    def reset(self, seed: int) -> TimeStep:
        """See `Environment.reset`; the others at the table play on."""
        return self.table.replace(self.place, self._spec, seed)

    def step(self, actions: Tensor) -> TimeStep:
        """See `Environment.step`: alone, which takes as long as all seats together."""
        return self.table.step_member(self.place, actions)

    def state_dict(self) -> dict[str, Tensor]:
        """See `Environment.state_dict`: its own boards, and the generator that all share."""
        return self.table.member_state(self.place)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `Environment.load_state_dict`."""
        self.table.load_member_state(self.place, state)

    def close(self) -> None:
        """See `Environment.close`: there is nothing to free."""


class Table:
    """A stacked environment for agents that each play members of one family, or one same game.

    Args:
      env: the family, or the game.
      specs: what each agent plays at first.
      seed: of the generator that all seats share.
    """

    def __init__(
        self,
        env: str,
        specs: Sequence[str],
        copies: int,
        seed: int,
        padding: Padding | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.env = StackedEnvironment(specs, copies, frame_of(env), device, padding)
        self.env.reset(seed)

    def source(self, place: int, spec: str) -> EnvironmentSource:
        """Where an agent at this place gets its environment from, if it is to play `spec`."""
        return EnvironmentSource(spec, partial(Seat, self.env, place, spec), cheap=True)


def frame_of(env: str) -> str:
    """The game that has room for every member of a family; any other game is its own."""
    family = find_family(env)
    return family.largest if family else env


def common_padding(envs: Sequence[str]) -> Padding:
    """The least that makes all members of all these families and games look alike."""
    games = [make_game(frame_of(env)) for env in envs]
    length = max(torch.Size(game.observation_shape).numel() for game in games)
    return Padding(length, max(game.num_actions for game in games))
