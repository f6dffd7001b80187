"""NetHack and MiniHack: glyphs, the hero's state and messages (Küttler et al., 2020)."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from discorl.envs.kinds import BYTES, Kinds
from discorl.envs.settings import parse_settings
from discorl.envs.tools import check_least
from discorl.errors import UnknownNameError

MINIHACK = "minihack/"
_KEYS = ("glyphs", "blstats", "message")
_MESSAGE = 256
_FPS = 6
"""Steps that a person can follow in a second."""
_Array = npt.NDArray[Any]

Task = Literal["score", "challenge", "staircase", "staircase_pet", "oracle", "gold", "eat", "scout"]


@dataclass(frozen=True)
class NetHackSettings:
    """What is played, and what an agent sees."""

    task: Task = "challenge"
    """The task; `challenge` is that of NeurIPS 2021, with all 121 keys and a random hero."""
    crop: int = 9
    """Rows and columns of the map around the hero that are shown apart."""
    steps: int = 0
    """Steps after which an episode is cut off; 0: the task's own, 5,000, or a million in the
    challenge."""

    def __post_init__(self) -> None:
        check_least(self, crop=1, steps=0)


@dataclass(frozen=True)
class MiniHackSettings:
    """What an agent sees."""

    crop: int = 9
    """Rows and columns of the map around the hero that are shown apart."""

    def __post_init__(self) -> None:
        check_least(self, crop=1)


class NetHack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Glyphs as kinds of things, those around the hero apart; state on a logarithmic scale.

    Entries: `glyphs` [21, 79], `crop` [C, C], `blstats` [27] and `message` [256]. The random
    numbers of every episode are drawn from those that a seed fixes.
    """

    render_mode = "rgb_array"

    def __init__(self, env: gymnasium.Env[Any, Any], crop: int) -> None:
        super().__init__(env)
        nethack = importlib.import_module("nle.nethack")
        self._crop, self._nothing = crop, int(nethack.NO_GLYPH)
        self._picture = np.zeros(nethack.TILE_RENDER_SHAPE, dtype=np.uint8)
        self._tiles = False
        # It says 42, at which nobody could follow.
        env.unwrapped.metadata = {**env.unwrapped.metadata, "render_fps": _FPS}
        shown = env.observation_space
        assert isinstance(shown, spaces.Dict)
        kinds = int(nethack.MAX_GLYPH) + 1
        grid, state = shown["glyphs"].shape, shown["blstats"].shape
        assert grid is not None
        assert state is not None
        self.observation_space = spaces.Dict(
            {
                "glyphs": Kinds(kinds, grid),
                "crop": Kinds(kinds, (crop, crop)),
                "blstats": spaces.Box(-np.inf, np.inf, state, np.float32),
                "message": Kinds(BYTES, (_MESSAGE,)),
            }
        )
        # The challenge's rules forbid seeds; without them no run could be repeated.
        for name in ("set_initial_seeds", "set_current_seeds", "get_current_seeds"):
            vars(env.unwrapped.nethack).pop(name, None)  # type: ignore[attr-defined]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        core, display, levels = (int(n) for n in self._random.integers(2**31 - 1, size=3))
        game = self.unwrapped.nethack  # type: ignore[attr-defined]
        game.set_initial_seeds(core, display, False, levels)
        observation, _ = self.env.reset()
        return self._read(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act; what the game tells besides is left out."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        aborted = int(info.get("end_status", 0)) == -1
        cut = bool(truncated or (terminated and aborted))
        return self._read(observation), float(reward), bool(terminated and not cut), cut, {}

    def render(self) -> Any:
        """The map in the game's tiles."""
        game = self.unwrapped.nethack  # type: ignore[attr-defined]
        self._tiles = self._tiles or bool(game.setup_tiles())
        game.draw_frame(buffer=self._picture)
        return self._picture.copy()

    def _read(self, observation: dict[str, _Array]) -> dict[str, _Array]:
        glyphs, state = observation["glyphs"], observation["blstats"].astype(np.float32)
        column, row = (int(n) for n in observation["blstats"][:2])
        return {
            "glyphs": glyphs.copy(),
            "crop": _around(glyphs, row, column, self._crop, self._nothing),
            "blstats": np.sign(state) * np.log1p(np.abs(state)),
            "message": observation["message"].copy(),
        }


def _around(grid: _Array, row: int, column: int, size: int, beyond: int) -> _Array:
    """The cells [size, size] around a place, with `beyond` outside the map."""
    half = size // 2
    padded = np.pad(grid, size, constant_values=beyond)
    top, left = row + size - half, column + size - half
    return padded[top : top + size, left : left + size].copy()


def find_nethack(spec: str, num_envs: int) -> Callable[[], Any]:
    """What makes the environment `nethack`, with `NetHackSettings` after a colon."""
    return partial(_make_nethack, parse_settings(spec, NetHackSettings))


def _make_nethack(settings: NetHackSettings) -> gymnasium.Env[Any, Any]:
    tasks = importlib.import_module("nle.env.tasks")
    name = "NetHack" + settings.task.title().replace("_", "")
    limit = {"max_episode_steps": settings.steps} if settings.steps else {}
    env = getattr(tasks, name)(observation_keys=_KEYS, render_mode="ansi", **limit)
    return NetHack(env, settings.crop)


def find_minihack(spec: str, num_envs: int) -> Callable[[], Any]:
    """What makes `minihack/Room-5x5-v0` and the others, with `MiniHackSettings`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of what it imports.
        importlib.import_module("minihack")
    name = spec.partition(":")[0]
    env_id = f"MiniHack-{name.removeprefix(MINIHACK)}"
    known = [i for i in gymnasium.registry if i.startswith("MiniHack-")]
    if env_id not in known:
        names = [MINIHACK + i.removeprefix("MiniHack-") for i in known]
        raise UnknownNameError("environment", name, names)
    return partial(_make_minihack, env_id, parse_settings(spec, MiniHackSettings))


def _make_minihack(env_id: str, settings: MiniHackSettings) -> gymnasium.Env[Any, Any]:
    importlib.import_module("minihack")
    env = gymnasium.make(env_id, observation_keys=_KEYS, disable_env_checker=True)
    return NetHack(env, settings.crop)
