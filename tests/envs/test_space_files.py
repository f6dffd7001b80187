"""Spaces as plain JSON, and back."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import discorl
from discorl.envs.kinds import Frames, Kinds
from discorl.envs.space_files import space_from_json, space_to_json
from discorl.errors import DiscorlError


def again(space):
    return space_from_json(json.loads(json.dumps(space_to_json(space))))


def limits(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(*limits(np.int64), (2,), np.int64),
        spaces.Box(*limits(np.uint64), (2,), np.uint64),
        spaces.Box(np.array([-(2**63), 2**62 + 1]), np.array([0, 2**63 - 1]), dtype=np.int64),
        spaces.Box(0, 1, (2, 2), np.bool_),
        spaces.Box(np.array([-np.inf, 0.1]), np.array([1, np.inf]), dtype=np.float64),
        spaces.Box(-0.1, 0.1, (), np.float16),
        spaces.Dict({1: spaces.Discrete(2), 0: spaces.Dict({"a": spaces.Discrete(3)})}),
        spaces.Dict({"1": spaces.Discrete(2), 2: spaces.Discrete(3)}),
        Kinds(5, (4,)),
        Frames((4, 8, 8, 3)),
    ],
    ids=str,
)
def test_spaces_stay_what_they_are(space):
    assert again(space) == space
    assert type(again(space)) is type(space)


@pytest.mark.parametrize("base", [Kinds, Frames, spaces.Box, spaces.Discrete, spaces.MultiBinary])
def test_a_subclass_is_read_as_what_it_is_a_subclass_of(base):
    own = type("Own", (base,), {})
    arguments = {
        Kinds: (5, (4,)),
        Frames: ((4, 8, 8, 3),),
        spaces.Box: (-1, 1, (2,)),
        spaces.Discrete: (3,),
        spaces.MultiBinary: (3,),
    }[base]
    assert type(again(own(*arguments))) is base
    assert space_to_json(own(*arguments)) == space_to_json(base(*arguments))


def test_whole_bounds_that_were_written_as_floats():
    written = {"kind": "Box", "shape": [2], "dtype": "int64", "low": -(2.0**63), "high": 2.0**63}
    assert space_from_json(written) == spaces.Box(*limits(np.int64), (2,), np.int64)


class Pairs(gymnasium.Env):
    observation_space = spaces.Dict({(0, 1): spaces.Discrete(2)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {(0, 1): 0}, {}


def test_keys_that_no_file_can_keep_are_refused_before_training(tmp_path):
    with pytest.raises(DiscorlError, match=r"key \(0, 1\) of a dictionary is neither"):
        discorl.train(Pairs, "actor_critic", tmp_path / "run", steps=3)
    assert not (tmp_path / "run").exists()
