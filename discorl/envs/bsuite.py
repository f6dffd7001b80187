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

from discorl.envs.bsuite_scores import BSUITE, GOOD_RETURN, plain_experiment
from discorl.envs.outcomes import OUTCOME
from discorl.errors import UnknownNameError

_COUNTED = {
    "total_regret": "regret",
    "total_perfect": "perfect",
    "total_bad_episodes": "bad",
    "raw_return": "raw_return",
}
"""What experiments count over all their episodes -> what it is called of one episode."""
_Array = npt.NDArray[Any]


class BsuiteExperiment(gymnasium.Env[Any, Any]):
    """One setting of an experiment, such as `catch/0`, which fixes its own random numbers.

    An episode's outcome has what the experiment counts, its return before noise and scaling, and
    whether it was a good one, where the score asks for that.
    """

    def __init__(self, bsuite_id: str) -> None:
        self._bsuite = importlib.import_module("bsuite")
        self._id = bsuite_id
        self._good = GOOD_RETURN.get(plain_experiment(bsuite_id.partition("/")[0]))
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
        self._return = 0.0
        return self._read(self._env.reset()), {}

    def step(self, action: Any) -> tuple[_Array, float, bool, bool, dict[str, Any]]:
        """Act."""
        step = self._env.step(int(action))
        self._return += float(step.reward or 0)
        over = bool(step.last())
        cut = over and bool(step.discount)
        info = self._told() if over else {}
        return self._read(step), float(step.reward or 0), over and not cut, cut, info

    def _load(self) -> Any:
        self._before: dict[str, float] = {}
        with redirect_stdout(io.StringIO()):  # It prints its name each time.
            return self._bsuite.load_from_id(self._id)

    def _told(self) -> dict[str, Any]:
        """What the episode added to what the experiment counts."""
        counted: dict[str, Any] = getattr(self._env, "bsuite_info", dict)()
        told = {"raw_return": self._return}
        for total, name in _COUNTED.items():
            if total in counted:
                value = float(counted[total])
                told[name] = value - self._before.get(total, 0.0)
                self._before[total] = value
        if self._good is not None:
            told["good"] = float(told["raw_return"] > self._good)
        return {OUTCOME: told}

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
    name = spec.removeprefix(BSUITE)
    bsuite_id = name if "/" in name else f"{name}/0"
    if bsuite_id not in sweep.SWEEP:
        raise UnknownNameError("environment", spec, [BSUITE + i for i in sweep.SWEEP])
    return partial(BsuiteExperiment, bsuite_id)
