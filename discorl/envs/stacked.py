"""Many games of one kind as one computation: each agent of a population plays its own member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from discorl.envs.families import find_family, resolve_environment
from discorl.envs.registry import make_game, name_game
from discorl.envs.tensor import StackableGame, TensorEnvironment
from discorl.errors import DiscorlError
from discorl.rollout import TimeStep
from discorl.settings import field_types
from discorl.tree import tree_map, unflatten

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float32}


@dataclass(frozen=True)
class Padding:
    """What makes different games look alike to an agent."""

    length: int
    """Observations are vectors of this many floats, zeros after the game's own."""
    num_actions: int
    """Actions; those beyond the game's own are the same ones again."""


class Stack:
    """Games of one kind as one `TensorGame` with P * B boards, those of a member side by side.

    Observations are padded with zeros to those of the frame. Every member has as many actions as
    the frame: those beyond its own A are the same ones again, `action % A`.
    """

    def __init__(
        self,
        games: Sequence[Any],
        copies: int,
        frame: Any,
        device: torch.device,
        padding: Padding | None = None,
    ) -> None:
        self.games = list(games)
        self.num_actions: int = padding.num_actions if padding else frame.num_actions
        self.observation_shape: tuple[int, ...] = (
            (padding.length,) if padding else frame.observation_shape
        )
        self._padding = padding
        self._copies, self._frame = copies, frame
        boards, kind = len(games) * copies, type(frame)
        self._settings = {
            name: torch.zeros(boards, dtype=_DTYPES[type_], device=device)
            for name, type_ in field_types(kind).items()
        }
        self._tables = {
            name: table.new_zeros(boards, *table.shape, device=device)
            for name, table in frame.lay_out(frame).items()
        }
        self._actions = torch.zeros(boards, dtype=torch.int64, device=device)
        # Made without its checks, which are for numbers and which every member has passed.
        self._rules = object.__new__(kind)
        vars(self._rules).update(self._settings, _stack=(frame, self._tables))
        for p, game in enumerate(games):
            self.put(p, game)

    def put(self, p: int, game: Any) -> slice:
        """Make a game member p; its boards, whose state must be started anew."""
        frame = self._frame
        if type(game) is not type(frame):
            raise ValueError(f"expected a game like {name_game(frame)}, got {name_game(game)}")
        for size in frame.sizes:
            if getattr(game, size) > getattr(frame, size):
                raise ValueError(f"{name_game(game)} does not fit into {name_game(frame)}: {size}")
        boards = slice(p * self._copies, (p + 1) * self._copies)
        self.games[p] = game
        for name, setting in self._settings.items():
            setting[boards] = getattr(game, name)
        for name, table in game.lay_out(frame).items():
            self._tables[name][boards] = table.to(self._actions.device)
        self._actions[boards] = game.num_actions
        return boards

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: always all boards."""
        state: dict[str, Tensor] = self._rules.start(num_envs, generator)
        return state

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        played: tuple[dict[str, Tensor], Tensor, Tensor]
        played = self._rules.play(state, actions % self._actions, generator)
        return played

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`."""
        seen: Tensor = self._rules.observe(state)
        if self._padding is None:
            return seen
        flat = seen.flatten(1).float()
        return torch.nn.functional.pad(flat, (0, self._padding.length - flat.shape[1]))


