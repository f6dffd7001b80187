"""Environments by name: `catch`, with settings `catch:rows=10,columns=7`, or `family:catch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch

from discorl.envs.bandit import Bandit
from discorl.envs.base import Environment
from discorl.envs.cartpole import CartPole
from discorl.envs.catch import Catch
from discorl.envs.cliff import Cliff
from discorl.envs.corridor import Corridor
from discorl.envs.deep_sea import DeepSea
from discorl.envs.families import resolve_environment
from discorl.envs.grid import Grid
from discorl.envs.memory import Memory
from discorl.envs.tensor import TensorEnvironment, TensorGame
from discorl.envs.umbrella import Umbrella
from discorl.errors import DiscorlError, UnknownNameError

GAMES: dict[str, Callable[..., TensorGame]] = {
    "bandit": Bandit,
    "cartpole": CartPole,
    "catch": Catch,
    "cliff": Cliff,
    "corridor": Corridor,
    "deep_sea": DeepSea,
    "grid": Grid,
    "memory": Memory,
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
        EnvironmentEntry(name, _settings(game), _summary(game), _optimum(game()))
        for name, game in sorted(GAMES.items())
    ]


def make_environment(spec: str, num_envs: int, device: torch.device | str = "cpu") -> Environment:
    """Build `num_envs` copies of the environment that `spec` names, on a device.

    Args:
      spec: a name, with settings after a colon where wanted: `catch:rows=10,columns=7`. Or a
        family, `family:grid` or `family:grid,seed=7`, which is drawn with seed 0 if not said.
    """
    game = make_game(spec)
    try:
        return TensorEnvironment(game, num_envs, device)
    except ValueError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error


def make_game(spec: str) -> TensorGame:
    """The rules of the environment that `spec` names, as `make_environment` reads it."""
    name, _, settings = resolve_environment(spec, seed=0).partition(":")
    if name not in GAMES:
        raise UnknownNameError("environment", name, GAMES)
    game = GAMES[name]
    try:
        return game(**_parse(name, settings, _settings(game)))
    except ValueError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error


def optimal_return(spec: str) -> float | None:
    """The expected return of the best policy, without discount; None if it is not known.

    The property of the same name of each game says whether it is exact or an upper bound.
    """
    return _optimum(make_game(spec))


def _optimum(game: Any) -> float | None:
    return getattr(game, "optimal_return", None)


def _summary(game: Any) -> str:
    return (game.__doc__ or "").split("\n")[0]


def _settings(game: Any) -> dict[str, Any]:
    return {f.name: f.default for f in fields(game) if f.default is not MISSING}


def _parse(name: str, text: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """`rows=10,columns=7` -> typed settings."""
    values: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, separator, value = item.partition("=")
        if key not in defaults:
            raise UnknownNameError(f"setting of environment {name}", key, defaults)
        kind = type(defaults[key])
        try:
            values[key] = _convert(kind, value)
        except ValueError as error:
            raise DiscorlError(
                f"environment {name}: {key}={value or '?'} is not {kind.__name__}"
            ) from error
        if not separator:
            raise DiscorlError(f"environment {name}: write {key}=VALUE, got '{item}'")
    return values


def _convert(kind: type, value: str) -> Any:
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise ValueError(value)
        return value.lower() == "true"
    return kind(value)
