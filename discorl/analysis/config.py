"""The settings of an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from discorl.settings import Count, Seed, check_fields, flat_settings

Part = Literal["responses", "closest", "traces", "probes", "reliance", "robustness"]
PARTS: tuple[Part, ...] = get_args(Part)


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
    """Agents of each variant in `reliance` and `robustness`; in the latter, with seeds 0, 1, ..."""
    only: tuple[Part, ...] = PARTS[:-1]
    """Which analyses to make; by default all but `robustness`, which takes longer than all of
    them."""

    def __post_init__(self) -> None:
        check_fields(self)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return flat_settings(self)
