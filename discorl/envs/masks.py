"""Legal actions: environments that tell them beside the observation tell them in it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from discorl.envs.spaces import ActionWriter
from discorl.errors import DiscorlError
from discorl.observations import ACTION_MASK

_METHOD = "action_masks"
"""How environments for sb3-contrib tell them."""

_Array = npt.NDArray[Any]


class LegalActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations have an entry `action_mask`: ones and zeros [A].

    It is read from a method `action_masks()`, or else from `info["action_mask"]`. An action with
    several parts is legal if all its parts are: for those the mask tells the values of the first
    part, then of the second, and so on. An observation that is no dictionary becomes the entry
    `observation`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], discretize_actions: int = 0) -> None:
        super().__init__(env)
        self._method = env.get_wrapper_attr(_METHOD) if tells_by_method(env) else None
        self._count = ActionWriter(env.action_space, discretize_actions).num_actions
        self._parts = _part_sizes(env.action_space) or [self._count]
        self._plain = not isinstance(env.observation_space, spaces.Dict)
        shown = (
            {"observation": env.observation_space}
            if self._plain
            else dict(env.observation_space.spaces)  # type: ignore[attr-defined]
        )
        self.observation_space = spaces.Dict(
            {**shown, ACTION_MASK: spaces.MultiBinary(self._count)}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = super().reset(seed=seed, options=options)
        return self._with_mask(observation, self._mask(info)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        observation, reward, terminated, truncated, info = super().step(action)
        mask = self._mask(info, over=bool(terminated or truncated))
        return self._with_mask(observation, mask), reward, terminated, truncated, info

    def _with_mask(self, observation: Any, mask: _Array) -> dict[str, Any]:
        shown = {"observation": observation} if self._plain else dict(observation)
        return {**shown, ACTION_MASK: mask}

    def _mask(self, info: dict[str, Any], over: bool = False) -> _Array:
        """[A] ones and zeros; where an episode is over, an environment may tell nothing."""
        given = info.get(ACTION_MASK) if self._method is None else self._method()
        if given is None:
            if over:
                return np.ones(self._count, dtype=np.int8)
            raise DiscorlError(
                "--mask-actions: it does not tell which actions are legal; put a mask into "
                'info["action_mask"], or give it a method action_masks()'
            )
        legal = np.asarray(given).ravel() > 0
        if len(legal) != sum(self._parts):
            raise DiscorlError(
                f"--mask-actions: expected a mask of {sum(self._parts)}, got {len(legal)}"
            )
        return _every_combination(legal, self._parts).astype(np.int8)


def tells_by_method(env: gymnasium.Env[Any, Any] | None) -> bool:
    """Whether a single environment has a method that tells legal actions."""
    return isinstance(env, gymnasium.Env) and env.has_wrapper_attr(_METHOD)


def _part_sizes(space: gymnasium.Space[Any]) -> list[int]:
    """How many values each part of an action has; none, if it has but one part."""
    if isinstance(space, spaces.MultiDiscrete):
        return [int(count) for count in np.ravel(space.nvec)]
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    return []


def _every_combination(legal: _Array, parts: list[int]) -> _Array:
    """[A] booleans, the last part changing fastest, from those of the parts one after another."""
    combined = np.ones(1, dtype=np.bool_)
    for part in np.split(legal, np.cumsum(parts)[:-1]):
        combined = (combined[:, None] & part).ravel()
    return combined


def with_masks(env: Any, discretize_actions: int = 0) -> Any:
    """An environment with its legal actions in the observation, if they are not there already."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        if _shows_masks(env.single_observation_space):
            return env
        raise DiscorlError(
            "--mask-actions: a vector environment must show its masks itself, as the entry "
            "'action_mask' of a dictionary observation"
        )
    if not isinstance(env, gymnasium.Env):
        return env  # Reported by whoever makes copies of it.
    if _shows_masks(env.observation_space):
        return env
    return LegalActions(env, discretize_actions)


def _shows_masks(space: gymnasium.Space[Any]) -> bool:
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces
