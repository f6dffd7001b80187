"""Atari games: the emulator's own vector environment, with the usual preprocessing."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorWrapper

from discorl.envs.base import Environment
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.settings import parse_settings
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line
from discorl.observations import ArraySpec
from discorl.rollout import TimeStep

_SCREEN = (210, 160)
_TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}
"""ROMs of games that one player cannot play."""


@dataclass(frozen=True)
class AtariSettings:
    """How a game is played; the defaults are those of the v5 environments.

    Frames are always grey, 84 x 84, each the maximum of two in a row; losing a life does not end
    an episode, and rewards are the game's points.
    """

    sticky: float = 0.25
    """Probability, in each frame, that the previous frame's action is repeated."""
    frame_skip: int = 4
    """Frames that an action lasts."""
    stack: int = 4
    """Frames that an observation shows."""
    noops: int = 30
    """Episodes begin with fewer than this many frames without an action."""
    frames: int = 108_000
    """Frames after which an episode is cut off."""
    fire: bool = False
    """Press the fire button at the beginning, where the game has one."""
    full_actions: bool = False
    """All 18 actions, including those that do nothing in this game."""

    def __post_init__(self) -> None:
        if not 0 <= self.sticky <= 1:
            raise ValueError(f"sticky: expected a probability, got {self.sticky}")
        for name, least in (("frame_skip", 1), ("stack", 1), ("noops", 0), ("frames", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name}: expected at least {least}, got {value}")


class AtariEnvironment(GymnasiumEnvironment):
    """B copies of an Atari game."""

    def reset(self, seed: int) -> TimeStep:
        """See `Environment.reset`: any seed will do, and nearby ones share no episodes."""
        # The emulator gives its copies consecutive seeds from this one on, and takes 31 bits.
        spread = np.random.SeedSequence(seed % 2**64).generate_state(1)[0] >> 2
        return super().reset(int(spread))


def make_atari(
    spec: str, num_envs: int, device: torch.device | str = "cpu", draws: bool = False
) -> Environment:
    """Build `num_envs` copies of an Atari game.

    Args:
      spec: such as `ALE/Pong-v5`, optionally with `AtariSettings` after a colon:
        `ALE/Pong-v5:sticky=0,frames=18000`.
      draws: whether it can be rendered, in colour; that takes a second emulator.
    """
    rom, settings = _rom(spec), parse_settings(spec, AtariSettings)
    if num_envs < 1:
        raise DiscorlError(f"environment '{spec}': expected at least 1 copy, got {num_envs}")
    arguments = {
        "repeat_action_probability": settings.sticky,
        "frameskip": settings.frame_skip,
        "noop_max": settings.noops,
        "max_num_frames_per_episode": settings.frames,
        "use_fire_reset": settings.fire,
        "full_action_space": settings.full_actions,
        "reward_clipping": False,
    }
    kind = _vector_class(spec)
    vector_env = kind(rom, num_envs, stack_num=settings.stack, **arguments)
    if draws:
        rows, columns = _SCREEN
        look = {"grayscale": False, "img_height": rows, "img_width": columns, "stack_num": 1}
        vector_env = _InColour(vector_env, kind(rom, num_envs, **arguments, **look))
    names = _import(spec, "ale_py").Action
    vector_env.action_names = tuple(
        names(action).name.lower() for action in vector_env.unwrapped.ale.get_action_set()
    )
    limit = settings.frames // settings.frame_skip + 1
    # The emulator hands its arrays over at every step and allocates new ones.
    env = AtariEnvironment(vector_env, spec, device, max_episode_steps=limit, fresh=True)
    assert isinstance(env.observation_spec, ArraySpec)
    env.observation_spec = replace(env.observation_spec, stack=settings.stack)
    return env


class _InColour(VectorWrapper):
    """An emulator, and a twin with the same seeds and actions, which shows the console's screen.

    The twin lives through the same: its random numbers are those of the first.
    """

    def __init__(self, env: Any, twin: Any) -> None:
        super().__init__(env)
        self._twin, self._screen = twin, np.zeros((*_SCREEN, 3), np.uint8)

    @property
    def render_mode(self) -> str:  # type: ignore[override]
        """Gymnasium's word for pictures."""
        return "rgb_array"

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Reset both."""
        self._show(self._twin.reset(seed=seed, options=options)[0])
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        """Step both."""
        self._show(self._twin.step(actions)[0])
        return self.env.step(actions)

    def render(self) -> Any:
        """The first copy's screen, [210, 160, 3]."""
        return self._screen

    def close(self, **kwargs: Any) -> None:
        """Close both."""
        self._twin.close()
        self.env.close(**kwargs)

    def _show(self, screens: Any) -> None:
        self._screen = np.array(screens[0, -1])


def _vector_class(spec: str) -> Any:
    base = _import(spec, "ale_py.vector_env").AtariVectorEnv
    # It notes how it resets in `metadata`, which all other vector environments would share.
    return type("AtariGames", (base,), {"metadata": {}})


def _rom(spec: str) -> str:
    """`ALE/SpaceInvaders-v5` -> `space_invaders`."""
    name = spec.partition(":")[0]
    roms: set[str] = set(_import(spec, "ale_py.roms").get_all_rom_ids()) - _TWO_PLAYERS
    known = {f"ALE/{rom.title().replace('_', '')}-v5": rom for rom in roms}
    if name not in known:
        raise UnknownNameError("environment", name, known)
    return known[name]


def _import(spec: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise DiscorlError(
            f"environment '{spec}' needs a package: {install_line('atari')}"
        ) from error
