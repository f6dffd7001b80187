"""A single environment that is checked at every step against what it declares."""

from __future__ import annotations

from numbers import Real
from typing import Any

import gymnasium
import numpy as np

from discorl.envs.outcomes import OUTCOME
from discorl.envs.spaces import ObservationReader, space_form
from discorl.errors import DiscorlError
from discorl.observations import ACTION_MASK


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A single environment that is checked against its spaces.

    For use inside vector environments: some of them convert what does not fit.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._reader = ObservationReader(env.observation_space)
        self._actions = space_form(env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        returned = super().reset(seed=seed, options=options)
        observation, info = _parts("reset", returned, "observation, info")
        self._reader.check(observation)
        return observation, _what_is_read(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        observation, reward, terminated, truncated, info = _parts(
            "step", super().step(action), "observation, reward, terminated, truncated, info"
        )
        self._reader.check(observation)
        if space_form(self.env.action_space) != self._actions:
            raise DiscorlError(f"its action space changed to {self.env.action_space}")
        return observation, _number(reward), terminated, truncated, _what_is_read(info)


def _parts(method: str, returned: Any, names: str) -> tuple[Any, ...]:
    """What a method returned, in as many parts as it should have, the last of them a dictionary."""
    if not isinstance(returned, tuple) or len(returned) != len(names.split(", ")):
        got = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
        raise DiscorlError(f"{method}() must return {names}, as Gymnasium has it, got {got}")
    if not isinstance(returned[-1], dict):
        kind = type(returned[-1]).__name__
        raise DiscorlError(f"{method}() must return {names}, of which info is a dict, got {kind}")
    return returned


def _number(reward: Any) -> Any:
    """A reward; an array that holds one number counts as that."""
    if isinstance(reward, float | int | np.generic):
        return reward
    try:
        return float(np.asarray(reward).item())
    except (TypeError, ValueError) as error:
        raise DiscorlError(f"reward: expected a number, got {reward!r}") from error


def _what_is_read(info: dict[str, Any]) -> dict[str, Any]:
    """What is read of an environment's infos. Vector environments stack all of them, and fail where
    they differ from copy to copy or from step to step."""
    kept = {ACTION_MASK: info[ACTION_MASK]} if ACTION_MASK in info else {}
    if isinstance(told := info.get(OUTCOME), dict):
        kept[OUTCOME] = {k: v for k, v in told.items() if isinstance(v, bool | Real | np.bool_)}
    return kept
