"""Environments in which some actions are not legal, and that refuse them."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

DOORS = 5
STEPS = 6


class Locks(gymnasium.Env):
    """Doors, of which some are locked at each step; how it tells which, subclasses say."""

    observation_space = spaces.Box(0, STEPS, (1,), np.float32)
    action_space = spaces.Discrete(DOORS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.tell()

    def step(self, action):
        assert self.mask[action], f"door {action} is locked"
        self.time += 1
        observation, info = self.tell()
        over = self.time == STEPS
        return observation, float(action == 0), over and self.ends, over and not self.ends, info

    def tell(self):
        self.mask = self.np_random.integers(0, 2, DOORS).astype(np.int8)
        self.mask[self.np_random.integers(DOORS)] = 1
        # Half of the episodes end; the others are cut off, and their values continue.
        self.ends = bool(self.np_random.integers(2)) if self.time == 0 else self.ends
        if self.time == STEPS and self.ends:
            self.mask[:] = 0
        return np.array([self.time], np.float32), {}


class InDictionary(Locks):
    """As in PettingZoo's classic games."""

    observation_space = spaces.Dict(
        {
            "observation": Locks.observation_space,
            "action_mask": spaces.Box(0, 1, (DOORS,), np.int8),
        }
    )

    def tell(self):
        observation, info = super().tell()
        return {"observation": observation, "action_mask": self.mask.copy()}, info


class Within(Locks):
    """The mask is an entry of an entry, as of one player among several."""

    observation_space = spaces.Dict({"player": InDictionary.observation_space})

    def tell(self):
        observation, info = super().tell()
        return {"player": {"observation": observation, "action_mask": self.mask.copy()}}, info


class InInfo(Locks):
    def tell(self):
        observation, info = super().tell()
        return observation, info | {"action_mask": self.mask.copy()}


class ByMethod(Locks):
    """As in sb3-contrib."""

    def action_masks(self):
        return self.mask.astype(bool)


class Pairs(Locks):
    """Two doors at a time; a mask for each part."""

    action_space = spaces.MultiDiscrete([2, 3])

    def step(self, action):
        assert self.mask[action[0]]
        assert self.mask[2 + action[1]]
        self.mask = np.ones(DOORS, np.int8)
        return super().step(int(action[0]))

    def tell(self):
        told = super().tell()
        self.mask[0], self.mask[2] = 1, 1
        return told

    def action_masks(self):
        return self.mask


class Silent(Locks):
    """Promises nothing."""


class Stuck(InDictionary):
    """All doors are locked at the third step."""

    def tell(self):
        observation, info = super().tell()
        if self.time == 3:
            observation["action_mask"][:] = 0
        return observation, info


class OddMask(Locks):
    """An entry of that name that is no mask."""

    observation_space = spaces.Dict({"action_mask": spaces.Box(0, 1, (DOORS + 1,), np.float32)})

    def tell(self):
        super().tell()
        self.mask[:] = 1
        return {"action_mask": np.zeros(DOORS + 1, np.float32)}, {}


def same_step():
    mode = AutoresetMode.SAME_STEP
    return SyncVectorEnv([InDictionary] * 2, autoreset_mode=mode)


def vector_of_secrets():
    """It tells legal actions only beside its observations."""
    return SyncVectorEnv([InInfo] * 2)
