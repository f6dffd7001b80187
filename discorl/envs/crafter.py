"""Crafter: an open world with 22 achievements (Hafner, 2021)."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from discorl.envs.kinds import StackedImages
from discorl.envs.outcomes import OUTCOME
from discorl.envs.settings import parse_settings
from discorl.envs.tools import check_least

_PICTURE = 540
"""Side of what a person watches, in pixels."""


@dataclass(frozen=True)
class CrafterSettings:
    """How it is played; the defaults are the benchmark's."""

    reward: bool = True
    """Reward achievements and health; without it, agents are to explore unrewarded."""
    steps: int = 10_000
    """Steps after which an episode is cut off."""
    size: int = 64
    """Rows and columns of the image, in pixels."""
    stack: int = 1
    """Images that an observation shows, the newest last."""

    def __post_init__(self) -> None:
        check_least(self, steps=1, size=9, stack=1)


class Crafter(gymnasium.Env[Any, Any]):
    """One world. An episode's outcome says which achievements were unlocked: zeros and ones.

    The image shows 9 x 7 cells around the player, and what it carries.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's way
    render_mode = "rgb_array"

    def __init__(self, settings: CrafterSettings) -> None:
        self._make = partial(
            importlib.import_module("crafter").Env,
            size=(settings.size, settings.size),
            reward=settings.reward,
            length=settings.steps,
        )
        self._env = self._begin(0)
        self.max_episode_steps = settings.steps
        self.action_names = tuple(self._env.action_names)
        self.action_space = spaces.Discrete(len(self.action_names))
        self.observation_space = spaces.Box(0, 255, (settings.size, settings.size, 3), np.uint8)

    def get_action_meanings(self) -> tuple[str, ...]:
        """What the actions are called."""
        return self.action_names

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in a new world."""
        super().reset(seed=seed)
        if seed is not None:
            self._env = self._begin(int(self.np_random.integers(2**31 - 1)))
        return self._env.reset(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act."""
        image, reward, done, told = self._env.step(int(action))
        dead = told["discount"] == 0
        info: dict[str, Any] = {}
        if done:
            info[OUTCOME] = {k: float(count > 0) for k, count in told["achievements"].items()}
        return image, float(reward), dead, bool(done and not dead), info

    def _begin(self, seed: int) -> Any:
        env = self._make(seed=seed)
        env._world.reset = partial(_reset_in_order, env._world, env._world.reset)
        return env

    def render(self) -> Any:
        """A larger image of the same, whose drawing takes no random numbers from the world."""
        random = self._env._world.random
        before = random.get_state()
        picture = self._env.render((_PICTURE, _PICTURE))
        random.set_state(before)
        return picture


class _Ordered(dict[Any, None]):
    """A set that is gone through in the order in which things came."""

    def add(self, thing: Any) -> None:
        self[thing] = None

    def remove(self, thing: Any) -> None:
        del self[thing]


def _reset_in_order(world: Any, reset: Callable[..., None], seed: int | None = None) -> None:
    """Empty a world, whose creatures are then kept in order.

    Crafter keeps them in sets and draws some of them by their place, so that the same seed would
    give other episodes each time.
    """
    reset(seed)
    world._chunks = defaultdict(_Ordered)


def find_crafter(spec: str, num_envs: int) -> Callable[[], Any]:
    """What makes the environment `crafter`, with `CrafterSettings` after a colon."""
    return partial(_make, parse_settings(spec, CrafterSettings))


def _make(settings: CrafterSettings) -> gymnasium.Env[Any, Any]:
    env = Crafter(settings)
    return StackedImages(env, settings.stack) if settings.stack > 1 else env
