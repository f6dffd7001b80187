"""Scores as the field reports them: what a return, or an episode's outcome, is worth.

Atari's human-normalised score is in `human_scores`, bsuite's are in `bsuite_scores`. ProcGen's
constants are those of Cobbe et al. (2020), "Leveraging Procedural Generation to Benchmark
Reinforcement Learning", appendix C; Crafter's score is that of Hafner (2021), "Benchmarking the
Spectrum of Agent Capabilities".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from discorl.envs.bsuite_scores import setting_score
from discorl.envs.human_scores import human_normalized

PROCGEN_HARD: dict[str, tuple[float, float]] = {
    "bigfish": (0.0, 40.0),
    "bossfight": (0.5, 13.0),
    "caveflyer": (2.0, 13.4),
    "chaser": (0.5, 14.2),
    "climber": (1.0, 12.6),
    "coinrun": (5.0, 10.0),
    "dodgeball": (1.5, 19.0),
    "fruitbot": (-0.5, 27.2),
    "heist": (2.0, 10.0),
    "jumper": (1.0, 10.0),
    "leaper": (1.5, 10.0),
    "maze": (4.0, 10.0),
    "miner": (1.5, 20.0),
    "ninja": (2.0, 10.0),
    "plunder": (3.0, 30.0),
    "starpilot": (1.5, 35.0),
}
"""Game -> the returns that become 0 and 1 on hard levels."""

PROCGEN_EASY: dict[str, tuple[float, float]] = {
    "bigfish": (1.0, 40.0),
    "bossfight": (0.5, 13.0),
    "caveflyer": (3.5, 12.0),
    "chaser": (0.5, 13.0),
    "climber": (2.0, 12.6),
    "coinrun": (5.0, 10.0),
    "dodgeball": (1.5, 19.0),
    "fruitbot": (-1.5, 32.4),
    "heist": (3.5, 10.0),
    "jumper": (3.0, 10.0),
    "leaper": (3.0, 10.0),
    "maze": (5.0, 10.0),
    "miner": (1.5, 13.0),
    "ninja": (3.5, 10.0),
    "plunder": (4.5, 30.0),
    "starpilot": (2.5, 64.0),
}
"""The same on easy levels."""


_NORMAL_95 = 1.959964
"""How many standard errors to either side hold 95%."""


@dataclass(frozen=True)
class FieldScore:
    """A score and what it is called in result files."""

    name: str
    value: float


def field_score(
    spec: str, mean_return: float, outcomes: Mapping[str, float] | None = None
) -> FieldScore | None:
    """The score that the field reports for an environment; None if it reports returns.

    Args:
      spec: an environment's name, with or without settings.
      outcomes: means of what its episodes came to, where it tells them.
    """
    name = spec.partition(":")[0]
    if (normalized := human_normalized(spec, mean_return)) is not None:
        return FieldScore("human_normalized", normalized)
    if (normalized := procgen_normalized(spec, mean_return)) is not None:
        return FieldScore("procgen_normalized", normalized)
    if name == "crafter" and outcomes:
        return FieldScore("crafter_score", crafter_score(outcomes))
    if (score := setting_score(spec, outcomes or {})) is not None:
        return FieldScore("bsuite_score", score)
    return None


def procgen_normalized(spec: str, mean_return: float) -> float | None:
    """A return on ProcGen's scale, where a policy that sees nothing is 0 and the best known 1."""
    name, _, text = spec.partition(":")
    settings = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    tables = {"hard": PROCGEN_HARD, "easy": PROCGEN_EASY}
    game, table = name.removeprefix("procgen/"), tables.get(settings.get("mode", "hard"), {})
    if not name.startswith("procgen/") or game not in table:
        return None
    least, most = table[game]
    return (mean_return - least) / (most - least)


def crafter_score(success_rates: Mapping[str, float]) -> float:
    """In percent: the geometric mean of one plus each achievement's success rate, less one."""
    logs = [math.log1p(100 * rate) for rate in success_rates.values()]
    return math.expm1(sum(logs) / len(logs))


def crafter_interval(success_rates: Mapping[str, float], episodes: int) -> tuple[float, float]:
    """A 95% interval of the score over one run's episodes, by how far its rates may be off.

    It holds however achievements depend on each other: their errors are added, as if all of them
    were off in the same direction. It says nothing of other runs.
    """
    rates = success_rates.values()
    errors = [100 * math.sqrt(p * (1 - p) / episodes) / (1 + 100 * p) for p in rates]
    centre = math.log1p(crafter_score(success_rates))
    half = _NORMAL_95 * sum(errors) / len(errors)
    return math.expm1(centre - half), math.expm1(centre + half)
