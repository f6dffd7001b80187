"""Environments that show names of things, texts and stacks of images."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

from discorl.envs.kinds import Frames, Kinds

STEPS = 4


class Named(gymnasium.Env):
    """Short episodes with random observations; what they came to is told at their end."""

    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.show(), {}

    def step(self, action):
        self.time += 1
        over = self.time == STEPS
        info = {"outcome": {"won": float(action == 0)}} if over else {}
        return self.show(), float(action == 0), over, False, info

    def show(self):
        return self.observation_space.sample()


class Labels(Named):
    """A map of kinds, a text in bytes, and numbers."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                "map": Kinds(300, (5, 7)),
                "said": Kinds(256, (6,)),
                "state": spaces.Box(-1, 1, (2,), np.float32),
            }
        )


class Words(Named):
    """A text and nothing else, in bytes."""

    def __init__(self):
        self.observation_space = Kinds(256, (6,))


class Stacks(Named):
    """Stacks of images."""

    def __init__(self):
        self.observation_space = Frames((2, 40, 40, 3))


class Told(Named):
    """Gymnasium's texts, in a dictionary and deeper."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                "said": spaces.Text(12),
                "more": spaces.Dict({"note": spaces.Text(3, min_length=0)}),
                "state": spaces.Box(-1, 1, (2,), np.float32),
            }
        )


class Letter(Named):
    """A text and nothing else."""

    def __init__(self):
        self.observation_space = spaces.Text(12)


class DottedKeys(Named):
    """Keys with dots, nested ones, and one that PyTorch calls something of its own."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                "x.y": spaces.Box(-1, 1, (2,), np.float32),
                "keys": spaces.Discrete(4),
                "a": spaces.Dict({"b": spaces.Box(-1, 1, (2,), np.float32)}),
            }
        )


class DottedKinds(Named):
    """The same beside names of things."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {
                "x.y": Kinds(5, (3,)),
                "a": spaces.Dict({"b": spaces.Box(-1, 1, (2,), np.float32)}),
            }
        )
