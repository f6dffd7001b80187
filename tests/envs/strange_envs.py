"""Small Gymnasium environments for tests: one that tells where it is, and some that misbehave."""

from __future__ import annotations

import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

TERMINATED, TRUNCATED, BOTH = range(3)


def ending(tag: int, episode: int) -> tuple[int, int]:
    """The length of an episode, and how it ends."""
    rng = np.random.default_rng([tag, episode])
    return int(rng.integers(1, 6)), int(rng.integers(3))


def reward_of(episode: int, step: int, action: int) -> float:
    return episode * 64 + step + action / 8


class Diary(gymnasium.Env):
    """Shows the seed it was given, the number of its episode and the number of its step."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.tag, self.episode, self.time = 0, -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.tag, self.episode = seed, -1
        self.episode, self.time = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        length, kind = ending(self.tag, self.episode)
        assert self.time <= length, "a step after the end"
        done = self.time == length
        reward = reward_of(self.episode, self.time, int(action))
        terminated, truncated = done and kind != TRUNCATED, done and kind != TERMINATED
        return self.observe(), reward, terminated, truncated, {}

    def observe(self):
        return np.array([self.tag, self.episode, self.time], dtype=np.float32)


class DictDiary(Diary):
    """The same in parts of several kinds."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "pair": spaces.Tuple((spaces.Discrete(8), spaces.MultiBinary(2))),
        }
    )

    def observe(self):
        return {
            "place": super().observe().astype(np.float64),
            "pair": (self.time, np.array([self.time % 2, 1], dtype=np.int8)),
        }


class Strange(gymnasium.Env):
    """Endless; at step `at` something goes wrong."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)

    def __init__(self, trouble=None, at=3):
        self.action_space = spaces.Discrete(2)
        self.trouble, self.at, self.time = trouble, at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.time += 1
        observation, reward = np.zeros(4, np.float32), 0.0
        if self.time == self.at:
            if self.trouble == "raise":
                raise RuntimeError("the simulator fell over")
            if self.trouble == "hang":
                time.sleep(600)
            if self.trouble == "action space":
                self.action_space = spaces.Discrete(3)
            if self.trouble == "action space in place":
                self.action_space.n = np.int64(3)
            if self.trouble == "reward":
                reward = np.nan
            observation = self.wrong(observation)
        return observation, reward, False, False, {}

    def wrong(self, observation):
        if self.trouble in ("nan", "inf"):
            observation[2] = float(self.trouble)
        if self.trouble == "shape":
            return observation[:1]
        if self.trouble == "dtype":
            return observation.astype(np.complex64)
        if self.trouble == "ragged":
            return [0.0, [1.0, 2.0]]
        return observation


class Shy(Strange):
    """Fails when made."""

    def __init__(self):
        raise RuntimeError("no display")


class Sequences(Strange):
    observation_space = spaces.Sequence(spaces.Discrete(5))


class Twins(gymnasium.Env):
    """Two arrays, one of which becomes NaN."""

    observation_space = spaces.Dict(
        {"good": spaces.Box(-1, 1, (2,)), "bad": spaces.Dict({"x": spaces.Box(-1, 1, (2,))})}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observe(0), {}

    def step(self, action):
        return self.observe(np.nan), 0.0, False, False, {}

    def observe(self, value):
        return {
            "good": np.zeros(2, np.float32),
            "bad": {"x": np.full(2, value, dtype=np.float32)},
        }


def two_diaries():
    return SyncVectorEnv([Diary] * 2)


def not_an_environment():
    return 7


_ONLY = Diary()


def always_the_same():
    return _ONLY


number = 7
