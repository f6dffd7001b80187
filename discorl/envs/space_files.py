"""Gymnasium's spaces as plain JSON, so that an agent's file can say what it reads and does."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from discorl.envs.kinds import Frames, Kinds

_UNREAD = "unread"


def space_to_json(space: Space[Any]) -> dict[str, Any]:
    """Plain values that `space_from_json` reads."""
    kind = type(space).__name__
    if isinstance(space, spaces.Dict):
        return {"kind": kind, "spaces": {k: space_to_json(v) for k, v in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": kind, "spaces": [space_to_json(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": kind, "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": kind, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": kind, "shape": list(space.shape)}
    if isinstance(space, Kinds):
        return {"kind": kind, "number": space.number, "shape": list(space.shape)}
    if isinstance(space, Frames):
        return {"kind": kind, "shape": list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"kind": kind, "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Text):
        return {"kind": kind, "max_length": int(space.max_length)}
    return {"kind": _UNREAD}  # Agents do not read it, so it does not matter what it is.


def space_from_json(values: Any) -> Space[Any]:
    """The space that `space_to_json` was given; raises ValueError if there is none."""
    try:
        kind = values["kind"]
        if kind == "Dict":
            return spaces.Dict({k: space_from_json(v) for k, v in values["spaces"].items()})
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
            low, high = (
                np.broadcast_to(np.array(values[name], dtype=np.float64), shape).astype(dtype)
                for name in ("low", "high")
            )
            return spaces.Box(low, high, shape, dtype.type)
    except (KeyError, TypeError, ValueError, AssertionError, AttributeError) as error:
        raise ValueError(f"not a space: {error!r}") from error
    raise ValueError(f"not a space: {kind!r}")


def _bound(bound: Any) -> Any:
    """One number if all are equal, else all of them; Python's JSON keeps infinite ones."""
    first = bound.flat[0] if bound.size else 0
    return float(first) if (bound == first).all() else bound.astype(float).tolist()
