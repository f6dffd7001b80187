"""ProcGen: sixteen games with endless generated levels (Cobbe et al., 2020)."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from discorl.envs.kinds import Frames
from discorl.envs.settings import parse_settings
from discorl.envs.tools import check_least
from discorl.errors import DiscorlError, UnknownNameError

GAMES = [
    "bigfish",
    "bossfight",
    "caveflyer",
    "chaser",
    "climber",
    "coinrun",
    "dodgeball",
    "fruitbot",
    "heist",
    "jumper",
    "leaper",
    "maze",
    "miner",
    "ninja",
    "plunder",
    "starpilot",
]
PREFIX = "procgen/"
_SIDE = 64
SOME_GAMES = {
    "extreme": {"chaser", "dodgeball", "leaper", "starpilot"},
    "memory": {"caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"},
    "exploration": {
        *("caveflyer", "climber", "coinrun", "heist", "jumper", "leaper", "maze", "ninja")
    },
}
"""Modes that only some games have. The engine ends the whole process where one is missing."""
_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ProcgenSettings:
    """How a game is played. The benchmark trains on `levels=200` of the easy or `levels=500` of
    the hard ones and tests on all, `levels=0`, which is the default here."""

    mode: Literal["easy", "hard", "extreme", "memory", "exploration"] = "hard"
    """Difficulty: what the benchmark calls the distribution mode. Exploration is a single level."""
    levels: int = 0
    """Levels to choose from; 0 for all there are."""
    first: int = 0
    """The first of them; with `first=1000` and more, levels that were not trained on."""
    stack: int = 1
    """Images that an observation shows, the newest last."""

    def __post_init__(self) -> None:
        check_least(self, levels=0, first=0, stack=1)
        if self.mode == "exploration" and (self.levels or self.first):
            raise ValueError(
                "mode=exploration is a single level: it takes neither levels nor first"
            )

    def choice(self) -> dict[str, int]:
        """Which levels there are, as the engine is told; exploration has its own."""
        if self.mode == "exploration":
            return {}
        return {"num_levels": self.levels, "start_level": self.first}


class ProcgenGames(VectorEnv[_Array, _Array, _Array]):
    """Copies of a game, which begin the next level in the step that ends the last one.

    Their engine knows no time limits: a level that takes too long ends.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium has it
    max_episode_steps = 10_000
    """More than any level lasts."""

    def __init__(self, game: str, settings: ProcgenSettings, num_envs: int) -> None:
        # It imports Gym, which says in several ways that it is old.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            engine = importlib.import_module("procgen").ProcgenGym3Env
        self.num_envs = num_envs
        self._make = partial(
            engine,
            num=num_envs,
            env_name=game,
            distribution_mode=settings.mode,
            num_threads=0,
            **settings.choice(),
        )
        self._env = self._make(rand_seed=0)
        self._stack = settings.stack
        self._frames = np.zeros((num_envs, settings.stack, _SIDE, _SIDE, 3), dtype=np.uint8)
        self.action_names = tuple("+".join(keys).lower() or "none" for keys in self._env.combos)
        shape = (_SIDE, _SIDE, 3)
        self.single_observation_space = (
            Frames((settings.stack, *shape))
            if settings.stack > 1
            else spaces.Box(0, 255, shape, np.uint8)
        )
        self.single_action_space = spaces.Discrete(len(self.action_names))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Array, dict[str, Any]]:
        """Begin levels in every copy."""
        spread = np.random.SeedSequence(seed).generate_state(1)[0] >> 1
        self._env.close()
        self._env = self._make(rand_seed=int(spread))
        _, shown, first = self._env.observe()
        return self._show(shown["rgb"], first), {}

    def step(self, actions: _Array) -> tuple[_Array, _Array, _Array, _Array, dict[str, Any]]:
        """Act in every copy."""
        self._env.act(np.asarray(actions, dtype=np.int32))
        rewards, shown, first = self._env.observe()
        cut = np.zeros(self.num_envs, dtype=np.bool_)
        return self._show(shown["rgb"], first), np.array(rewards), np.array(first), cut, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Free the engine."""
        self._env.close()

    def _show(self, images: _Array, first: _Array) -> _Array:
        """[B, rows, columns, 3], or [B, S, rows, columns, 3]."""
        self._frames = np.roll(self._frames, -1, axis=1)
        self._frames[np.asarray(first, dtype=np.bool_)] = 0
        self._frames[:, -1] = images
        return self._frames.copy() if self._stack > 1 else self._frames[:, 0].copy()


def find_procgen(spec: str, num_envs: int) -> Callable[[], Any]:
    """What makes `procgen/coinrun` and the others, with `ProcgenSettings` after a colon."""
    name = spec.partition(":")[0]
    if name.removeprefix(PREFIX) not in GAMES:
        raise UnknownNameError("environment", name, [PREFIX + game for game in GAMES])
    game, settings = name.removeprefix(PREFIX), parse_settings(spec, ProcgenSettings)
    having = SOME_GAMES.get(settings.mode)
    if having is not None and game not in having:
        raise DiscorlError(
            f"environment '{spec}': {game} has no mode {settings.mode}; "
            f"{', '.join(sorted(having))} have"
        )
    return partial(ProcgenGames, game, settings, num_envs)
