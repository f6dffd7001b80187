"""MiniGrid: small worlds of doors and keys, seen in part or in full, with a mission in words."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium

from discorl.envs.kinds import TextAsBytes
from discorl.envs.settings import parse_settings
from discorl.envs.tools import check_least
from discorl.errors import UnknownNameError

PREFIX = "minigrid/"
_FAMILIES = ("MiniGrid-", "BabyAI-")


@dataclass(frozen=True)
class MiniGridSettings:
    """What an agent sees."""

    full: bool = False
    """The whole grid in place of the 7 x 7 cells before the agent."""
    mission: bool = True
    """Whether it reads the mission, as bytes."""
    text: int = 64
    """Bytes of the mission that are read."""

    def __post_init__(self) -> None:
        check_least(self, text=1)


def find_minigrid(spec: str, num_envs: int) -> Callable[[], Any]:
    """What makes `minigrid/DoorKey-5x5-v0` and the others, MiniGrid's and BabyAI's."""
    name = spec.partition(":")[0]
    module = importlib.import_module("minigrid")
    assert module is not None  # Imported for what it registers.
    given = name.removeprefix(PREFIX)
    known = [i for i in gymnasium.registry if i.startswith(_FAMILIES)]
    found = [i for i in (given, *(family + given for family in _FAMILIES)) if i in known]
    if not found:
        short = {i.partition("-")[2] for i in known}
        raise UnknownNameError("environment", name, [PREFIX + i for i in short])
    return partial(_make, found[0], parse_settings(spec, MiniGridSettings))


def _make(env_id: str, settings: MiniGridSettings) -> gymnasium.Env[Any, Any]:
    wrappers = importlib.import_module("minigrid.wrappers")
    env = gymnasium.make(env_id, render_mode="rgb_array")
    if settings.full:
        env = wrappers.FullyObsWrapper(env)
    return TextAsBytes(env, settings.text) if settings.mission else wrappers.ImgObsWrapper(env)
