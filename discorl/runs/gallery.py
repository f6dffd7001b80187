"""Pictures of games: a few frames of an episode of random play, side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from discorl.envs.registry import make_environment
from discorl.runs.plots import pyplot, save_figure

_FRAMES = 6
_EPISODES = 150
"""This many are played, and the one where most happens is drawn."""
_WIDTH = 1.3
"""Of a frame, in inches."""
_TITLE = 0.45
"""Height of a frame's title, in inches."""
_EMPTY = (0.95, 0.95, 0.95)
_COLOURS = (
    (0.12, 0.29, 0.49),
    (0.55, 0.55, 0.55),
    (0.20, 0.63, 0.35),
    (0.84, 0.33, 0.24),
    (0.93, 0.69, 0.13),
    (0.55, 0.36, 0.65),
)
"""One for each channel of a board, over and over."""
_INCHES = 1.6
"""Height of a single picture; lines and dots are as thick as on a page of that size."""
_DRAWN = {
    "acrobot": "acrobot:torque=4",
    "bandit": "bandit:contexts=3,delay=3",
    "mountain_car": "mountain_car:power=0.004",
}
"""Games that show more with settings other than their defaults."""


@dataclass(frozen=True)
class Frame:
    """What is seen at one step of an episode."""

    time: int
    observation: Tensor
    """[*observation_shape]."""
    total: float
    """The return so far; on the last frame, with the reward that ends the episode."""
    last: bool = False


def draw_environment(spec: str, path: Path) -> None:
    """Write the frames of one episode as a picture; the suffix of the path is the format."""
    plt = pyplot()
    frames = _choose(max((play_episode(spec, seed) for seed in range(_EPISODES)), key=_events))
    size = (_WIDTH * _FRAMES, _TITLE + _WIDTH * _aspect(frames[0].observation))
    figure, row = plt.subplots(1, _FRAMES, figsize=size, layout="constrained")
    for axes in row[len(frames) :]:
        axes.axis("off")
    for axes, frame in zip(row, frames, strict=False):
        draw = _DRAWINGS.get(spec.partition(":")[0], _draw_observation)
        draw(axes, frame.observation)
        axes.set_xticks([])
        axes.set_yticks([])
        # Zero is added because a return that rounds to it may be negative.
        title = f"step {frame.time}{', last' * frame.last}\nreturn {round(frame.total, 2) + 0:.2f}"
        axes.set_title(title, fontsize=7)
    save_figure(figure, path, dpi=100)


def play_episode(spec: str, seed: int) -> list[Frame]:
    """Every step of one episode of random play."""
    env = make_environment(_DRAWN.get(spec, spec), 1)
    actions = torch.Generator().manual_seed(seed)
    step, total = env.reset(seed), 0.0
    frames: list[Frame] = []
    while True:
        assert isinstance(step.observation, Tensor)
        seen = step.observation[0]
        step = env.step(torch.randint(env.num_actions, (1,), generator=actions))
        last = not step.discount
        frames.append(Frame(len(frames), seen, total + last * float(step.reward), last))
        total += float(step.reward)
        if last:
            return frames


def _events(frames: list[Frame]) -> tuple[float, int]:
    return frames[-1].total, len(frames)


def _choose(frames: list[Frame]) -> list[Frame]:
    """The first, the last, and some between them."""
    count = min(_FRAMES, len(frames))
    return [frames[round(i * (len(frames) - 1) / max(count - 1, 1))] for i in range(count)]


def _aspect(observation: Tensor) -> float:
    """Height of a frame over its width."""
    if observation.dim() == 3:
        return observation.shape[0] / observation.shape[1]
    return 0.6 if observation.is_floating_point() else 1 / len(observation)


def _draw_observation(axes: Any, observation: Tensor) -> None:
    if observation.is_floating_point():
        axes.bar(range(len(observation)), observation.tolist(), color=_COLOURS[0])
        axes.set_ylim(min(0.0, float(observation.min())), max(1.05, float(observation.max())))
        return
    board = observation if observation.dim() == 3 else observation[None, :, None]
    axes.imshow(_colour(board).tolist(), interpolation="nearest")
    rows, columns = board.shape[:2]
    axes.hlines([row - 0.5 for row in range(1, rows)], -0.5, columns - 0.5, "white", linewidth=0.5)
    axes.vlines([column - 0.5 for column in range(1, columns)], -0.5, rows - 0.5, "white", lw=0.5)


