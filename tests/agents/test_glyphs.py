"""Bodies for names of things, texts and stacks of images, alone and in dictionaries."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import discorl
from discorl.agents.bodies import make_body
from discorl.agents.config import NetworkConfig
from discorl.agents.glyphs import BagTorso, MapTorso
from discorl.envs.checker import check_environment
from discorl.envs.kinds import Frames, Kinds, StackedImages, TextAsBytes
from discorl.envs.space_files import space_from_json, space_to_json
from discorl.envs.spaces import ObservationReader
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec

SMALL = NetworkConfig(torso=(8,))
RULE = "actor_critic:num_bins=5,max_abs_value=2"
TINY = {"torso": (8,), "num_envs": 2, "rollout_length": 5, "batch_size": 2, "eval_episodes": 2}


def body(spec):
    made = make_body(spec, SMALL)
    made.init_(torch.Generator().manual_seed(0))
    return made


@pytest.mark.parametrize("kinds", [256, 20])  # Looked up one by one, and counted.
def test_a_bag_knows_no_order_and_no_padding(kinds):
    bag = body(ArraySpec((5,), torch.uint8, kinds=kinds))
    assert isinstance(bag, BagTorso)
    texts = torch.tensor([[7, 9, 0, 0, 0], [9, 7, 0, 0, 0], [7, 7, 9, 0, 0], [0, 0, 0, 0, 0]])
    features = bag(texts.to(torch.uint8).reshape(2, 2, 5)).reshape(4, -1)
    torch.testing.assert_close(features[0], features[1])
    assert not torch.allclose(features[0], features[2])
    assert features[3].eq(0).all()
    expected = (bag.vectors.weight[7] + bag.vectors.weight[9]) / 2
    torch.testing.assert_close(features[0], expected)
    # Gradients reach the vectors of what is there, and no others.
    (gradient,) = torch.autograd.grad(features[2].sum(), bag.vectors.weight)
    expected = torch.zeros(kinds, 8)
    expected[7], expected[9] = 2 / 3, 1 / 3
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("shape", [(21, 79), (9, 9), (1, 1)])
def test_maps_tell_kinds_apart(shape):
    torso = body(ArraySpec(shape, torch.int16, kinds=5977))
    assert isinstance(torso, MapTorso)
    maps = torch.zeros(3, 2, *shape, dtype=torch.int16)
    maps[1, 0, 0, 0] = 5976
    features = torso(maps)
    assert features.shape == (3, 2, 8)
    torch.testing.assert_close(features[0], features[2])
    assert not torch.allclose(features[0, 0], features[1, 0])


def test_a_stack_is_read_like_its_channels_side_by_side():
    stack = ArraySpec((3, 12, 10, 2), torch.uint8, 1 / 255, stack=3)
    flat = ArraySpec((12, 10, 6), torch.uint8, 1 / 255)
    config = NetworkConfig(torso=(8,), body="conv")
    one, other = make_body(stack, config), make_body(flat, config)
    other.load_state_dict(one.state_dict())
    images = torch.randint(256, (4, 5, 3, 12, 10, 2), dtype=torch.uint8)
    side_by_side = images.permute(0, 1, 3, 4, 2, 5).reshape(4, 5, 12, 10, 6)
    torch.testing.assert_close(one(images), other(side_by_side))


def test_other_kinds_of_kinds_are_refused():
    with pytest.raises(DiscorlError, match="a list or a map"):
        body(ArraySpec((2, 2, 2, 2), torch.int16, kinds=300))


def test_spaces_survive_files():
    space = spaces.Dict(
        {"map": Kinds(300, (2, 3)), "text": Kinds(256, (4,)), "f": Frames((2, 4, 4, 1))}
    )
    again = space_from_json(space_to_json(space))
    assert ObservationReader(again).spec == ObservationReader(space).spec


@pytest.mark.parametrize(("number", "dtype"), [(5, np.uint8), (256, np.uint16), (300, np.int16)])
def test_kinds_that_there_are_not_are_refused(number, dtype):
    reader = ObservationReader(Kinds(number, (2,)))
    assert reader.read(np.array([[0, number - 1]], dtype)).tolist() == [[0, number - 1]]
    with pytest.raises(DiscorlError, match=rf"{number} is not in 0\.\.{number - 1}"):
        reader.read(np.array([[0, number]], dtype))


class Outside(gymnasium.Env):
    """It shows a kind that there is not."""

    observation_space = Kinds(5, (4,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.array([1, 2, 9, 0], np.uint8), {}


def test_an_environment_that_shows_other_kinds_is_refused(tmp_path):
    problem = check_environment(Outside)[-1]
    assert problem.level == "problem"
    assert "observation: 9 is not in 0..4 at step 0" in problem.text
    with pytest.raises(DiscorlError, match=r"9 is not in 0\.\.4"):
        discorl.train(Outside, "actor_critic", tmp_path / "run", steps=1)


class Dungeon(gymnasium.Env):
    """An image, a map, numbers and a text, some of them nested."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (12, 12, 3), np.uint8),
            "map": Kinds(400, (6, 20)),
            "stats": spaces.Dict(
                {"hp": spaces.Box(0, 9, (1,)), "role": spaces.Discrete(3, start=2)}
            ),
            "note": spaces.Text(20),
        }
    )
    action_space = spaces.Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        assert action in (1, 2, 3)
        self.time += 1
        outcome = {"outcome": {"won": float(self.time == 6)}} if self.time == 6 else {}
        return self.observe(), 1.0, self.time == 6, False, outcome

    def observe(self):
        draw = self.np_random
        return {
            "image": draw.integers(0, 256, (12, 12, 3), dtype=np.uint8),
            "map": draw.integers(0, 400, (6, 20)).astype(np.int16),
            "stats": {"hp": draw.random(1, dtype=np.float32), "role": int(draw.integers(2, 5))},
            "note": "north" if self.time % 2 else "south",
        }


class Film(Dungeon):
    """Images alone, each one another."""

    observation_space = Dungeon.observation_space["image"]

    def observe(self):
        return super().observe()["image"]


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_dictionaries_of_everything_are_learned_from(memory, tmp_path):
    settings = TINY | {"memory": memory, "memory_size": 8, "normalize_observations": True}
    run = discorl.train(lambda: TextAsBytes(Dungeon()), RULE, tmp_path / "run", steps=8, **settings)
    assert run["updates"] > 0
    assert run["outcomes"] == {"training": {"won": 1.0}, "evaluation": {"won": 1.0}}
    run.agent.save(tmp_path / "agent.safetensors")
    agent = discorl.load_agent(tmp_path / "agent.safetensors")
    score = discorl.evaluate(agent, lambda: TextAsBytes(Dungeon()), 3)
    assert score.mean_return == 6
    assert score.outcomes == {"won": 1.0}


def test_policies_that_read_everything_are_exported(tmp_path):
    run = discorl.train(lambda: TextAsBytes(Dungeon()), RULE, tmp_path / "run", steps=2, **TINY)
    exported = discorl.export_policy(run.agent, tmp_path / "policy.pt2")
    assert exported.largest_difference <= 1e-5


def test_stacks_of_images_are_kept_once(tmp_path):
    run = discorl.train(lambda: StackedImages(Film(), 3), RULE, tmp_path / "run", steps=8, **TINY)
    assert run["updates"] > 0
    env = StackedImages(Film(), 3)
    first, _ = env.reset(seed=0)
    second = env.step(1)[0]
    assert first[:2].max() == 0
    np.testing.assert_array_equal(second[1], first[2])
