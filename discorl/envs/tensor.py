"""Environments made of tensor operations: batched, on any device, a page of code each."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from discorl.observations import ArraySpec, ObservationSpec
from discorl.rollout import TimeStep
from discorl.tree import flatten, unflatten


class TensorGame(Protocol):
    """The rules of a game as functions on B boards at once; it holds no state itself."""

    @property
    def num_actions(self) -> int:
        """A: how many actions there are."""
        ...

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        ...

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """B new episodes: each tensor is [B, ...] on the generator's device."""
        ...

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The next state, rewards [B] float and terminals [B] bool, of B boards."""
        ...

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """[B, *observation_shape]."""
        ...


class StackableGame:
    """Base of games whose rules also play many games of their kind as one.

    In a stack, a setting is not a number but a tensor [B] with a number for each board. So rules
    compute with settings and never ask if one is so; sizes of tensors they take from `frame`.
    """

    sizes: tuple[str, ...] = ()
    """Settings that decide how large the state, the tables, the observation or A is."""
    shows_end: bool = False
    """Whether boards whose episode has just ended can be observed too."""
    _stack: tuple[Any, dict[str, Tensor]] | None = None

    @property
    def frame(self) -> Self:
        """The game with room for all games of a stack, in numbers; without a stack, this one."""
        return self if self._stack is None else self._stack[0]

    def lay_out(self, frame: Any) -> dict[str, Tensor]:
        """The game's tables: what rules look up by an index, padded to the sizes of the frame."""
        return {}

    def tables(self, device: torch.device) -> dict[str, Tensor]:
        """The tables: [1, ...], or [B, ...] in a stack."""
        return _lay_out(self, device) if self._stack is None else self._stack[1]


@lru_cache(maxsize=256)
def _lay_out(game: StackableGame, device: torch.device) -> dict[str, Tensor]:
    return {name: table[None].to(device) for name, table in game.lay_out(game).items()}


class TensorEnvironment:
    """Plays B copies of a game and restarts each one when its episode ends."""

    max_episode_steps = 100_000
    """Every game ends by itself, long before that."""

    def __init__(self, game: TensorGame, num_envs: int, device: torch.device | str = "cpu") -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs: expected at least 1, got {num_envs}")
        self.game = game
        self.num_envs = num_envs
        self.num_actions = game.num_actions
        self._generator = torch.Generator(device)
        self._state = game.start(num_envs, self._generator)
        self._played = self._state
        dtype = game.observe(self._state).dtype
        self.observation_spec: ObservationSpec = ArraySpec(game.observation_shape, dtype)

    def reset(self, seed: int) -> TimeStep:
        """See `Environment.reset`."""
        self._generator.manual_seed(seed)
        self._state = self._played = self.game.start(self.num_envs, self._generator)
        reward = torch.zeros(self.num_envs, device=self._generator.device)
        nothing = torch.zeros_like(reward, dtype=torch.bool)
        return TimeStep(self.game.observe(self._state), reward, nothing)

    def step(self, actions: Tensor) -> TimeStep:
        """See `Environment.step`."""
        if tuple(actions.shape) != (self.num_envs,):
            raise ValueError(f"actions: expected [{self.num_envs}], got {list(actions.shape)}")
        state, reward, terminal = self.game.play(self._state, actions, self._generator)
        self._played = state
        fresh = self.game.start(self.num_envs, self._generator)
        self._state = {
            name: torch.where(_like(terminal, old), fresh[name], old) for name, old in state.items()
        }
        return TimeStep(self.game.observe(self._state), reward, terminal)

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """What the actions are called, if the game says so."""
        return getattr(self.game, "action_names", None)

    def played(self) -> Tensor | None:
        """[B, *observation_shape]: what the last step led to, before any copy was restarted.

        None if the game cannot show boards whose episode has ended.
        """
        return self.game.observe(self._played) if getattr(self.game, "shows_end", False) else None

    def state_dict(self) -> dict[str, Tensor]:
        """See `Environment.state_dict`."""
        # Full copies: files cannot hold tensors that share memory, as a game's may.
        dense = torch.contiguous_format
        state = {k: v.clone(memory_format=dense) for k, v in flatten(self._state).items()}
        return {**state, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `Environment.load_state_dict`."""
        state = dict(state)
        self._generator.set_state(state.pop("generator"))
        self._state = unflatten(self._state, state)

    def close(self) -> None:
        """See `Environment.close`: there is nothing to free."""


def _like(flags: Tensor, tensor: Tensor) -> Any:
    return flags.reshape(-1, *([1] * (tensor.dim() - 1)))
