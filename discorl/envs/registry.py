"""Environments by name: `catch`, `catch:rows=10,columns=7`, `family:catch`, `CartPole-v1`, ..."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from discorl.envs.acrobot import Acrobot
from discorl.envs.bandit import Bandit
from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.cartpole import CartPole
from discorl.envs.catch import Catch
from discorl.envs.chain import Chain
from discorl.envs.cliff import Cliff
from discorl.envs.corridor import Corridor
from discorl.envs.deep_sea import DeepSea
from discorl.envs.families import PREFIX, resolve_environment
from discorl.envs.grid import Grid
from discorl.envs.lander import Lander
from discorl.envs.memory import Memory
from discorl.envs.mountain_car import MountainCar
from discorl.envs.settings import default_settings, parse_settings
from discorl.envs.sokoban import Sokoban
from discorl.envs.tensor import TensorEnvironment, TensorGame
from discorl.envs.umbrella import Umbrella
from discorl.envs.worlds import WORLDS, find_world, hint_of_world, make_world
from discorl.errors import DiscorlError, UnknownNameError

GIVEN = "given:"
"""Prefix of the names of environments that were passed as objects."""
_VERSION = re.compile(r"-v\d+$")
"""How Gymnasium's ids end."""

GAMES: dict[str, Callable[..., TensorGame]] = {
    "acrobot": Acrobot,
    "bandit": Bandit,
    "cartpole": CartPole,
    "catch": Catch,
    "chain": Chain,
    "cliff": Cliff,
    "corridor": Corridor,
    "deep_sea": DeepSea,
    "grid": Grid,
    "lander": Lander,
    "memory": Memory,
    "mountain_car": MountainCar,
    "sokoban": Sokoban,
    "umbrella": Umbrella,
}
"""Tensor environments: name -> dataclass whose fields are the settings."""


@dataclass(frozen=True)
class EnvironmentEntry:
    """One line of the list of environments."""

    name: str
    settings: dict[str, Any]
    """Setting -> default."""
    summary: str
    optimum: float | None
    """Expected return of the best policy at the defaults, where known."""


def list_environments() -> list[EnvironmentEntry]:
    """Everything that `make_environment` knows by name."""
    return [
        EnvironmentEntry(name, default_settings(game), _summary(game), _optimum(game()))
        for name, game in sorted(GAMES.items())
    ]


def make_environment(
    spec: str,
    num_envs: int,
    device: torch.device | str = "cpu",
    config: EnvironmentConfig | None = None,
) -> Environment:
    """Build `num_envs` copies of the environment that `spec` names, on a device.

    Args:
      spec: a name, optionally with settings after a colon: `catch:rows=10,columns=7`. Or a
        family, `family:grid` or `family:grid,seed=7`, which is drawn with seed 0 by default. Or
        `minatar/breakout`, `ALE/Pong-v5`, one of `WORLDS`, any other Gymnasium id, or
        `module:function`, which makes a Gymnasium environment.
      config: how external environments are run.
    """
    if is_external(spec):
        return _make_external(spec, num_envs, device, config or EnvironmentConfig())
    game = make_game(spec)
    try:
        return TensorEnvironment(game, num_envs, device)
    except ValueError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error


def is_external(spec: str) -> bool:
    """Whether the environment is external: from Gymnasium, MinAtar, Atari or a function."""
    name, _, rest = spec.partition(":")
    if name in GAMES or name == PREFIX:
        return False
    if find_world(spec) is not None:
        return True
    return bool("/" in name or _VERSION.search(spec) or (rest and "=" not in rest))


def _make_external(
    spec: str, num_envs: int, device: torch.device | str, config: EnvironmentConfig
) -> Environment:
    """Imported where used: simulators are slow to import and may not be installed."""
    if spec.startswith(GIVEN):
        raise DiscorlError(
            f"environment '{spec}' was passed as an object, which no folder can hold: pass it "
            "again, with env=... in Python"
        )
    if spec.startswith("minatar/"):
        from discorl.envs.minatar import make_minatar

        return make_minatar(spec, num_envs, device)
    if spec.startswith("ALE/"):
        from discorl.envs.atari import make_atari

        return make_atari(spec, num_envs, device)
    if (world := find_world(spec)) is not None:
        return make_world(world, spec, num_envs, device, config)
    from discorl.envs.external import find_maker, make_gymnasium

    return make_gymnasium(spec, find_maker(spec, config), num_envs, device, config)


def make_game(spec: str) -> TensorGame:
    """The rules of the environment that `spec` names, as `make_environment` reads it."""
    resolved = resolve_environment(spec, seed=0)
    name = resolved.partition(":")[0]
    if _VERSION.search(name):
        raise DiscorlError(
            f"environment '{spec}': Gymnasium's take no settings here. Give their arguments by "
            f"flag: {name} --env-kwargs {resolved.partition(':')[2].replace(',', ' ')}"
        )
    if name not in GAMES:
        known = [*GAMES, *(world.example for world in WORLDS)]
        raise UnknownNameError("environment", name, known, hint_of_world(name))
    return parse_settings(resolved, GAMES[name])


def name_game(game: TensorGame) -> str:
    """The specification from which `make_game` makes this very game."""
    for name, kind in GAMES.items():
        if type(game) is kind:
            defaults = default_settings(kind)
            values = {key: getattr(game, key) for key in defaults}
            text = ",".join(f"{k}={_text(v)}" for k, v in values.items() if v != defaults[k])
            return f"{name}:{text}" if text else name
    return GIVEN + type(game).__name__


def _text(value: Any) -> str:
    """As it is typed; names of files keep their capitals."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def optimal_return(spec: str) -> float | None:
    """The expected return of the best policy, without discount; None if it is not known.

    Each game's property of the same name says whether it is exact or an upper bound.
    """
    return _optimum(make_game(spec))


def _optimum(game: Any) -> float | None:
    return getattr(game, "optimal_return", None)


def _summary(game: Any) -> str:
    return (game.__doc__ or "").split("\n")[0]
