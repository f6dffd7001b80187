"""What a Gymnasium vector environment tells of itself, and how its worker processes are ended."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeGuard

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

import discorl.envs
from discorl.envs.base import MAX_STEPS
from discorl.errors import DiscorlError

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
"""When new episodes begin: Gymnasium's own words."""
_PATIENCE = 2.0
"""Seconds a worker has to end when asked to, before it is killed."""
_LIMITS = ("max_episode_steps", "_max_episode_steps", "max_steps")
"""What environments that keep their own time limit may call it."""


def where_raised(error: BaseException) -> str:
    """The file and line of somebody else's code that an error came from, if there is any."""
    ours = tuple(str(Path(module.__file__ or "").parent) for module in (discorl.envs, gymnasium))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(ours)]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def first_of(vector_env: VectorEnv[Any, Any, Any]) -> Any:
    """The first copy, if it lives in this process; else the vector environment."""
    single = first_wrapped(vector_env)
    return vector_env if single is None else single.unwrapped


def first_wrapped(vector_env: VectorEnv[Any, Any, Any]) -> gymnasium.Env[Any, Any] | None:
    """The first copy with its wrappers, if it lives in this process."""
    copies = getattr(vector_env.unwrapped, "envs", None)
    return copies[0] if isinstance(copies, list | tuple) and copies else None


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


def step_limit(env: VectorEnv[Any, Any, Any] | gymnasium.Env[Any, Any]) -> int | None:
    """Steps by which episodes are over, if that is known: of one copy, or of the first of many."""
    copies = getattr(env.unwrapped, "envs", None) if isinstance(env, VectorEnv) else [env]
    declared = [env.spec, copies[0].spec if copies else None]
    limits = [spec.max_episode_steps for spec in declared if spec]
    limits += [_time_limit(copies[0])] if copies else []
    known = next((int(n) for n in limits if _is_limit(n)), None)
    return known or _guessed_limit(copies[0].unwrapped if copies else env)


def _is_limit(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and 1 <= value < np.inf


def _time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """That of Gymnasium's own wrapper, if it is around the environment."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None


def _guessed_limit(env: Any) -> int | None:
    """From what environments often call it. The name may mean something else, or the step after
    which an episode ends: so twice as many are allowed, and never few."""
    guesses = [getattr(env, name, None) for name in _LIMITS]
    return next((max(2 * int(n), MAX_STEPS) for n in guesses if _is_limit(n)), None)


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
