"""What engines share in reading their options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from discorl.settings import field_types, parse_values

Options = TypeVar("Options")

RETRIES = 2
"""How often a call is repeated whose worker died, by default."""


def read_options(kind: type[Options], texts: Mapping[str, str], engine: str) -> Options:
    """An engine's options, a dataclass, from texts; DiscorlError for unknown ones."""
    return kind(**parse_values(field_types(kind), texts, f"--engine {engine}"))


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