class StackedEnvironment(TensorEnvironment):
    """An `Environment` with P members, each its own game of one kind, and B copies of each.

    Everything is [P * B], a member's copies side by side. One generator draws for all members.
    """

    game: Stack

    def __init__(
        self,
        specs: Sequence[str],
        copies: int,
        frame: str,
        device: torch.device | str = "cpu",
        padding: Padding | None = None,
    ) -> None:
        """Play these games.

        Args:
          specs: the P members, `catch:rows=5,columns=4`: names and settings of one game.
          copies: B, of each.
          frame: a game with the sizes that all members are padded to, `catch:rows=9,columns=9`.
            Only its sizes matter.
          padding: make these games look like those of other stacks.
        """
        if not specs or copies < 1:
            raise ValueError(f"expected members and copies, got {len(specs)} x {copies}")
        largest = make_game(frame)
        if not isinstance(largest, StackableGame):
            raise DiscorlError(f"environment '{frame}' is no StackableGame, which can be stacked")
        self.copies = copies
        games = [make_game(spec) for spec in specs]
        stack = Stack(games, copies, largest, torch.device(device), padding)
        super().__init__(stack, len(specs) * copies, device)

    @property
    def specs(self) -> list[str]:
        """The P members as they are now."""
        return [name_game(game) for game in self.game.games]

    def replace(self, p: int, spec: str, seed: int) -> TimeStep:
        """Let member p play another game; the first step, [B], of its new episodes.

        Args:
          seed: fixes how these episodes begin. The other members go on as if nothing happened.
        """
        boards = self.game.put(p, make_game(spec))
        generator = torch.Generator(self._generator.device).manual_seed(seed)
        fresh = self.game.start(self.num_envs, generator)
        for name, old in self._state.items():
            self._state[name] = old.clone()
            self._state[name][boards] = fresh[name][boards]
        reward = torch.zeros(self.copies, device=self._generator.device)
        seen = self.game.observe(self._state)[boards]
        return TimeStep(seen, reward, torch.zeros_like(reward, dtype=torch.bool))

    def step_member(self, p: int, actions: Tensor) -> TimeStep:
        """Act in the copies of member p alone, [B]; the others stay where they are."""
        before, boards = self._state, self._boards(p)
        everyone = actions.new_zeros(self.num_envs)
        everyone[boards] = actions
        step = self.step(everyone)
        after = self._state
        self._state = {name: old.clone() for name, old in before.items()}
        for name, new in after.items():
            self._state[name][boards] = new[boards]
        return tree_map(lambda tensor: tensor[boards], step)

    def member_state(self, p: int) -> dict[str, Tensor]:
        """All that member p has of its own, and the generator."""
        boards = self._boards(p)
        own = {f"boards/{name}": t[boards].clone() for name, t in self._state.items()}
        return {**own, "generator": self._generator.get_state()}

    def load_member_state(self, p: int, state: dict[str, Tensor]) -> None:
        """Let member p, which plays the same game, go on from what `member_state` returned."""
        state = dict(state)
        self._generator.set_state(state.pop("generator"))
        boards = self._boards(p)
        own = {f"boards/{name}": t[boards] for name, t in self._state.items()}
        loaded = unflatten(own, state)
        for name, old in self._state.items():
            self._state[name] = old.clone()
            self._state[name][boards] = loaded[f"boards/{name}"]

    def _boards(self, p: int) -> slice:
        return slice(p * self.copies, (p + 1) * self.copies)

    def state_dict(self) -> dict[str, Tensor]:
        """See `Environment.state_dict`: with the members' settings."""
        members = torch.tensor([astuple(game) for game in self.game.games], dtype=torch.float64)
        return {**super().state_dict(), "members": members}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `Environment.load_state_dict`."""
        state = dict(state)
        rows = state.pop("members").tolist()
        super().load_state_dict(state)
        kind = type(self.game.games[0])
        types = field_types(kind).items()
        for p, row in enumerate(rows):
            values = {name: type_(value) for (name, type_), value in zip(types, row, strict=True)}
            self.game.put(p, kind(**values))


def make_stack(
    spec: str, seeds: Sequence[int], copies: int, device: torch.device | str = "cpu"
) -> StackedEnvironment:
    """A member for each seed, with B copies of each, as one environment.

    Args:
      spec: `family:catch` is drawn with each of the seeds, and padded to the largest member that
        the family has; any other game is the same for all.
    """
    specs = [resolve_environment(spec, seed) for seed in seeds]
    family = find_family(spec)
    return StackedEnvironment(specs, copies, family.largest if family else spec, device)
