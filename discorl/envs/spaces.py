"""Gymnasium's spaces: observations as tensors, discrete actions as an environment takes them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from torch import Tensor

from discorl.envs.kinds import BYTES, Frames, Kinds, text_bytes
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec, Observation, ObservationSpec

MAX_ACTIONS = 1024
"""The largest number of combinations of an action with several parts."""

_Array = npt.NDArray[Any]
_Path = tuple[str | int, ...]
_ALL = slice(None)
_LONGEST = 256
"""Bytes that are read of a text."""
_PICTURE_SIDE = 16
"""Rows and columns from which a table of bytes is taken for a picture."""
_COLOURS = 4
"""Channels that a coloured image has at most."""
_READABLE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text)
"""What observations are made of."""


class ObservationReader:
    """Reads what a vector environment shows, B copies at once.

    Box: floats and wide integers as float32, bytes and booleans as uint8, pictures with their
    channels last. Discrete and
    MultiDiscrete: one-hot vectors in a row. MultiBinary: uint8. Text: its first bytes. Dict and
    Tuple: a dictionary of entries, with the names of nested ones joined by dots.

    Args:
      fresh: what is read is in new memory each time, and need not be copied.
    """

    def __init__(self, space: Space[Any], fresh: bool = False) -> None:
        self.space = space
        leaves = list(_leaves(space, ()))
        readable = [(path, leaf) for path, leaf in leaves if _is_readable(leaf)]
        if readable and len(readable) < len(leaves):
            left = [".".join(map(str, path)) for path, leaf in leaves if not _is_readable(leaf)]
            warnings.warn(
                f"observations: left out what cannot be read: {', '.join(left)}", stacklevel=2
            )
        self.entries = [_make_entry(path, leaf, fresh) for path, leaf in readable or leaves]
        """The arrays that it reads."""
        self._plain = not isinstance(space, spaces.Dict | spaces.Tuple)
        names = [entry.name for entry in self.entries]
        if not names or len(set(names)) < len(names):
            problem = "two entries have one name" if names else "it has no entries"
            raise DiscorlError(f"observation space {space}: {problem}")
        specs = {entry.name: entry.spec for entry in self.entries}
        self.spec: ObservationSpec = self.entries[0].spec if self._plain else specs

    def read(self, batched: Any, rows: _Array | slice = _ALL) -> Observation:
        """Observations from a vector environment, as tensors [B, ...] that nobody else changes.

        With `rows`, only those of some copies.
        """
        return self._collect(lambda entry: entry.array(batched)[rows])

    def read_each(self, observations: Sequence[Any]) -> Observation:
        """Observations of single environments, as tensors [len(observations), ...]."""
        return self._collect(
            lambda entry: np.stack([entry.array(each, batched=False) for each in observations])
        )

    def check(self, observation: Any) -> None:
        """Raise DiscorlError if a single observation is not of the declared shape and type."""
        for entry in self.entries:
            entry.array(observation, batched=False)

    def is_single(self, observation: Any) -> bool:
        """Whether it is the observation of a single environment, not of several."""
        try:
            self.check(observation)
        except DiscorlError:
            return False
        return True

    def _collect(self, get: Callable[[Entry], _Array]) -> Observation:
        tensors = {entry.name: entry.tensor(get(entry)) for entry in self.entries}
        return tensors[self.entries[0].name] if self._plain else tensors


@dataclass(frozen=True)
class Entry:
    """One array of an observation."""

    name: str
    path: _Path
    space: Space[Any]
    spec: ArraySpec
    encode: Callable[[_Array], _Array]
    """[N, *space.shape] -> [N, *spec.shape] of the spec's type, in new memory, unless what is read
    is so already: vector environments may reuse theirs."""

    @property
    def title(self) -> str:
        return f"observation entry '{self.name}'" if self.path else "observation"

    def array(self, observation: Any, batched: bool = True) -> _Array:
        """This entry as [B, *space.shape], or [*space.shape] of a single environment."""
        value = observation
        for key in self.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError) as error:
                raise DiscorlError(f"{self.title} is missing") from error
        try:
            array = np.asarray(value)
        except ValueError as error:  # A list whose parts differ in length.
            raise DiscorlError(f"{self.title}: {error}") from error
        shape, dtype = self.space.shape or (), self.space.dtype
        found = array.shape[1:] if batched else array.shape
        whole = array.ndim == len(shape) + batched and found == shape
        if isinstance(self.space, spaces.Text):
            if array.dtype == np.uint8 and array.shape[int(batched) :] == self.spec.shape:
                return array  # Read already: exported policies take bytes.
            fits, declared = array.dtype.kind == "U", "text"
        else:
            fits = array.dtype == dtype or _converts(array.dtype, dtype)
            declared = f"{dtype}{list(shape)}"
        if whole and fits:
            return array
        raise DiscorlError(
            f"{self.title}: its space says {declared}, got {array.dtype}{list(found)}"
        )

    def tensor(self, array: _Array) -> Tensor:
        """What agents read: [N, *spec.shape]."""
        try:
            encoded = self.encode(array)
        except ValueError as error:
            raise DiscorlError(f"{self.title}: {error}") from error
        if self.spec.dtype.is_floating_point and not np.isfinite(encoded).all():
            value = encoded[~np.isfinite(encoded)][0]
            raise DiscorlError(f"{self.title}: {value} among its values")
        return torch.from_numpy(encoded)


def _converts(found: np.dtype[Any], declared: Any) -> bool:
    """Whether numbers keep their values, up to rounding: no floats as integers."""
    return bool(np.can_cast(found, declared, "same_kind"))


def _leaves(space: Space[Any], path: _Path) -> Iterator[tuple[_Path, Space[Any]]]:
    if isinstance(space, spaces.Dict):
        parts: list[tuple[str | int, Space[Any]]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    else:
        yield path, space
        return
    for key, part in parts:
        yield from _leaves(part, (*path, key))


def _is_readable(space: Space[Any]) -> bool:
    """Whether it can be made numbers, and has any; graphs and sequences beside others are left
    out."""
    return isinstance(space, _READABLE) and 0 not in (space.shape or ())


def _make_entry(path: _Path, space: Space[Any], fresh: bool) -> Entry:
    name = ".".join(map(str, path)) or "observations"
    if 0 in (space.shape or ()):
        raise DiscorlError(f"observation space {space}: it holds no numbers")
    if isinstance(space, spaces.Box):
        return _box_entry(name, path, space, fresh)
    if isinstance(space, spaces.MultiBinary):
        spec = ArraySpec(space.shape or (1,), torch.uint8)
        return Entry(name, path, space, spec, _converter(spec, fresh))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts, starts = _counts(space)
        spec = ArraySpec((int(counts.sum()),))
        return Entry(name, path, space, spec, _one_hots(counts, starts))
    if isinstance(space, spaces.Text):
        length = min(space.max_length, _LONGEST)
        return Entry(
            name, path, space, ArraySpec((length,), torch.uint8, kinds=BYTES), _text(length)
        )
    raise DiscorlError(
        f"observation space {space}: {type(space).__name__} is not supported; use Box, Discrete, "
        "MultiBinary, MultiDiscrete, Text, Dict or Tuple"
    )


def _box_entry(name: str, path: _Path, space: spaces.Box, fresh: bool) -> Entry:
    shape = space.shape or (1,)
    if isinstance(space, Kinds):
        dtype = torch.uint8 if space.dtype == np.uint8 else torch.int16
        spec = ArraySpec(shape, dtype, kinds=space.number)
    elif isinstance(space, Frames):
        spec = ArraySpec(shape, torch.uint8, 1 / 255, stack=shape[0])
    elif space.dtype == np.uint8 and bool((space.high == 255).all()):
        return _picture_entry(name, path, space, fresh)
    elif space.dtype == np.uint8 or space.dtype == np.bool_:
        spec = ArraySpec(shape, torch.uint8)
    else:
        spec = ArraySpec(shape)
    return Entry(name, path, space, spec, _converter(spec, fresh))


def _picture_entry(name: str, path: _Path, space: spaces.Box, fresh: bool) -> Entry:
    """Bytes from 0 to 255. Gymnasium's wrappers make grey images [rows, columns], and stacks of
    coloured ones [S, rows, columns, C]: agents read them as [rows, columns, channels]."""
    shape = space.shape or (1,)
    if len(shape) == 2 and min(shape) >= _PICTURE_SIDE:
        shape = (*shape, 1)
    if len(shape) != 4 or shape[3] > _COLOURS or min(shape[1:3]) < _PICTURE_SIDE:
        spec = ArraySpec(shape, torch.uint8, 1 / 255)
        return Entry(name, path, space, spec, _converter(spec, fresh))
    number, rows, columns, colours = shape
    spec = ArraySpec((rows, columns, number * colours), torch.uint8, 1 / 255)
    convert = _converter(spec, fresh=True)
    return Entry(name, path, space, spec, lambda stack: convert(np.moveaxis(stack, 1, 3).copy()))


def _converter(spec: ArraySpec, fresh: bool) -> Callable[[_Array], _Array]:
    as_array = np.asarray if fresh else np.array

    def convert_bytes(array: _Array) -> _Array:
        return as_array(array, dtype=np.uint8).reshape(len(array), *spec.shape)

    def convert_kinds(array: _Array) -> _Array:
        outside = (array < 0) | (array >= spec.kinds)
        if outside.any():
            raise ValueError(f"{array[outside][0]} is not in 0..{spec.kinds - 1}")
        dtype = np.uint8 if spec.dtype == torch.uint8 else np.int16
        return as_array(array, dtype=dtype).reshape(len(array), *spec.shape)

    def convert_floats(array: _Array) -> _Array:
        with np.errstate(over="ignore"):  # Numbers too large become infinite, and are reported.
            return as_array(array, dtype=np.float32).reshape(len(array), *spec.shape)

    if spec.kinds:
        return convert_kinds
    return convert_bytes if spec.dtype == torch.uint8 else convert_floats


def _text(length: int) -> Callable[[_Array], _Array]:
    """[N] texts -> [N, length] bytes; bytes stay as they are."""

    def encode(array: _Array) -> _Array:
        if array.dtype == np.uint8:
            return array.copy()
        read = [text_bytes(text, length) for text in array.tolist()]
        return np.array(read, dtype=np.uint8).reshape(len(array), length)

    return encode


def one_hot_places(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[_Array, int]:
    """What to add to the parts [D] of a value to find their ones, and how many places there are."""
    counts, starts = _counts(space)
    return np.cumsum(counts) - counts - starts, int(counts.sum())


def _counts(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[_Array, _Array]:
    """How many values each part has, and its lowest one: [D] each."""
    counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return np.ravel(counts).astype(np.int64), np.ravel(space.start).astype(np.int64)


def _one_hots(counts: _Array, starts: _Array) -> Callable[[_Array], _Array]:
    """[N, ...] integers -> [N, sum of counts]."""
    offsets = np.cumsum(counts) - counts

    def encode(array: _Array) -> _Array:
        values = array.reshape(len(array), -1).astype(np.int64) - starts
        outside = (values < 0) | (values >= counts)
        if outside.any():
            row, part = np.argwhere(outside)[0]
            raise ValueError(
                f"{values[row, part] + starts[part]} is not in "
                f"{starts[part]}..{starts[part] + counts[part] - 1}"
            )
        encoded = np.zeros((len(array), int(counts.sum())), dtype=np.float32)
        np.put_along_axis(encoded, values + offsets, 1, axis=1)
        return encoded

    return encode


class ActionWriter:
    """Turns action numbers into what a vector environment takes.

    In spaces with several parts, every combination is an action. Box spaces are cut into a grid
    of `discretize` evenly spaced values in each dimension; on other spaces it has no effect.
    """

    def __init__(self, space: Space[Any], discretize: int = 0) -> None:
        if discretize < 0 or discretize == 1:
            raise DiscorlError(f"--discretize-actions: expected at least 2, got {discretize}")
        self._form = space_form(space)
        self._table = _table(space, _part_values(space, discretize))
        self.num_actions = len(self._table)

    @property
    def values(self) -> _Array:
        """What each action is to the environment: [A, *space.shape]."""
        return self._table

    def write(self, actions: Tensor) -> _Array:
        """Integers [B] -> [B, *space.shape]."""
        chosen: _Array = self._table[actions.cpu().numpy()]
        return chosen

    def fits(self, space: Space[Any]) -> bool:
        """Whether the space is still as it was."""
        return bool(space_form(space) == self._form)


def _part_values(space: Space[Any], discretize: int) -> list[_Array]:
    """The values that each part of an action can take."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        parts = zip(*_counts(space), strict=True)
        return [np.arange(start, start + count) for count, start in parts]
    if isinstance(space, spaces.MultiBinary):
        return [np.arange(2)] * math.prod(space.shape)
    if not isinstance(space, spaces.Box):
        raise DiscorlError(
            f"action space {space}: {type(space).__name__} is not supported; use Discrete, "
            "MultiDiscrete, MultiBinary or Box"
        )
    if not discretize:
        raise DiscorlError(
            f"action space {space}: actions must be discrete; give --discretize-actions K to "
            "choose among K values in each dimension"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise DiscorlError(f"action space {space}: without finite bounds it cannot be discretized")
    bounds = zip(space.low.ravel(), space.high.ravel(), strict=True)
    return [np.linspace(float(low), float(high), discretize) for low, high in bounds]


def _table(space: Space[Any], values: list[_Array]) -> _Array:
    """Every action there is: [A, *space.shape]."""
    counts = [len(part) for part in values]
    number = math.prod(counts)
    if number > MAX_ACTIONS and not isinstance(space, spaces.Discrete):
        raise DiscorlError(
            f"action space {space}: {number} combinations of actions, at most {MAX_ACTIONS} are "
            "supported"
        )
    table = np.empty((number, len(values)), dtype=space.dtype)
    indices = np.unravel_index(np.arange(number), counts) if counts else ()
    for column, (part, index) in enumerate(zip(values, indices, strict=True)):
        table[:, column] = part[index]
    return table.reshape(number, *(space.shape or ()))


def space_form(space: Space[Any]) -> Any:
    """What defines an action space; compared at every step, so it must be cheap."""
    if isinstance(space, spaces.Discrete):
        return "Discrete", int(space.n), int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return "MultiDiscrete", space.nvec.tobytes(), space.start.tobytes(), space.shape
    if isinstance(space, spaces.Box):
        return "Box", space.low.tobytes(), space.high.tobytes(), space.shape
    return type(space).__name__, space.shape
