"""Well-known worlds by name, each in a package of its own that one extra installs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from discorl.envs.base import Environment, EnvironmentConfig
from discorl.errors import DiscorlError
from discorl.extras import install_line


@dataclass(frozen=True)
class World:
    """One entry of the table."""

    name: str
    """What is typed; with a slash at its end, the name of a game follows."""
    example: str
    extra: str
    """Of this package, that installs it; empty if nothing does."""
    package: str
    """The module that is there if it is installed."""
    find: str
    """`module:function`: from a specification and a number of copies to what makes them; empty
    if it cannot be made."""
    settings: str
    """`module:Class` of the settings after a colon; empty if it takes none."""
    summary: str

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return bool(self.find) and find_spec(self.package) is not None

    @property
    def install_line(self) -> str:
        """How to get it."""
        return install_line(self.extra) if self.extra else "cannot be installed"

    def load(self, what: str) -> Any:
        """A function or class by its `module:name`; imported late, as simulators are slow."""
        module, _, name = what.partition(":")
        return getattr(importlib.import_module(f"discorl.envs.{module}"), name)


_NO_DMLAB = (
    "DeepMind Lab has no package for pip: it must be built from source with Bazel, and then given "
    "as a function of your own, module:function"
)
_NO_CRAFTAX = (
    "Craftax runs on JAX, which discorl does not use: train on crafter, the game that it is made "
    "after, or give Craftax as a function of your own, module:function"
)

WORLDS = (
    World(
        "bsuite/",
        "bsuite/catch/0",
        "bsuite",
        "bsuite",
        "bsuite:find_bsuite",
        "",
        "23 experiments in up to 23 settings each, for one capability each",
    ),
    World("craftax", "craftax", "", "craftax", "", "", _NO_CRAFTAX),
    World(
        "crafter",
        "crafter",
        "crafter",
        "crafter",
        "crafter:find_crafter",
        "crafter:CrafterSettings",
        "an open world with 22 achievements, in pixels",
    ),
    World("dmlab/", "dmlab/rooms_collect_good_objects", "", "deepmind_lab", "", "", _NO_DMLAB),
    World(
        "minigrid/",
        "minigrid/DoorKey-5x5-v0",
        "minigrid",
        "minigrid",
        "minigrid:find_minigrid",
        "minigrid:MiniGridSettings",
        "doors and keys, seen in part or in full, with a mission in words",
    ),
    World(
        "minihack/",
        "minihack/Room-5x5-v0",
        "minihack",
        "minihack",
        "nethack:find_minihack",
        "nethack:MiniHackSettings",
        "small tasks in NetHack's world",
    ),
    World(
        "nethack",
        "nethack:task=score",
        "nethack",
        "nle",
        "nethack:find_nethack",
        "nethack:NetHackSettings",
        "the whole game: glyphs, the hero's state and messages",
    ),
    World(
        "procgen/",
        "procgen/coinrun",
        "procgen",
        "procgen",
        "procgen:find_procgen",
        "procgen:ProcgenSettings",
        "16 games with generated levels, in pixels",
    ),
)


def find_world(spec: str) -> World | None:
    """The world that a specification names; None if it names something else."""
    name, _, rest = spec.partition(":")
    if rest and "=" not in rest:
        return None  # A module and a function or id: one of these packages, or the user's own.
    for world in WORLDS:
        if name == world.name or (world.name.endswith("/") and name.startswith(world.name)):
            return world
    return None


def hint_of_world(spec: str) -> str:
    """Where to find it, if an id that nobody knows sounds like one of these worlds; else empty.

    `NetHackScore-v0`, `MiniHack-Room-5x5-v0` or `procgen-coinrun-v0` are what their own packages
    call them.
    """
    for world in WORLDS:
        if spec.lower().startswith(world.name.rstrip("/")):
            if not world.find:
                return f"{world.summary}."
            install = "" if world.installed else f"{world.install_line}, and "
            return f"Of that world: {install}give a name such as {world.example}."
    return ""


def make_world(
    world: World,
    spec: str,
    num_envs: int,
    device: torch.device | str = "cpu",
    config: EnvironmentConfig | None = None,
) -> Environment:
    """Build `num_envs` copies of what `spec` names in a world."""
    from discorl.envs.external import make_gymnasium, with_wrappers

    if not world.find:
        raise DiscorlError(f"environment '{spec}' cannot be installed: {world.summary}")
    if not world.installed:
        raise DiscorlError(f"environment '{spec}' needs a package: {world.install_line}")
    if num_envs < 1:
        raise DiscorlError(f"environment '{spec}': expected at least 1 copy, got {num_envs}")
    config = config or EnvironmentConfig()
    try:
        make: Callable[[], Any] = world.load(world.find)(spec, num_envs)
    except ImportError as error:
        raise DiscorlError(
            f"environment '{spec}': its package does not work here: {error}. Try again: "
            f"{world.install_line}"
        ) from error
    return make_gymnasium(spec, with_wrappers(make, config), num_envs, device, config)
