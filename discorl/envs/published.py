"""Published figures to compare with; none of them was measured with this package.

Those of Crafter at a million steps are of two kinds, which are easily confused: the score, in
percent, and the return.
"""

from __future__ import annotations

from dataclasses import dataclass

_DISCO = "Oh et al. (2025), Discovering state-of-the-art reinforcement learning algorithms"
_CRAFTER = "Hafner (2022), Benchmarking the Spectrum of Agent Capabilities"
_DREAMER = "Hafner et al. (2023), Mastering Diverse Domains through World Models"
_PROCGEN = "as listed by Oh et al. (2025)"


@dataclass(frozen=True)
class Figures:
    """What somebody reported for an environment."""

    env: str
    """The environment's name, without settings."""
    measure: str
    steps: str
    """Environment steps before it was measured."""
    source: str
    values: dict[str, float]
    """Agent -> figure."""

    def __str__(self) -> str:
        return ", ".join(f"{agent} {value:g}" for agent, value in self.values.items())


PUBLISHED = (
    Figures(
        "crafter",
        "Crafter score",
        "1M",
        _CRAFTER,
        {"random": 1.6, "PPO": 4.6, "Rainbow": 4.3, "DreamerV2": 10.0, "human": 50.5},
    ),
    Figures(
        "crafter",
        "return",
        "1M",
        _CRAFTER,
        {"random": 2.1, "PPO": 4.2, "Rainbow": 5.0, "DreamerV2": 9.0, "human": 14.3},
    ),
    Figures("crafter", "return", "1M", _DREAMER, {"DreamerV3": 11.7}),
    Figures("crafter", "return", "1M", _DISCO, {"Disco103": 6.59, "Disco57": 7.58}),
    Figures("crafter", "return", "20M", _DISCO, {"Disco57": 13.18, "Disco103": 14.56}),
    Figures("nethack", "return", "200M", _DISCO, {"IMPALA": 189, "Disco57": 938, "Disco103": 1114}),
    Figures("ALE/Pong-v5", "return", "200M", _DISCO, {"Disco103": 20}),
    Figures("ALE/Breakout-v5", "return", "200M", _DISCO, {"Disco103": 719}),
    *(
        figures
        for game, ppo, ppg, disco in (
            ("bigfish", 10.9, 31.3, 35.8),
            ("chaser", 4.5, 8.6, 13.3),
            ("coinrun", 7.9, 9.0, 9.95),
            ("plunder", 11.2, 13.4, 7.4),
            ("starpilot", 17.0, 21.6, 44.0),
        )
        for figures in (
            Figures(f"procgen/{game}", "return", "50M", _PROCGEN, {"PPO": ppo, "PPG": ppg}),
            Figures(f"procgen/{game}", "return", "50M", _DISCO, {"Disco103": disco}),
        )
    ),
)


def published_figures(spec: str) -> list[Figures]:
    """What was published for an environment, whatever its settings."""
    name = spec.partition(":")[0]
    return [figures for figures in PUBLISHED if figures.env == name]
