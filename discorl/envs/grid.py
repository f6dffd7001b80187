"""Grid: collect good objects and avoid bad ones among walls."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from discorl.envs.tools import check_least, draw_index, mark, move


@dataclass(frozen=True)
class Grid:
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

    def start(self, num_envs: int, generator: torch.Generator) -> dict[str, Tensor]:
        """See `TensorGame.start`: cells are counted along the rows; a gone object is outside."""
        walls, _ = _tables(self, generator.device)
        scores = torch.rand(num_envs, len(walls), generator=generator, device=walls.device)
        places = scores.masked_fill(walls, -1.0).topk(1 + self.objects).indices
        shape = (num_envs, self.objects)
        return {
            "agent": places[:, 0],
            "objects": places[:, 1:],
            "kinds": torch.randint(self.kinds, shape, generator=generator, device=walls.device),
            "time": torch.zeros_like(places[:, 0]),
        }

    def play(
        self, state: dict[str, Tensor], actions: Tensor, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """See `TensorGame.play`."""
        walls, rewards = _tables(self, generator.device)
        agent = move(state["agent"], actions, self.rows, self.columns)
        agent = torch.where(walls[agent], state["agent"], agent)
        objects, kinds = state["objects"], state["kinds"]
        hit = objects == agent[:, None]
        reward = (rewards[kinds] * hit).sum(dim=1)
        if self.respawn:
            taken = mark(torch.cat([agent[:, None], objects], dim=1), len(walls)).bool() | walls
            scores = torch.rand(taken.shape, generator=generator, device=taken.device)
            place = scores.masked_fill(taken, -1.0).argmax(dim=1)
            kind = draw_index(self.kinds, len(agent), generator)
            kinds = torch.where(hit, kind[:, None], kinds)
            objects = torch.where(hit, place[:, None], objects)
        else:
            objects = objects.masked_fill(hit, len(walls))
        time = state["time"] + 1
        state = {"agent": agent, "objects": objects, "kinds": kinds, "time": time}
        return state, reward, time == self.steps

    def observe(self, state: dict[str, Tensor]) -> Tensor:
        """See `TensorGame.observe`: uint8 zeros and ones."""
        walls, _ = _tables(self, state["agent"].device)
        channels = 2 + self.kinds
        objects = state["objects"] * channels + 2 + state["kinds"]
        marked = torch.cat([state["agent"][:, None] * channels, objects], dim=1)
        # One cell more than the grid has, for objects that are gone.
        cells = mark(marked, (len(walls) + 1) * channels).reshape(len(marked), -1, channels)
        cells[:, :-1, 1] = walls.to(torch.uint8)
        return cells[:, :-1].contiguous().reshape(-1, *self.observation_shape)


@lru_cache(maxsize=256)
def _tables(game: Grid, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the walls are, [rows * columns] bool, and the rewards of the kinds, [kinds]."""
    walls = _place_walls(game.rows, game.columns, game.walls, game.seed)
    flags = [cell in walls for cell in range(game.rows * game.columns)]
    return torch.tensor(flags, device=device), torch.tensor(game.rewards, device=device)


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
