"""What is seen of an environment: its own picture, a board, an image, or bars.

A scene turns what one copy of an environment shows into a picture, [rows, columns, 3] bytes.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw

from discorl.agents.convolutions import channels_are_last
from discorl.envs.atari import make_atari
from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.registry import GIVEN, is_external, make_environment, name_game
from discorl.envs.sources import EnvironmentSource
from discorl.envs.tensor import TensorEnvironment
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec, Observation, observation_leaves, spec_entries
from discorl.runs.gallery import DrawnGame, is_drawn

Picture = npt.NDArray[np.uint8]

EMPTY = (242, 242, 242)
COLOURS = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (60, 60, 60),
    (240, 228, 66),
    (140, 140, 140),
    (110, 70, 30),
)
"""Of a board's channels, over and over. Colour-blind eyes can tell the first eight apart: they are
those of Okabe and Ito, but for a softer black."""
_LINE = (255, 255, 255)
_LARGEST_CELL = 48
_SMALLEST_WITH_LINES = 6
_LARGEST_BOARD = 128
"""Rows or columns; what is larger is no board."""
_BARS = 64
_BOARD_FPS, _MOTION_FPS = 6, 25
_ATARI, _NO_RENDER = "ALE/", "minatar/"
"""Games that we make ourselves; the latter draw nothing."""


class Scene(Protocol):
    """Draws what one copy shows."""

    fps: int
    """Pictures in a second that suit it."""

    def draw(self, observation: Observation) -> Picture:
        """The picture of one observation [*shape], which the environment shows at this moment."""
        ...


def open_environment(
    source: EnvironmentSource, config: EnvironmentConfig, device: torch.device | str
) -> Environment:
    """A copy of an environment, or the few that it comes with; it draws itself if it can."""
    name = source.name
    if name.startswith(_ATARI):
        return make_atari(name, source.num_envs or 1, device, draws=True)
    if is_external(name) and not name.startswith((GIVEN, _NO_RENDER)):
        kwargs = (*config.env_kwargs, "render_mode=rgb_array")
        drawing = replace(config, env_kwargs=kwargs, env_workers=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of modes that it does not have.
                return make_environment(name, source.num_envs or 1, device, drawing)
        except DiscorlError:
            pass  # It takes no such argument; if that is not why, the next line says so.
    return source.make(source.num_envs or 1)


def find_scene(env: Environment, size: int) -> Scene:
    """How an environment is drawn.

    Args:
      size: height of a picture in pixels, roughly.
    """
    seen = find_board(env, size) or _find_drawing(env, size)
    return Rendered(env, size, seen) if isinstance(env, GymnasiumEnvironment) else seen


def find_board(env: Environment, size: int = 1) -> Board | None:
    """The environment's observations as a board, if they are one."""
    spec = env.observation_spec
    if not isinstance(spec, ArraySpec) or spec.dtype != torch.uint8 or spec.scale != 1:
        return None
    if len(spec.shape) > 3 or max(spec.shape[:2]) > _LARGEST_BOARD:
        return None
    ours = isinstance(env, TensorEnvironment)
    last = len(spec.shape) < 3 or ours or channels_are_last(spec.shape)
    return Board(size, last)


def _find_drawing(env: Environment, size: int) -> Scene:
    if isinstance(env, TensorEnvironment):
        name = name_game(env.game).partition(":")[0]
        return _Drawn(name, size) if is_drawn(name) else Bars(size)
    for name, entry in spec_entries(env.observation_spec).items():
        if entry.dtype == torch.uint8 and entry.scale != 1 and len(entry.shape) in (2, 3):
            return Images(name, entry, size)
    return Bars(size)


