"""Environments by name: `catch`, or with settings `catch:rows=10,columns=7`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch

from discorl.envs.base import Environment
from discorl.envs.catch import Catch
from discorl.envs.tensor import TensorEnvironment, TensorGame
from discorl.errors import DiscorlError, UnknownNameError

GAMES: dict[str, Callable[..., TensorGame]] = {"catch": Catch}
"""Tensor environments: name -> dataclass whose fields are the settings."""


@dataclass(frozen=True)
class EnvironmentEntry:
    """One line of the list of environments."""

    name: str
    settings: dict[str, Any]
    """Setting -> default."""
    summary: str


def list_environments() -> list[EnvironmentEntry]:
    """Everything that `make_environment` knows by name."""
    return [
        EnvironmentEntry(name, _settings(game), (game.__doc__ or "").split("\n")[0])
        for name, game in sorted(GAMES.items())
    ]


def make_environment(spec: str, num_envs: int, device: torch.device | str = "cpu") -> Environment:
    """Build `num_envs` copies of the environment that `spec` names, on a device.

    Args:
      spec: a name, with settings after a colon where wanted: `catch:rows=10,columns=7`.
    """
    name, _, settings = spec.partition(":")
    if name not in GAMES:
        raise UnknownNameError("environment", name, GAMES)
    game = GAMES[name]
    try:
        return TensorEnvironment(game(**_parse(name, settings, _settings(game))), num_envs, device)
    except ValueError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error


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
