"""Checks that every kind of run makes of its configuration, named as its command-line flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from discorl.errors import DiscorlError, UnknownNameError


def flag(name: str) -> str:
    """A field as it is written on the command line."""
    return "--" + name.replace("_", "-")


def check_least(config: object, least: Mapping[str, int]) -> None:
    """Raise DiscorlError, naming the flag, where a field is below its least value."""
    for name, value in least.items():
        given = getattr(config, name)
        if given is not None and given < value:
            raise DiscorlError(f"{flag(name)}: expected at least {value}")


def check_known(config: Any, values: Mapping[str, Any], kind: str) -> None:
    """Raise DiscorlError, with suggestions, for a name that is no field of the dataclass."""
    known = {f.name for f in fields(config)}
    for name in values:
        if name not in known:
            raise UnknownNameError(kind, name, known)
