"""Gymnasium's texts are read as bytes, wherever they are."""

import sys
from pathlib import Path

import named_envs
import numpy as np
import pytest
import torch
from gymnasium import spaces

import discorl
from discorl.envs import make_environment
from discorl.envs.base import EnvironmentConfig
from discorl.envs.space_files import space_from_json, space_to_json
from discorl.envs.spaces import ObservationReader
from discorl.training.start import resume_run

sys.path.append(str(Path(__file__).parent))  # Names of environments are imported from here.

TINY = {"torso": (8,), "num_envs": 2, "rollout_length": 5, "batch_size": 2, "eval_episodes": 4}


def test_texts_become_bytes():
    space = spaces.Dict({"said": spaces.Text(5), "n": spaces.Discrete(2)})
    reader = ObservationReader(space)
    assert reader.spec["said"].kinds == 256
    read = reader.read({"said": ("ab", "añbcd"), "n": np.array([0, 1])})
    assert read["said"].tolist()[0][:3] == [97, 98, 0]
    assert read["said"].tolist()[1][:4] == [97, 195, 177, 98]
    assert read["said"].dtype == torch.uint8
    assert reader.is_single({"said": "ab", "n": 1})
    assert not reader.is_single({"said": 3, "n": 1})
    assert reader.read_each([{"said": "", "n": 0}])["said"].sum() == 0


@pytest.mark.parametrize("workers", [False, True])
def test_texts_of_copies(workers):
    config = EnvironmentConfig(env_workers=workers)
    env = make_environment("named_envs:Told", 2, config=config)
    step = env.reset(0)
    assert set(step.observation) == {"said", "more.note", "state"}
    assert step.observation["said"].any(dim=1).all()
    env.step(torch.zeros(2, dtype=torch.int64))
    env.close()


@pytest.mark.parametrize("kind", ["Told", "Letter"])
def test_texts_are_trained_on(kind, tmp_path):
    run = discorl.train(f"named_envs:{kind}", "actor_critic", tmp_path / "run", steps=4, **TINY)
    assert resume_run(tmp_path / "run", steps=6)["steps"] == 6
    agent = discorl.load_agent(tmp_path / "run")
    env = getattr(named_envs, kind)()
    observation, _ = env.reset(seed=0)
    action, _ = agent.act(observation)
    assert env.action_space.contains(action)
    assert run["eval_episodes"] == 4
    discorl.export_policy(agent, tmp_path / "policy.pt2")


def test_texts_are_kept_in_files():
    for space in (spaces.Text(7), spaces.Dict({"a": spaces.Text(3)})):
        again = space_from_json(space_to_json(space))
        assert ObservationReader(again).spec == ObservationReader(space).spec
    # What an agent does not read stays unread.
    unread = spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2)), "b": spaces.Discrete(2)})
    with pytest.warns(UserWarning, match="left out what cannot be read: a"):
        assert set(ObservationReader(space_from_json(space_to_json(unread))).spec) == {"b"}
