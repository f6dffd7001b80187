"""Grid: collect good objects and avoid bad ones among walls."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.envs.tensor import StackableGame
from discorl.envs.tools import check_least, column, draw_index, look_up, mark, move, possible


@dataclass(frozen=True)
class Grid(StackableGame):
    """Walk a grid with walls and pick up objects, some good and some bad.

    Each kind of object has its own reward. The seed of the game fixes the walls and the rewards;
    each episode draws where the agent and the objects are, and of which kinds. The actions are
    up, down, left and right; walls and edges stop the agent.
    """

    rows: int = 5
    """Height of the grid."""
    columns: int = 5
    """Width of the grid."""
    walls: int = 3
    """Cells that cannot be entered; the others stay connected."""
    objects: int = 3
    """Objects on the grid at once."""
    kinds: int = 2
    """Kinds of objects: the first is good, the second bad, the others either."""
    respawn: bool = True
    """Whether a collected object comes back elsewhere, as a random kind, or is gone."""
    steps: int = 20
    """Length of an episode."""
    seed: int = 0
    """Fixes walls and rewards."""

    num_actions = 4
    shows_end = True
    action_names = ("up", "down", "left", "right")
    sizes = ("rows", "columns", "objects", "kinds")

    def __post_init__(self) -> None:
        check_least(self, rows=1, columns=1, walls=0, objects=1, kinds=1, steps=1, seed=0)
        if self.rows * self.columns < self.walls + self.objects + 2:
            raise ValueError(
                f"expected a cell for the agent and a free one beside {self.walls} walls and "
                f"{self.objects} objects, got {self.rows} x {self.columns} cells"
            )

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Channels: agent, walls, then one for each kind of object."""
        return (self.rows, self.columns, 2 + self.kinds)

    @property
    def rewards(self) -> tuple[float, ...]:
        """The reward of each kind, from -1 to 1."""
        rng = random.Random(f"grid rewards {self.seed}")
        sizes = [rng.randrange(2, 11) / 10 for _ in range(self.kinds)]
        signs = [1, -1, *(rng.choice((1, -1)) for _ in range(self.kinds))]
        return tuple(sign * size for sign, size in zip(signs, sizes, strict=False))

    @property
    def optimal_return(self) -> float | None:
        """Without respawning, an upper bound: every good object, no bad one. Otherwise unknown."""
        if self.respawn:
            return None
        return self.objects * sum(max(reward, 0.0) for reward in self.rewards) / self.kinds

    def lay_out(self, frame: Grid) -> dict[str, Tensor]:
        """See `StackableGame.lay_out`: cells with walls, cells not to be entered, rewards."""
        closed = torch.ones(frame.rows, frame.columns, dtype=torch.bool)
        closed[: self.rows, : self.columns] = False
        walls = torch.zeros_like(closed)
        for cell in _place_walls(self.rows, self.columns, self.walls, self.seed):
            walls[cell // self.columns, cell % self.columns] = True
        return {
            "walls": walls.flatten().to(torch.uint8),
            "closed": (walls | closed).flatten(),
            "rewards": torch.tensor(self.rewards + (0.0,) * (frame.kinds - self.kinds)),
        }

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: cells are counted along the frame's rows.

        An object that is gone is outside, and so are those that the frame has more than the grid.
        """
        closed = self.tables(generator.device)["closed"]
        cells, device = closed.shape[1], closed.device
        scores = torch.rand(num_envs, cells, generator=generator, device=device)
        places = scores.masked_fill(closed, -1.0).topk(1 + self.frame.objects).indices
        objects = places[:, 1:]
        surplus = torch.arange(objects.shape[1], device=device) >= column(self.objects)
        return {
            "agent": places[:, 0],
            "objects": objects.masked_fill(surplus, cells),
            "kinds": draw_index(self.kinds, objects.shape, generator),
            "time": torch.zeros_like(places[:, 0]),
        }

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        tables = self.tables(generator.device)
        closed = tables["closed"]
        agent = move(state["agent"], actions, self.rows, self.columns, self.frame.columns)
        agent = torch.where(look_up(closed, agent), state["agent"], agent)
        objects, kinds = state["objects"], state["kinds"]
        hit = objects == agent[:, None]
        reward = (look_up(tables["rewards"], kinds) * hit).sum(dim=1)
        outside = closed.shape[1]
        place = torch.full_like(agent, outside)
        if possible(self.respawn):
            marked = mark(torch.cat([agent[:, None], objects], dim=1), outside + 1)
            taken = marked[:, :outside].bool() | closed
            scores = torch.rand(taken.shape, generator=generator, device=taken.device)
            free = scores.masked_fill(taken, -1.0).argmax(dim=1)
            place = place + (free - place) * self.respawn
            kind = draw_index(self.kinds, agent.shape, generator)
            kinds = torch.where(hit, kind[:, None], kinds)
        objects = torch.where(hit, place[:, None], objects)
        time = state["time"] + 1
        state = {"agent": agent, "objects": objects, "kinds": kinds, "time": time}
        return state, reward, time == self.steps

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        walls = self.tables(state["agent"].device)["walls"]
        channels = 2 + self.frame.kinds
        objects = state["objects"] * channels + 2 + state["kinds"]
        marked = torch.cat([state["agent"][:, None] * channels, objects], dim=1)
        # One cell more than the grid has, for objects that are gone.
        cells = mark(marked, (walls.shape[1] + 1) * channels).reshape(len(marked), -1, channels)
        cells[:, :-1, 1] = walls
        return cells[:, :-1].contiguous().reshape(-1, *self.frame.observation_shape)


def _place_walls(rows: int, columns: int, count: int, seed: int) -> set[int]:
    """Random cells without which the others are still connected."""
    rng = random.Random(f"grid walls {seed}")
    walls: set[int] = set()
    while len(walls) < count:
        cell = rng.randrange(rows * columns)
        if _connected(rows, columns, walls | {cell}):
            walls.add(cell)
    return walls


def _connected(rows: int, columns: int, walls: set[int]) -> bool:
    free = set(range(rows * columns)) - walls
    frontier = [min(free)]
    while frontier:
        cell = frontier.pop()
        if cell in free:
            free.remove(cell)
            frontier += [cell - columns, cell + columns]
            frontier += [cell - 1] if cell % columns else []
            frontier += [cell + 1] if (cell + 1) % columns else []
    return not free
