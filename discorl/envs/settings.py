"""Environment settings as they are written: `name:key=value,key=value`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from discorl.errors import DiscorlError
from discorl.settings import field_types, parse_values, split_settings

Settings = TypeVar("Settings")


def default_settings(kind: Any) -> dict[str, Any]:
    """Setting -> default, of a dataclass whose fields are the settings."""
    return {f.name: f.default for f in fields(kind) if f.default is not MISSING}


def parse_settings(spec: str, kind: Callable[..., Settings]) -> Settings:
    """The settings after a specification's colon, `rows=10,columns=7`, as a dataclass.

    Args:
      spec: an environment's name, optionally with settings after a colon.
      kind: the dataclass.
    """
    name, _, text = spec.partition(":")
    where = f"environment {name}"
    texts = split_settings(text.split(","), where)
    values = parse_values(field_types(kind), texts, where)
    try:
        return kind(**values)
    except ValueError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error
