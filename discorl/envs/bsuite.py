"""bsuite: small experiments, each for one capability of an agent (Osband et al., 2020)."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from discorl.envs.outcomes import OUTCOME
from discorl.errors import UnknownNameError

PREFIX = "bsuite/"
_Array = npt.NDArray[Any]


class BsuiteExperiment(gymnasium.Env[Any, Any]):
    """One setting of an experiment, such as `catch/0`, which fixes its own random numbers."""

    def __init__(self, bsuite_id: str) -> None:
        self._bsuite = importlib.import_module("bsuite")
        self._id = bsuite_id
        self._env = self._load()
        shape = self._env.observation_spec().shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(int(self._env.action_spec().num_values))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Array, dict[str, Any]]:
        """Begin an episode; with a seed, in an experiment of its own."""
        super().reset(seed=seed)
        if seed is not None:
            self._env = self._load()
            _reseed(self._env, np.random.RandomState(seed % 2**32))
        return self._read(self._env.reset()), {}

    def step(self, action: Any) -> tuple[_Array, float, bool, bool, dict[str, Any]]:
        """Act."""
        step = self._env.step(int(action))
        over = bool(step.last())
        cut = over and bool(step.discount)
        info = self._told() if over else {}
        return self._read(step), float(step.reward or 0), over and not cut, cut, info

    def _load(self) -> Any:
        self._regret = 0.0
        with redirect_stdout(io.StringIO()):  # It prints its name each time.
            return self._bsuite.load_from_id(self._id)

    def _told(self) -> dict[str, Any]:
        """The episode's regret, in experiments that count it."""
        counted: dict[str, Any] = getattr(self._env, "bsuite_info", dict)()
        if "total_regret" not in counted:
            return {}
        before, self._regret = self._regret, float(counted["total_regret"])
        return {OUTCOME: {"regret": self._regret - before}}

    def _read(self, step: Any) -> _Array:
        return np.asarray(step.observation, dtype=np.float32)


def _reseed(env: Any, random: np.random.RandomState) -> None:
    """Give every part of an experiment other random numbers than those that its setting fixes."""
    while env is not None:
        if isinstance(getattr(env, "_rng", None), np.random.RandomState):
            env._rng = np.random.RandomState(random.randint(2**31 - 1))
        env = vars(env).get("_env")


def find_bsuite(spec: str, num_envs: int) -> Callable[[], Any]:
    """What makes `bsuite/catch/0` and the others; `bsuite/catch` is its first setting."""
    sweep = importlib.import_module("bsuite.sweep")
    name = spec.removeprefix(PREFIX)
    bsuite_id = name if "/" in name else f"{name}/0"
    if bsuite_id not in sweep.SWEEP:
        raise UnknownNameError("environment", spec, [PREFIX + i for i in sweep.SWEEP])
    return partial(BsuiteExperiment, bsuite_id)
