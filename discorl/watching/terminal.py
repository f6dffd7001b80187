"""Board games in a terminal, frame by frame, in colour."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from discorl.watching.frames import Moment, action_name, shown_actions
from discorl.watching.scenes import COLOURS, Board, colour_of

_SIGNS = "123456789abcdefghijklmnop"
"""Of a board's channels, so that they can be told apart without colours."""
_BAR = 20


def show_moments(
    moments: Iterable[Moment],
    board: Board,
    names: tuple[str, ...] | None,
    console: Console,
    fps: float,
) -> float:
    """Show one moment after the other in place; returns the last one's return."""
    total, cells = 0.0, np.zeros((1, 1), np.intp)
    with Live(console=console, auto_refresh=False) as live:
        for moment in moments:
            if moment.observation is not None:
                cells = board.cells(moment.observation)
            live.update(draw_moment(moment, cells, names), refresh=True)
            time.sleep((3 if moment.last else 1) / fps)
            total = moment.total
    return total


def draw_moment(
    moment: Moment, cells: npt.NDArray[np.intp], names: tuple[str, ...] | None
) -> Table:
    """The board, and beside it what the agent makes of it."""
    table = Table.grid(padding=(0, 3))
    table.add_row(_draw_cells(cells), Group(_draw_lines(moment), _draw_policy(moment, names)))
    return table


def _draw_cells(cells: npt.NDArray[np.intp]) -> Text:
    text = Text()
    for row in cells:
        for cell in row:
            sign = f"{_SIGNS[(cell - 1) % len(_SIGNS)]} " if cell else "· "
            text.append(sign, f"{_ink(colour_of(cell))} on {_hex(colour_of(cell))}")
        text.append("\n")
    return text


def _draw_lines(moment: Moment) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, said in moment.lines():
        if said:
            table.add_row(label, Text(said, justify="right"))
    return table


def _draw_policy(moment: Moment, names: tuple[str, ...] | None) -> Any:
    if moment.probabilities is None:
        return Text("\nend of the episode")
    table = Table.grid(padding=(0, 1))
    table.add_row("", "")
    for action in shown_actions(moment.probabilities):
        share, chosen = float(moment.probabilities[action]), action == moment.action
        bar = Text("█" * round(share * _BAR), _hex(COLOURS[1 if chosen else 0]))
        bar.append("░" * (_BAR - len(bar)), "dim")
        name = Text(("> " if chosen else "  ") + action_name(names, action))
        table.add_row(name, bar, Text(f"{share:.0%}", justify="right"))
    return table


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _ink(colour: tuple[int, int, int]) -> str:
    """Black or white, whichever can be read on the colour."""
    red, green, blue = colour
    return "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 140 else "white"
