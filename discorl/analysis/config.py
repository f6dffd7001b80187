"""The settings of an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from discorl.settings import Count, Seed, check_fields, flat_settings

Part = Literal["responses", "closest", "traces", "probes", "reliance"]
PARTS: tuple[Part, ...] = ("responses", "closest", "traces", "probes", "reliance")


@dataclass(frozen=True)
class AnalyseConfig:
    """What is looked at, and the agents that it is looked at with."""

    env: str = "catch:rows=5,columns=5"
    """Environment that agents are trained in, as in `discorl train`."""
    steps: Count = 300
    """Training steps of each agent."""
    seed: Seed = 0
    """Fixes every random choice, those of the random rule too."""
    seeds: Count = 3
    """Agents of each variant in `reliance`."""
    only: tuple[Part, ...] = PARTS
    """Which analyses to make; by default all."""

    def __post_init__(self) -> None:
        check_fields(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return flat_settings(self)
