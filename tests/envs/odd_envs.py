"""Environments with odd spaces, which are played with random observations."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 5


class Odd(gymnasium.Env):
    """It refuses actions that its space does not hold."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.show(), self.info()

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is no action"
        self.time += 1
        return self.show(), 1.0, self.time == STEPS, False, self.info()

    def show(self):
        return self.observation_space.sample()

    def info(self):
        return {}


class Nested(Odd):
    observation_space = spaces.Dict(
        {
            "a": spaces.Dict(
                {
                    "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,)), "d": spaces.Discrete(4)}),
                    "t": spaces.Text(8),
                }
            ),
            "e": spaces.Tuple(
                (
                    spaces.MultiBinary(3),
                    spaces.Dict({"x.y": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
                )
            ),
        }
    )


class Letters(Odd):
    observation_space = spaces.Text(30)


class Masked(Odd):
    observation_space = spaces.Dict(
        {"observation": Odd.observation_space, "action_mask": spaces.MultiBinary(3)}
    )

    def show(self):
        shown = super().show()
        shown["action_mask"][self.time % 3] = 1
        self.mask = shown["action_mask"]
        return shown

    def step(self, action):
        assert self.mask[action], f"{action} is not legal"
        return super().step(action)


class MaskedBeside(Odd):
    """One action is legal, and actions begin at 5."""

    action_space = spaces.Discrete(3, start=5)

    def info(self):
        self.mask = np.eye(3, dtype=np.int8)[self.time % 3]
        return {"action_mask": self.mask}

    def step(self, action):
        assert self.mask[action - 5], f"{action} is not legal"
        return super().step(action)


class Shifted(Odd):
    observation_space = spaces.Discrete(5, start=3)
    action_space = spaces.Discrete(4, start=-1)


class Switches(Odd):
    observation_space = spaces.MultiBinary([2, 3])
    action_space = spaces.MultiBinary(3)


class Dials(Odd):
    observation_space = spaces.MultiDiscrete([[2, 3], [4, 5]])
    action_space = spaces.MultiDiscrete([2, 3], start=[1, -1])


class Wide(Odd):
    """Numbers of very different sizes."""

    observation_space = spaces.Tuple(
        (spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Text(4))
    )

    def show(self):
        return (1, np.array([1e12, -1e-12]), "ab")


class Beside(Odd):
    """Entries that cannot be read, and one without numbers, beside one that can."""

    observation_space = spaces.Dict(
        {
            "steps": spaces.Sequence(spaces.Discrete(3)),
            "nothing": spaces.Box(0, 1, (0, 3)),
            "one": spaces.Box(0, 1, ()),
        }
    )


class Integers(Odd):
    observation_space = spaces.Dict(
        {
            "huge": spaces.Box(0, 2**62, (2,), np.int64),
            "small": spaces.Box(-5, 5, (2,), np.int8),
            "flags": spaces.Box(0, 1, (2,), np.bool_),
            "grey": spaces.Box(0, 255, (40, 40), np.uint8),
        }
    )


class OwnBox(spaces.Box):
    pass


class OwnDiscrete(spaces.Discrete):
    pass


class OwnDict(spaces.Dict):
    pass


class OwnSpaces(Odd):
    """Subclasses of Gymnasium's spaces."""

    observation_space = OwnDict({"box": OwnBox(-1, 1, (3,)), "number": OwnDiscrete(3)})
    action_space = OwnDiscrete(3)


class Numbered(Odd):
    """Numbers as keys."""

    observation_space = spaces.Dict(
        {0: spaces.Box(-1, 1, (2,)), np.int64(1): spaces.Dict({2: spaces.Discrete(3)})}
    )


class Unbounded(Odd):
    """Any whole number."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.int64)

    def show(self):
        return np.arange(3)


ALL = (
    Nested,
    Letters,
    Masked,
    MaskedBeside,
    Shifted,
    Switches,
    Dials,
    Wide,
    Beside,
    Integers,
    OwnSpaces,
    Numbered,
    Unbounded,
)
