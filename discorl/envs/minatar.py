"""MinAtar: five small games on a 10 x 10 board."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from discorl.envs.base import Environment
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.settings import parse_settings
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
_PREFIX = "minatar/"
_ACTION_NAMES = ("none", "left", "up", "right", "down", "fire")

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MinAtarSettings:
    """How a game is played."""

    sticky: float = 0.1
    """Probability that the previous action is repeated."""
    ramping: bool = True
    """Whether a game becomes harder as it goes on."""
    minimal: bool = True
    """Only the actions that do something in the game, 3 to 6; else all 6 in every game."""
    steps: int = 10_000
    """Steps after which an episode is cut off."""

    def __post_init__(self) -> None:
        if not 0 <= self.sticky <= 1:
            raise ValueError(f"sticky: expected a probability, got {self.sticky}")
        if self.steps < 1:
            raise ValueError(f"steps: expected at least 1, got {self.steps}")


class MinAtarGames(VectorEnv[_Array, _Array, _Array]):
    """Copies of a game, each with its own random numbers.

    Args:
      make: builds one `minatar.Environment`.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, make: Any, settings: MinAtarSettings, num_envs: int) -> None:
        self.num_envs = num_envs
        self._make = make
        self._limit = settings.steps
        self._games = [make() for _ in range(num_envs)]
        game = self._games[0]
        self._actions = game.minimal_action_set() if settings.minimal else range(game.num_actions())
        self.action_names = tuple(_ACTION_NAMES[action] for action in self._actions)
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._done = np.zeros(num_envs, dtype=np.bool_)
        shape = tuple(game.state_shape())
        self.single_observation_space = spaces.Box(0, 1, shape, np.uint8)
        self.single_action_space = spaces.Discrete(len(self._actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Array, dict[str, Any]]:
        """Start afresh in every copy; with a seed, as if nothing had been played before."""
        if seed is not None:
            # New games: the sticky action outlives an episode, and would outlive a seed.
            self._games = [self._make() for _ in self._games]
            for copy, game in enumerate(self._games):
                game.seed([seed % 2**32, copy])
        for game in self._games:
            game.reset()
        self._elapsed[:] = 0
        self._done[:] = False
        return self._observe(), {}

    def step(self, actions: _Array) -> tuple[_Array, _Array, _Array, _Array, dict[str, Any]]:
        """Act in every copy, or reset it where the last step ended an episode."""
        rewards = np.zeros(self.num_envs, dtype=np.float32)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        self._elapsed = np.where(self._done, 0, self._elapsed + 1)
        for copy, game in enumerate(self._games):
            if self._done[copy]:
                game.reset()
            else:
                rewards[copy], terminated[copy] = game.act(self._actions[actions[copy]])
        truncated = self._elapsed >= self._limit
        self._done = terminated | truncated
        return self._observe(), rewards, terminated, truncated, {}

    def _observe(self) -> _Array:
        """[B, 10, 10, C] of zeros and ones."""
        return np.stack([game.state() for game in self._games]).view(np.uint8)


def make_minatar(spec: str, num_envs: int, device: torch.device | str = "cpu") -> Environment:
    """Build `num_envs` copies of a MinAtar game.

    Args:
      spec: such as `minatar/breakout`, optionally with `MinAtarSettings` after a colon:
        `minatar/breakout:sticky=0,steps=1000`.
    """
    name = spec.partition(":")[0]
    known = [_PREFIX + game for game in GAMES]
    if name not in known:
        raise UnknownNameError("environment", name, known)
    settings = parse_settings(spec, MinAtarSettings)
    if num_envs < 1:
        raise DiscorlError(f"environment '{spec}': expected at least 1 copy, got {num_envs}")
    try:
        minatar = importlib.import_module("minatar")
    except ModuleNotFoundError as error:
        raise DiscorlError(
            f"environment '{spec}' needs a package: {install_line('minatar')}"
        ) from error

    def make() -> Any:
        return minatar.Environment(name.removeprefix(_PREFIX), settings.sticky, settings.ramping)

    games = MinAtarGames(make, settings, num_envs)
    return GymnasiumEnvironment(games, spec, device, max_episode_steps=settings.steps)
