"""Sokoban's levels: read from text files in Boxoban's format, or generated, always solvable."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from discorl.errors import DiscorlError

WALL, GOAL, BOX, AGENT, BOX_ON_GOAL, AGENT_ON_GOAL = "#.$@*+"
_HEADER = ";"
_SIGNS = set("#.$@*+ ")
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

Cell = tuple[int, int]


@dataclass(frozen=True)
class Level:
    """Where things are, as (row, column)."""

    rows: int
    columns: int
    walls: frozenset[Cell]
    goals: frozenset[Cell]
    boxes: frozenset[Cell]
    agent: Cell

    def __str__(self) -> str:
        """As it is written in a file, without its header."""
        lines = (
            "".join(self._sign((row, column)) for column in range(self.columns))
            for row in range(self.rows)
        )
        return "\n".join(lines)

    def _sign(self, cell: Cell) -> str:
        if cell in self.walls:
            return WALL
        on_goal = cell in self.goals
        if cell == self.agent:
            return AGENT_ON_GOAL if on_goal else AGENT
        if cell in self.boxes:
            return BOX_ON_GOAL if on_goal else BOX
        return GOAL if on_goal else " "


def read_levels(path: str | Path) -> list[Level]:
    """The levels of a file: a line that begins with `;` and then the level's rows, for each."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DiscorlError(f"levels={path}: could not be read: {error}") from error
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(_HEADER):
            blocks.append([])
        elif line.strip():
            blocks[-1].append(line)
    levels = [_parse(block, path, number) for number, block in enumerate(filter(None, blocks))]
    if not levels:
        raise DiscorlError(f"levels={path}: it holds no level")
    if len({(level.rows, level.columns) for level in levels}) > 1:
        raise DiscorlError(f"levels={path}: expected levels of one size, found several")
    return levels


def _parse(lines: list[str], path: str | Path, number: int) -> Level:
    columns = max(map(len, lines))
    cells: dict[str, set[Cell]] = {sign: set() for sign in _SIGNS}
    for row, line in enumerate(lines):
        for column, sign in enumerate(line.ljust(columns)):
            if sign not in _SIGNS:
                raise DiscorlError(f"levels={path}: level {number}: unknown sign {sign!r}")
            cells[sign].add((row, column))
    agents = cells[AGENT] | cells[AGENT_ON_GOAL]
    goals = cells[GOAL] | cells[BOX_ON_GOAL] | cells[AGENT_ON_GOAL]
    boxes = cells[BOX] | cells[BOX_ON_GOAL]
    if len(agents) != 1 or not boxes or len(boxes) != len(goals):
        raise DiscorlError(
            f"levels={path}: level {number}: expected one player and as many boxes as goals, got "
            f"{len(agents)}, {len(boxes)} and {len(goals)}"
        )
    return Level(
        len(lines),
        columns,
        frozenset(cells[WALL]),
        frozenset(goals),
        frozenset(boxes),
        agents.pop(),
    )


@lru_cache(maxsize=8)
def generate_levels(
    rows: int, columns: int, boxes: int, walls: int, count: int, seed: int
) -> tuple[Level, ...]:
    """Solvable levels, the same for a seed on every machine.

    Each is played backwards from its solution: the boxes begin on their goals, and are pulled away
    from them by random walks.

    Args:
      rows: height, with the walls around it.
      walls: blocks inside that cannot be entered.
    """
    rng = random.Random(f"sokoban {rows} {columns} {boxes} {walls} {seed}")
    levels: list[Level] = []
    for _ in range(count):
        level = next(
            (found for _ in range(1000) if (found := _generate(rng, rows, columns, boxes, walls))),
            None,
        )
        if level is None:
            raise ValueError(
                f"no level of {rows} x {columns} cells was found with {boxes} boxes and {walls} "
                "walls: give it more room"
            )
        levels.append(level)
    return tuple(levels)


def _generate(rng: random.Random, rows: int, columns: int, boxes: int, walls: int) -> Level | None:
    """One level; None if a box was never moved off its goal."""
    inside = [(row, column) for row in range(1, rows - 1) for column in range(1, columns - 1)]
    border = {(r, c) for r in range(rows) for c in range(columns)} - set(inside)
    rng.shuffle(inside)
    blocks, free = set(inside[:walls]), inside[walls:]
    goals, agent = frozenset(free[:boxes]), free[boxes]
    closed, placed = border | blocks, set(goals)
    for _ in range(20 * rows * columns):
        agent = _walk_back(rng, closed, placed, agent)
    if placed & goals:
        return None
    return Level(rows, columns, frozenset(closed), goals, frozenset(placed), agent)


def _walk_back(rng: random.Random, closed: set[Cell], boxes: set[Cell], agent: Cell) -> Cell:
    """A step, which pulls along a box behind the agent half of the time."""
    down, right = rng.choice(_MOVES)
    row, column = agent
    there, behind = (row + down, column + right), (row - down, column - right)
    if there in closed or there in boxes:
        return agent
    if behind in boxes and rng.random() < 0.5:
        boxes.remove(behind)
        boxes.add(agent)
    return there
