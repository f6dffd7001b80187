"""Gymnasium's spaces as plain JSON, so that an agent's file can say what it reads and does."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from discorl.envs.kinds import Frames, Kinds
from discorl.errors import DiscorlError

_UNREAD = "unread"
_WHOLE = "biu"
"""Kinds of numbers without fractions."""


def space_to_json(space: Space[Any]) -> dict[str, Any]:
    """Plain values that `space_from_json` reads.

    A subclass of somebody else's is written as the space of Gymnasium's that it is: what agents
    read and do does not depend on the rest. Raises DiscorlError for keys that JSON cannot keep.
    """
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": _parts_to_json(space)}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {"kind": "MultiDiscrete", "nvec": nvec, "start": start}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, Kinds):
        return {"kind": "Kinds", "number": space.number, "shape": list(space.shape)}
    if isinstance(space, Frames):
        return {"kind": "Frames", "shape": list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Text):
        return {"kind": "Text", "max_length": int(space.max_length)}
    return {"kind": _UNREAD}  # Agents do not read it, so it does not matter what it is.


def space_from_json(values: Any) -> Space[Any]:
    """The space that `space_to_json` was given; raises ValueError if there is none."""
    try:
        kind = values["kind"]
        if kind == "Dict":
            return spaces.Dict(_parts_from_json(values["spaces"]))
        if kind == "Tuple":
            return spaces.Tuple([space_from_json(part) for part in values["spaces"]])
        if kind == "Discrete":
            return spaces.Discrete(values["n"], start=values["start"])
        if kind == "MultiDiscrete":
            return spaces.MultiDiscrete(values["nvec"], start=values["start"])
        if kind == "MultiBinary":
            return spaces.MultiBinary(values["shape"])
        if kind == "Kinds":
            return Kinds(int(values["number"]), tuple(values["shape"]))
        if kind == "Frames":
            return Frames(tuple(values["shape"]))
        if kind == _UNREAD:
            return spaces.Sequence(spaces.Discrete(1))
        if kind == "Text":
            return spaces.Text(int(values["max_length"]))
        if kind == "Box":
            shape, dtype = tuple(values["shape"]), np.dtype(values["dtype"])
            low, high = (_bound_from_json(values[k], shape, dtype) for k in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
    except (KeyError, TypeError, ValueError, AssertionError, AttributeError) as error:
        raise ValueError(f"not a space: {error!r}") from error
    raise ValueError(f"not a space: {kind!r}")


def _parts_to_json(space: spaces.Dict) -> Any:
    """The entries of a dictionary; as pairs if there are numbers among their keys, which JSON would
    make texts."""
    parts = [(_plain_key(key), space_to_json(part)) for key, part in space.spaces.items()]
    texts = all(isinstance(key, str) for key, _ in parts)
    return dict(parts) if texts else [list(pair) for pair in parts]


def _parts_from_json(parts: Any) -> dict[Any, Space[Any]]:
    pairs = parts.items() if isinstance(parts, dict) else parts
    return {key: space_from_json(part) for key, part in pairs}


def _plain_key(key: Any) -> str | int:
    plain = int(key) if isinstance(key, Integral) else key
    if not isinstance(plain, str | int) or str(plain) != str(key):
        raise DiscorlError(
            f"observation space: the key {key!r} of a dictionary is neither a text nor a whole "
            "number, so no file could say what an agent reads"
        )
    return plain


def _bound_to_json(bound: Any) -> Any:
    """One number if all are equal, else all of them; Python's JSON keeps infinite ones, and whole
    ones exactly."""
    exact = bound if bound.dtype.kind in _WHOLE else bound.astype(float)
    first = exact.flat[0] if exact.size else exact.dtype.type(0)
    return first.item() if (exact == first).all() else exact.tolist()


def _bound_from_json(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An array [*shape]. Files once held whole numbers as floats, which round the largest up."""
    if dtype.kind in "iu":
        limits, flat = np.iinfo(dtype), np.ravel(np.array(value, dtype=object))
        whole = [min(max(int(number), limits.min), limits.max) for number in flat]
        array = np.array(whole, dtype).reshape(np.shape(value))
    else:
        array = np.array(value, dtype=np.float64).astype(dtype)
    return np.broadcast_to(array, shape)
