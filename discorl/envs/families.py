"""Families of environments: `family:grid` is a grid with settings drawn from ranges."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from discorl.errors import DiscorlError, UnknownNameError

Value = bool | int | float
PREFIX = "family"
_SEEDS = range(1, 10_000)


@dataclass(frozen=True)
class Family:
    """A game, and what its settings may be."""

    game: str
    summary: str
    ranges: dict[str, Sequence[Value]]
    """Setting -> values, all equally likely. Every combination is a valid game."""

    def draw(self, seed: int) -> str:
        """One member of the family, as the name and settings of an environment."""
        rng = random.Random(f"{self.game} {seed}")
        return self._spec({key: rng.choice(values) for key, values in self.ranges.items()})

    @property
    def largest(self) -> str:
        """The member with the largest value of every setting.

        Its observation shape and number of actions have room for every member's: they are those
        of a stack of members.
        """
        return self._spec({key: max(values) for key, values in self.ranges.items()})

    def _spec(self, settings: dict[str, Value]) -> str:
        return f"{self.game}:" + ",".join(f"{key}={_text(v)}" for key, v in settings.items())


_BANDITS: dict[str, Sequence[Value]] = {
    "arms": range(2, 7),
    "contexts": range(1, 5),
    "noise": (0.0, 0.1, 0.3),
    "delay": range(4),
    "seed": _SEEDS,
}
_UMBRELLAS: dict[str, Sequence[Value]] = {
    "length": range(3, 11),
    "distractors": range(5),
    "noise": (0.0, 0.1, 0.2),
}

FAMILIES: dict[str, Family] = {
    "acrobot": Family(
        "acrobot",
        "Acrobots with motors strong enough to get up by chance, heavy and light.",
        {"torque": (2.0, 3.0, 4.0), "gravity": (6.0, 8.0, 9.8), "steps": (100, 150, 200)},
    ),
    "bandit": Family(
        "bandit",
        "Bandits with 2 to 6 arms, up to 4 contexts, some with delayed pay.",
        {**_BANDITS, "wait": (1,)},
    ),
    "cartpole": Family(
        "cartpole",
        "Cart-poles with longer and shorter poles, pushed more or less.",
        {"steps": (100, 200), "force": (8.0, 10.0, 12.0), "pole": (0.4, 0.5, 0.6, 0.8)},
    ),
    "catch": Family(
        "catch",
        "Catch on boards where every ball can be reached.",
        {"rows": range(5, 11), "columns": range(4, 9)},
    ),
    "chain": Family(
        "chain",
        "Chains of all lengths, slippery or not, with small and large rewards.",
        {
            "length": range(3, 7),
            "slip": (0.0, 0.1, 0.2),
            "small": (0.1, 0.2),
            "reward_scale": (0.1, 0.3, 1.0, 3.0),
            "steps": range(15, 26),
            "seed": _SEEDS,
        },
    ),
    "cliff": Family(
        "cliff",
        "Cliffs of all widths, with the four actions in any order.",
        {"rows": range(3, 6), "columns": range(4, 8), "steps": (30, 40), "seed": _SEEDS},
    ),
    "corridor": Family(
        "corridor",
        "Corridors whose two actions are swapped at some places.",
        {
            "length": range(4, 9),
            "step_cost": (0.0, 0.01),
            "steps": range(20, 41),
            "seed": _SEEDS,
        },
    ),
    "deep_sea": Family(
        "deep_sea",
        "Deep seas whose two actions are swapped in some columns.",
        {"size": range(3, 8), "seed": _SEEDS},
    ),
    "early_bandit": Family(
        "bandit",
        "Bandits like the others, some of which ask at the first step.",
        {**_BANDITS, "wait": (0, 1)},
    ),
    "early_umbrella": Family(
        "umbrella",
        "Umbrellas like the others, some of which are decided on at the first step.",
        {**_UMBRELLAS, "wait": (0, 1)},
    ),
    "grid": Family(
        "grid",
        "Grids with all kinds of walls, objects and rewards.",
        {
            "rows": range(3, 7),
            "columns": range(3, 7),
            "walls": range(4),
            "objects": range(1, 4),
            "kinds": range(1, 4),
            "respawn": (True, False),
            "steps": range(15, 26),
            "seed": _SEEDS,
        },
    ),
    "lander": Family(
        "lander",
        "Landers with wide and narrow pads, some paid on the way.",
        {
            "gravity": (0.2, 0.3, 0.4),
            "thrust": (0.8, 1.0),
            "pad": (0.3, 0.4, 0.5),
            "soft": (0.4, 0.5),
            "shaping": (0.0, 0.3),
            "steps": (50, 60, 80),
        },
    ),
    "memory": Family(
        "memory",
        "Cues that stay visible, so that an agent without memory can name them.",
        {"cues": range(2, 6), "delay": range(1, 7), "visible": (True,)},
    ),
    "mountain_car": Family(
        "mountain_car",
        "Mountain cars, of which some must swing and some can drive straight up.",
        {"power": (0.002, 0.0025, 0.003, 0.004), "steps": (150, 200, 300)},
    ),
    "umbrella": Family(
        "umbrella",
        "Umbrellas over short and long days.",
        {**_UMBRELLAS, "wait": (1,)},
    ),
}
"""Meant for an MLP of 64 units and about a thousand updates of 32 x 16 steps."""


def resolve_environment(spec: str, seed: int) -> str:
    """The concrete environment that `spec` names: `family:grid` is drawn, others are returned.

    Args:
      spec: an environment, or `family:NAME`, or `family:NAME,seed=7`, which is drawn with its own
        seed whatever the argument.
      seed: fixes the draw.
    """
    family = find_family(spec)
    if family is None:
        return spec
    setting = spec.partition(",")[2]
    return family.draw(_parse_seed(spec, setting) if setting else seed)


def find_family(spec: str) -> Family | None:
    """The family that `family:NAME` or `family:NAME,seed=7` names; None if it is another's name."""
    prefix, _, rest = spec.partition(":")
    if prefix != PREFIX:
        return None
    name = rest.partition(",")[0]
    if name not in FAMILIES:
        raise UnknownNameError("family of environments", name, FAMILIES)
    return FAMILIES[name]


def has_members(spec: str) -> bool:
    """Whether it names a family from which every seed draws a member."""
    return find_family(spec) is not None and "," not in spec


def _parse_seed(spec: str, setting: str) -> int:
    key, _, value = setting.partition("=")
    if key != "seed" or not value.isdecimal():
        raise DiscorlError(f"environment '{spec}': write {PREFIX}:NAME,seed=NUMBER")
    return int(value)


def _text(value: Value) -> str:
    return str(value).lower()