class Board:
    """A board of cells, each with the colour of the first channel that is set there."""

    fps = _BOARD_FPS

    def __init__(self, size: int, channels_last: bool = True) -> None:
        self._size, self._channels_last = size, channels_last

    def cells(self, observation: Observation) -> npt.NDArray[np.intp]:
        """[rows, columns]: 0 where nothing is, else one more than the number of the channel."""
        array = _array(observation)
        if array.ndim < 3:
            array = np.atleast_2d(array)[..., None]
        elif not self._channels_last:
            array = np.moveaxis(array, 0, -1)
        set_ = array > 0
        return np.where(set_.any(-1), set_.argmax(-1) + 1, 0)

    def draw(self, observation: Observation) -> Picture:
        """See `Scene.draw`."""
        cells = self.cells(observation)
        rows, columns = cells.shape
        side = max(min(self._size // rows, 2 * self._size // columns, _LARGEST_CELL), 1)
        colours = np.array([EMPTY, *(colour_of(cell) for cell in range(1, cells.max() + 1))])
        picture = colours.astype(np.uint8)[cells].repeat(side, axis=0).repeat(side, axis=1)
        if side >= _SMALLEST_WITH_LINES:
            picture[::side] = picture[:, ::side] = _LINE
        return picture


def colour_of(cell: int) -> tuple[int, int, int]:
    """The colour of a cell, as `Board.cells` numbers them."""
    return COLOURS[(cell - 1) % len(COLOURS)] if cell else EMPTY


class Rendered:
    """What an environment draws itself; if it does not, what else can be drawn."""

    def __init__(self, env: GymnasiumEnvironment, size: int, otherwise: Scene) -> None:
        self._env, self._size, self._otherwise = env, size, otherwise
        self._renders = env.renders
        self.fps = (env.frames_per_second if self._renders else None) or otherwise.fps

    def draw(self, observation: Observation) -> Picture:
        """See `Scene.draw`."""
        if self._renders:
            try:
                picture = self._env.render()
            except DiscorlError as error:
                warnings.warn(f"{error}; its observations are drawn instead", stacklevel=2)
                picture = None
            if picture is not None:
                return _resized(picture, self._size)
            self._renders = False
        return self._otherwise.draw(observation)


class Images:
    """An observation that is an image: of several frames the newest, in grey or in colour."""

    fps = _MOTION_FPS

    def __init__(self, name: str, spec: ArraySpec, size: int) -> None:
        self._name, self._spec, self._size = name, spec, size

    def draw(self, observation: Observation) -> Picture:
        """See `Scene.draw`."""
        image = observation_leaves(observation)[self._name].cpu().numpy()
        if self._spec.stack > 1:
            image = image[-1]
        elif image.ndim == 3:
            image = image if channels_are_last(self._spec.shape) else np.moveaxis(image, 0, -1)
            image = image if image.shape[-1] == 3 else image[..., -1]
        if image.ndim == 2:
            image = np.stack([image] * 3, axis=-1)
        return _resized(image, self._size)


class _Drawn:
    """A game of ours whose numbers are places and angles."""

    fps = _MOTION_FPS

    def __init__(self, name: str, size: int) -> None:
        self._game = DrawnGame(name, size)

    def draw(self, observation: Observation) -> Picture:
        """See `Scene.draw`."""
        assert isinstance(observation, torch.Tensor)
        picture: Picture = self._game.draw(observation.cpu())
        return picture


class Bars:
    """The numbers of an observation as bars, on the scale of the largest seen so far."""

    fps = _MOTION_FPS

    def __init__(self, size: int) -> None:
        self._size, self._largest, self._signed = size, 1e-6, False

    def draw(self, observation: Observation) -> Picture:
        """See `Scene.draw`."""
        numbers = _array(observation).ravel()[:_BARS].astype(np.float64)
        self._largest = max(self._largest, float(np.abs(numbers).max()))
        self._signed |= bool((numbers < 0).any())
        width, height = int(self._size * 4 / 3), self._size
        image = Image.new("RGB", (width, height), EMPTY)
        draw = ImageDraw.Draw(image)
        room = height - 16
        zero = height // 2 if self._signed else height - 8
        scale = (room / 2 if self._signed else room) / self._largest
        slot = (width - 16) / len(numbers)
        for place, number in enumerate(numbers):
            left, top = 8 + place * slot, zero - number * scale
            corners = (left, min(zero, top), left + max(slot * 0.8, 1), max(zero, top))
            draw.rectangle(corners, fill=COLOURS[int(number < 0)])
        draw.line((4, zero, width - 4, zero), fill=COLOURS[8])
        return np.array(image)


def _array(observation: Observation) -> npt.NDArray[Any]:
    """One array of everything that is seen."""
    leaves = [leaf.cpu().numpy() for leaf in observation_leaves(observation).values()]
    return leaves[0] if len(leaves) == 1 else np.concatenate([leaf.ravel() for leaf in leaves])


def _resized(picture: Picture, size: int) -> Picture:
    """Larger by a whole factor, so that pixels stay crisp; or smaller, smoothly."""
    rows, columns = picture.shape[:2]
    factor = min(size // rows, 2 * size // columns)
    if factor >= 1:
        return picture.repeat(factor, axis=0).repeat(factor, axis=1)
    shrunk = min(size / rows, 2 * size / columns)
    shape = max(round(columns * shrunk), 1), max(round(rows * shrunk), 1)
    return np.array(Image.fromarray(picture).resize(shape, Image.Resampling.LANCZOS))
