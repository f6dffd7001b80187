"""Draws concepts.svg, the picture of docs/concepts.md: `python docs/images/draw_concepts.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK = "#20232a"
AGENT, RULE, WORLD, OUTER = "#dbe7ff", "#ffe3c4", "#e3f1dd", "#f1e4f7"
Point = tuple[float, float]


def box(ax: Axes, corner: Point, extent: Point, text: str, colour: str, **style: Any) -> None:
    """A rounded box with its text in the middle."""
    ax.add_patch(
        FancyBboxPatch(
            corner, *extent, boxstyle="round,pad=0,rounding_size=1.2", fc=colour, ec=INK, lw=1.1
        )
    )
    middle = (corner[0] + extent[0] / 2, corner[1] + extent[1] / 2)
    ax.text(*middle, text, ha="center", va="center", color=INK, **style)


def arrow(ax: Axes, start: Point, end: Point, **style: Any) -> None:
    """A straight arrow."""
    look: dict[str, Any] = {"color": INK, "lw": 1.5, "mutation_scale": 14} | style
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", shrinkA=0, shrinkB=0, **look))


def path(ax: Axes, points: list[Point], **style: Any) -> None:
    """A line around corners, with an arrow at its end."""
    look: dict[str, Any] = {"color": INK, "lw": 1.5} | style
    ax.plot(*zip(*points[:-1], strict=True), solid_joinstyle="round", **look)
    arrow(ax, points[-2], points[-1], **look)


def note(ax: Axes, place: Point, text: str, **style: Any) -> None:
    """Words beside an arrow."""
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": INK, "size": 9} | style
    ax.text(*place, text, **look)


def frame(
    ax: Axes, corner: Point, size: Point, title: str, colour: str, indent: float = 1.6
) -> None:
    """A loop: everything in it is done again and again."""
    ax.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0,rounding_size=2", fc=colour, ec="#8a8f98", lw=1
        )
    )
    ax.text(
        corner[0] + indent, corner[1] + size[1] - 2.6, title, size=10.5, weight="bold", color=INK
    )


def draw_learning(ax: Axes) -> None:
    """The inner loop: act, ask the rule for targets, move towards them."""
    box(ax, (4, 27), (17, 14), "Agent\n\nparameters θ", AGENT, size=10.5)
    box(ax, (4, 7), (17, 10), "Environment", WORLD, size=10.5)
    arrow(ax, (9, 27), (9, 17))
    arrow(ax, (16, 17), (16, 27))
    note(ax, (8.3, 22), "action", ha="right", size=8.5)
    note(ax, (16.7, 22), "observation,\nreward", ha="left", size=8.5)
    predictions = "Predictions\n\nπ  policy\ny, z  meaning discovered\nq  action values"
    box(ax, (30, 25), (21, 18), predictions, AGENT, size=9.5)
    arrow(ax, (21, 34), (30, 34))
    draw_trajectory(ax)
    box(ax, (60, 7), (20, 36), "", RULE)
    note(ax, (70, 39), "The rule", size=10.5)
    note(ax, (70, 35.6), "a network, parameters η", size=8.5)
    box(
        ax,
        (62, 22.5),
        (16, 10),
        "memory of the\nagent's whole life,\none step an update",
        "white",
        size=8,
    )
    note(ax, (70, 19), "reads the trajectory\nbackwards, T to 1", size=8.5)
    arrow(ax, (77, 12), (63, 12), color="#b5651d", lw=2.2)
    arrow(ax, (51, 34), (60, 34))
    arrow(ax, (52.5, 12), (60, 12))
    box(ax, (86, 25), (11, 18), "Targets\n\nπ̂\nŷ\nẑ", RULE, size=10)
    arrow(ax, (80, 34), (86, 34))
    path(ax, [(91.5, 43), (91.5, 48), (12.5, 48), (12.5, 41)])
    note(ax, (52, 49.8), "KL( target ‖ prediction ): its gradient moves θ", size=9.5)


def draw_trajectory(ax: Axes) -> None:
    """What the agent did, step by step."""
    arrow(ax, (21, 12), (29.5, 12))
    for i, label in enumerate(["1", "2", "…", "T"]):
        box(ax, (30 + 5.75 * i, 9.2), (5, 5.6), label, WORLD, size=9)
    note(ax, (41, 17.4), "trajectory", size=9)


def draw() -> Figure:
    """The whole picture."""
    figure, ax = plt.subplots(figsize=(10, 6.9))
    figure.subplots_adjust(0, 0, 1, 1)
    ax.set(xlim=(-2, 103), ylim=(0, 74))
    ax.axis("off")
    frame(ax, (-1, 1), (103, 72), "Discovery: the outer loop, one meta-step each turn", OUTER)
    frame(ax, (1, 3), (99, 51.5), "Learning: the inner loop, N updates", "white", indent=7)
    judge = "The agent after N updates\nis judged on new experience: meta-loss"
    box(ax, (22, 58.5), (33, 8), judge, AGENT, size=9.5)
    path(ax, [(6.5, 41), (6.5, 62.5), (22, 62.5)], ls="--")
    path(ax, [(55, 62.5), (83, 62.5), (83, 40), (80, 40)], ls="--")
    note(
        ax,
        (69, 65.8),
        "meta-gradient: back through the\nN updates, mean over many agents",
        size=8.8,
    )
    note(ax, (84, 59.5), "changes η", ha="left", size=9.5)
    draw_learning(ax)
    return figure


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "discorl"
    plt.rcParams["font.family"] = "DejaVu Sans"
    draw().savefig(Path(__file__).parent / "concepts.svg", metadata={"Date": None})
