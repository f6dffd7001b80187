"""What a Gymnasium vector environment tells of itself, and how its worker processes are ended."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

import discorl.envs
from discorl.errors import DiscorlError

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
"""When new episodes begin: Gymnasium's own words."""
_PATIENCE = 2.0
"""Seconds a worker has to end when asked to, before it is killed."""
_LIMITS = ("max_episode_steps", "_max_episode_steps", "max_steps")
"""How environments that keep their own time limit call it."""


def where_raised(error: BaseException) -> str:
    """The file and line of somebody else's code that an error came from, if there is any."""
    ours = tuple(str(Path(module.__file__ or "").parent) for module in (discorl.envs, gymnasium))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(ours)]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def first_of(vector_env: VectorEnv[Any, Any, Any]) -> Any:
    """The first copy, if it lives in this process; else the vector environment."""
    single = getattr(vector_env.unwrapped, "envs", None)
    return single[0].unwrapped if single else vector_env


def action_meanings(vector_env: VectorEnv[Any, Any, Any]) -> tuple[str, ...] | None:
    """Action names, as Atari's environments give them, or from an enumeration, as MiniGrid's."""
    env = first_of(vector_env)
    named, listed = getattr(env, "get_action_meanings", None), getattr(env, "actions", None)
    if callable(named):
        return tuple(str(name).lower() for name in named())
    if isinstance(listed, type) and issubclass(listed, Enum):
        return tuple(str(member.name) for member in listed)
    if isinstance(listed, tuple) and listed and all(isinstance(a, Enum) for a in listed):
        return tuple(str(action.name).lower() for action in listed)
    return None


def step_limit(vector_env: VectorEnv[Any, Any, Any]) -> int | None:
    """After how many steps episodes are cut off, if that is known."""
    single = getattr(vector_env.unwrapped, "envs", None)
    specs = [vector_env.spec, single[0].spec if single else None]
    limits = [s.max_episode_steps for s in specs if s]
    limits += [getattr(first_of(vector_env), name, None) for name in _LIMITS]
    return next((int(n) for n in limits if isinstance(n, int | float) and 1 <= n < np.inf), None)


def autoreset_mode(vector_env: VectorEnv[Any, Any, Any]) -> str:
    """How new episodes begin.

    Gymnasium's own vectorisers reset in the next step if they do not say: they did so before there
    was a choice. Others must say, because a wrong guess would join episodes.
    """
    said = vector_env.metadata.get("autoreset_mode")
    mode = getattr(said, "value", said)
    if mode is None and isinstance(vector_env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return NEXT_STEP
    if mode not in (NEXT_STEP, SAME_STEP, DISABLED):
        raise DiscorlError(
            f"metadata['autoreset_mode'] is {said}; set it to a gymnasium.vector.AutoresetMode, "
            "to say when new episodes begin"
        )
    return str(mode)


def limit_waiting(vector_env: VectorEnv[Any, Any, Any], timeout: float) -> AsyncVectorEnv | None:
    """Wait for worker processes, if there are any, no longer than `timeout`.

    Set on the vector environment itself, so that it holds through any wrapper around it.
    """
    workers = vector_env.unwrapped
    if not isinstance(workers, AsyncVectorEnv):
        return None

    def limited(wait: Callable[..., Any]) -> Callable[..., Any]:
        return lambda seconds=timeout: wait(seconds)

    for name in ("reset_wait", "step_wait"):
        setattr(workers, name, limited(getattr(workers, name)))
    return workers


def end_workers(workers: AsyncVectorEnv) -> None:
    """End worker processes, whatever they are doing."""
    for process in workers.processes:
        process.terminate()
    for process in workers.processes:
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
    with contextlib.suppress(Exception):  # The first failure is the one to report.
        workers.close(terminate=True)
    workers.closed = True
