"""Environments of a user's own that others would stumble over, through the public API."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import discorl
from discorl.envs import make_environment
from discorl.envs.base import EnvironmentConfig
from discorl.envs.sources import find_environment
from discorl.envs.spaces import ObservationReader
from discorl.envs.vector_envs import step_limit
from discorl.errors import DiscorlError
from discorl.training.presets import observation_kind

TINY = {
    "steps": 2,
    "torso": (4,),
    "num_envs": 2,
    "rollout_length": 6,
    "batch_size": 2,
    "replay_fraction": 0.0,
    "replay_ratio": 1,
    "eval_episodes": 1,
    "progress": False,
}


class Plain(gymnasium.Env):
    """Episodes of five steps, each of which gives a reward of one."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length = 5

    def __init__(self, worth=1.0):
        self.worth = worth

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), self.info()

    def step(self, action):
        self.time += 1
        over = self.time == self.length
        return np.zeros(2, np.float32), self.worth, over, False, self.info()

    def info(self):
        return {}


class Tripled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 3 * reward


def train(env, folder, **settings):
    return discorl.train(env, "actor_critic", folder, **{**TINY, **settings})


class Late(Plain):
    """Its reward comes with the step after its limit, as the name has it."""

    max_steps = 5

    def step(self, action):
        self.time += 1
        over = self.time > self.max_steps
        return np.zeros(2, np.float32), 10.0 * over, False, over, {}


def test_what_may_be_a_time_limit_does_not_cut_evaluations_short(tmp_path):
    run = train(Late, tmp_path / "a", steps=3)
    assert run["episode_return"] == run["eval_return_greedy"] == 10


class Endless(Plain):
    length = -1


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        (TimeLimit(Endless(), 3500), 3500),
        (Tripled(TimeLimit(Tripled(Endless()), 7)), 7),
        (gymnasium.make("CartPole-v1"), 500),
        (Late(), 3000),
        (Endless(), None),
    ],
)
def test_time_limits_are_found(env, limit):
    assert step_limit(env) == limit


def test_time_limits_are_known_where_copies_are_processes():
    env = make_environment("CartPole-v1", 2, config=EnvironmentConfig(env_workers=True))
    assert env.max_episode_steps == 500
    env.close()


INFOS = {
    "none": lambda random: {"winner": None if random.random() < 0.5 else 1},
    "ragged": lambda random: {"legal": np.arange(random.integers(1, 4))},
    "mixed": lambda random: {"word": "draw" if random.random() < 0.5 else 1},
    "nested": lambda random: {"a": {"b": 1} if random.random() < 0.5 else 2},
    "outcome": lambda random: {"outcome": {"winner": "white", "solved": True}},
}


@pytest.mark.parametrize("name", INFOS)
def test_infos_may_hold_anything(name, tmp_path):
    class Talking(Plain):
        def info(self):
            return INFOS[name](self.np_random)

    run = train(Talking, tmp_path / "a", steps=3)
    assert run["episode_return"] == 5
    if name == "outcome":
        assert run["outcomes"]["training"] == {"solved": 1.0}


def test_given_environments_heed_their_settings(tmp_path):
    # Given a class, with a wrapper and a keyword argument of its own
    own = {"env_wrappers": (f"{__name__}:Tripled",), "env_kwargs": ("worth=2.0",)}
    run = train(Plain, tmp_path / "a", steps=3, **own)
    # Then training, evaluation and whoever loads the run later see the same
    assert run["episode_return"] == run["eval_return_greedy"] == 30
    assert discorl.load_run(run.folder, env=Plain).evaluate(1).mean_return == 30
    # An object can be wrapped, but is made already,
    run = train(Plain(), tmp_path / "b", env_wrappers=own["env_wrappers"])
    assert run["eval_return_greedy"] == 15
    with pytest.raises(DiscorlError, match="env_kwargs: the environment is made already"):
        train(Plain(), tmp_path / "c", env_kwargs=own["env_kwargs"])
    # and many at once cannot be wrapped.
    config = EnvironmentConfig(env_wrappers=own["env_wrappers"])
    with pytest.raises(DiscorlError, match="env_wrappers: they go around single environments"):
        find_environment(gymnasium.make_vec("CartPole-v1", 2), config=config)


class OfItsWrapped(gymnasium.Wrapper):
    """A class whose space is a property."""

    def __init__(self):
        super().__init__(Plain())


def test_a_class_whose_space_is_known_to_its_objects_alone(tmp_path):
    assert train(OfItsWrapped, tmp_path / "a")["eval_return_greedy"] == 5


def test_a_function_that_returns_nothing(tmp_path):
    with pytest.raises(DiscorlError, match=r"expected a gymnasium\.Env or VectorEnv, got NoneType"):
        train(lambda: None, tmp_path / "a")


def test_one_simulator_for_all_copies_is_refused_inside_wrappers_too(tmp_path):
    shared = Plain()
    with pytest.raises(DiscorlError, match="must return a new environment at each call"):
        train(lambda: Tripled(shared), tmp_path / "a")


@pytest.mark.parametrize(
    ("shape", "read", "kind"),
    [
        ((84, 84), (84, 84, 1), "pixels"),  # As GrayscaleObservation makes them,
        ((4, 84, 84, 3), (84, 84, 12), "pixels"),  # and FrameStackObservation, of colours.
        ((20, 18), (20, 18, 1), "board"),
        ((10, 10), (10, 10), "vector"),
        ((4, 84, 84), (4, 84, 84), "pixels"),
        ((3, 4, 84, 84), (3, 4, 84, 84), "vector"),
    ],
)
def test_pictures_are_told_by_their_bytes(shape, read, kind):
    reader = ObservationReader(spaces.Box(0, 255, shape, np.uint8))
    assert reader.spec.shape == read
    assert observation_kind(reader.spec) == kind
    shown = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
    images = reader.read(shown).numpy()
    assert images.shape == (2, *read)
    if len(shape) == 4 and kind == "pixels":
        # Colours of one image after another.
        np.testing.assert_array_equal(images[1, :, :, 5], shown[1, 1, :, :, 2])
    else:
        np.testing.assert_array_equal(images.reshape(shown.shape), shown)


class Enormous(Plain):
    observation_space = spaces.Box(-1e38, 1e38, (2,), np.float32)

    def step(self, action):
        return self.np_random.normal(0, 1e37, 2).astype(np.float32), *super().step(action)[1:]


def test_observations_too_large_for_a_network_are_scaled_when_asked(tmp_path):
    with pytest.raises(DiscorlError, match="observations are large, --normalize-observations"):
        train(Enormous, tmp_path / "a", steps=4)
    assert train(Enormous, tmp_path / "b", steps=4, normalize_observations=True)["updates"] > 0