def _colour(board: Tensor) -> Tensor:
    """[rows, columns, channels] zeros and ones -> [rows, columns, 3]; the first channel wins."""
    picture = torch.tensor(_EMPTY).repeat(*board.shape[:2], 1)
    for channel in reversed(range(board.shape[2])):
        picture[board[..., channel] > 0] = torch.tensor(_COLOURS[channel % len(_COLOURS)])
    return picture


def _draw_cart(axes: Any, observation: Tensor) -> None:
    place, _, angle, _ = observation.tolist()
    axes.plot([-2.4, 2.4], [0, 0], color=_COLOURS[1], linewidth=1)
    axes.plot([place - 0.3, place + 0.3], [0.1, 0.1], color=_COLOURS[0], linewidth=5)
    tip = place + 1.6 * math.sin(angle), 0.2 + 1.6 * math.cos(angle)
    axes.plot([place, tip[0]], [0.2, tip[1]], color=_COLOURS[3], linewidth=2)
    axes.set(xlim=(-2.5, 2.5), ylim=(-0.4, 2.2))


def _draw_car(axes: Any, observation: Tensor) -> None:
    road = [place / 50 for place in range(-60, 31)]
    axes.plot(road, [math.sin(3 * place) for place in road], color=_COLOURS[1], linewidth=1)
    axes.plot(0.5, math.sin(1.5), "|", color=_COLOURS[2], markersize=8)
    place = float(observation[0])
    axes.plot(place, math.sin(3 * place) + 0.15, "o", color=_COLOURS[0], markersize=5)
    axes.set(xlim=(-1.3, 0.7), ylim=(-1.2, 1.5))


def _draw_links(axes: Any, observation: Tensor) -> None:
    cos, sin, bent_cos, bent_sin = observation[:4].tolist()
    joint = sin, -cos
    tip = joint[0] + sin * bent_cos + cos * bent_sin, joint[1] - cos * bent_cos + sin * bent_sin
    axes.hlines(1, -2, 2, _COLOURS[2], linewidth=1)
    axes.plot([0, joint[0]], [0, joint[1]], color=_COLOURS[0], linewidth=2)
    axes.plot([joint[0], tip[0]], [joint[1], tip[1]], color=_COLOURS[3], linewidth=2)
    axes.set(xlim=(-3.6, 3.6), ylim=(-2.2, 2.2))


def _draw_lander(axes: Any, observation: Tensor) -> None:
    place, height, speed, climbing = observation.tolist()
    axes.plot([-1, 1], [0, 0], color=_COLOURS[1], linewidth=1)
    axes.plot([-0.2, 0.2], [0, 0], color=_COLOURS[2], linewidth=4)
    axes.plot([place, place + speed], [height, height + climbing], color=_COLOURS[3], linewidth=1)
    axes.plot(place, height, "o", color=_COLOURS[0], markersize=5)
    axes.set(xlim=(-1.1, 1.1), ylim=(-0.15, 1.3))


_DRAWINGS = {
    "acrobot": _draw_links,
    "cartpole": _draw_cart,
    "lander": _draw_lander,
    "mountain_car": _draw_car,
}
"""Games whose numbers are places and angles."""


def is_drawn(name: str) -> bool:
    """Whether a game has a drawing of its own."""
    return name in _DRAWINGS


class DrawnGame:
    """Single pictures of a game that has a drawing of its own.

    Args:
      name: of the game, without settings.
      size: height of a picture in pixels.
    """

    def __init__(self, name: str, size: int) -> None:
        pyplot()
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._draw = _DRAWINGS[name]
        self._figure = Figure((_INCHES * 1.5, _INCHES), dpi=size / _INCHES, facecolor=_EMPTY)
        self._canvas = FigureCanvasAgg(self._figure)

    def draw(self, observation: Tensor) -> npt.NDArray[np.uint8]:
        """[rows, columns, 3] of one observation [*observation_shape]."""
        self._figure.clear()
        axes = self._figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        self._draw(axes, observation)
        self._canvas.draw()
        return np.array(self._canvas.buffer_rgba())[..., :3]
