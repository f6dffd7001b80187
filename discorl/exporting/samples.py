"""Random observations, to compare an exported policy with its agent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from discorl.envs.spaces import Entry
from discorl.envs.wrappers import RunningMoments
from discorl.exporting.graph import Port

_Array = npt.NDArray[Any]
_WIDE = 1e3
"""Bounds beyond it are taken for none."""


def random_arrays(
    entries: list[Entry],
    ports: list[Port],
    moments: RunningMoments | None,
    batch: int,
    rng: np.random.Generator,
) -> list[_Array]:
    """An array [B, *shape] for each entry of an observation, in the type of its port."""
    arrays = []
    for entry, port in zip(entries, ports, strict=False):
        array = _draw(entry.space, (batch, *port.shape), rng)
        if moments is not None and entry.spec.dtype.is_floating_point:
            array = _as_seen(array, entry, moments, rng)
        arrays.append(array.astype(port.dtype))
    return arrays


def nested(entries: list[Entry], arrays: list[_Array]) -> Any:
    """The arrays as the environment's observation has them, nested as its space is."""
    if not entries[0].path:
        return arrays[0]
    whole: dict[str | int, Any] = {}
    for entry, array in zip(entries, arrays, strict=True):
        place = whole
        for key in entry.path[:-1]:
            place = place.setdefault(key, {})
        place[entry.path[-1]] = array
    return whole


def _draw(space: Any, shape: tuple[int, ...], rng: np.random.Generator) -> _Array:
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.start, space.start + space.n, shape)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.start, space.start + space.nvec, shape)
    if isinstance(space, spaces.MultiBinary) or space.dtype == np.bool_:
        return rng.integers(0, 2, shape)
    if isinstance(space, spaces.Text):
        return rng.integers(0, 256, shape)
    low = np.clip(space.low.astype(np.float64), -_WIDE, _WIDE)
    high = np.clip(space.high.astype(np.float64), -_WIDE, _WIDE)
    if np.issubdtype(space.dtype, np.integer):
        return rng.integers(low.astype(np.int64), high.astype(np.int64) + 1, shape)
    bounded = (low > -_WIDE) & (high < _WIDE)
    return np.where(bounded, rng.uniform(low, high, shape), rng.normal(size=shape))


def _as_seen(
    array: _Array, entry: Entry, moments: RunningMoments, rng: np.random.Generator
) -> _Array:
    """Half of the numbers as far from the mean as those that the agent has seen."""
    state = moments.state_dict()
    if f"{entry.name}/mean" not in state or array.shape[1:] != entry.spec.shape:
        return array
    mean, deviation = state[f"{entry.name}/mean"].numpy(), moments.deviation(entry.name).numpy()
    seen: _Array = mean + deviation * rng.normal(size=array.shape)
    return np.where(rng.random(array.shape) < 0.5, seen, array)
