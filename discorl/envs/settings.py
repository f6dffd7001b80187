"""Settings of environments as they are written: `name:key=value,key=value`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from discorl.errors import DiscorlError, UnknownNameError

Settings = TypeVar("Settings")


def default_settings(kind: Any) -> dict[str, Any]:
    """Setting -> default, of a dataclass whose fields are the settings."""
    return {f.name: f.default for f in fields(kind) if f.default is not MISSING}


def parse_settings(spec: str, kind: Callable[..., Settings]) -> Settings:
    """What a specification says after the colon, `rows=10,columns=7`, as a dataclass.

    Args:
      spec: an environment's name, with settings after a colon where wanted.
      kind: the dataclass; its defaults say what each setting is.
    """
    name, _, text = spec.partition(":")
    defaults, values = default_settings(kind), {}
    for item in filter(None, text.split(",")):
        key, separator, value = item.partition("=")
        if key not in defaults:
            raise UnknownNameError(f"setting of environment {name}", key, defaults)
        if not separator:
            raise DiscorlError(f"environment {name}: write {key}=VALUE, got '{item}'")
        of_type = type(defaults[key])
        try:
            values[key] = _convert(of_type, value)
        except ValueError as error:
            raise DiscorlError(f"environment {name}: {item} is not {of_type.__name__}") from error
    try:
        return kind(**values)
    except ValueError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error


def _convert(kind: type, value: str) -> Any:
    if kind is not bool:
        return kind(value)
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"
