"""Tuned settings: which entry an environment gets, and what overrides it."""

import pytest

from discorl.comparison.config import CompareConfig
from discorl.comparison.zoo import zoo_entry, zoo_settings

STEPS = 500_000


@pytest.mark.parametrize(
    ("env", "ppo", "dqn"),
    [
        ("CartPole-v1", "CartPole", "CartPole"),
        ("Acrobot-v1", "Acrobot", "Acrobot"),
        ("MountainCar-v0", "MountainCar", "MountainCar"),
        ("LunarLander-v3", "LunarLander", "LunarLander"),
        ("gymnasium:LunarLander-v2", "LunarLander", "LunarLander"),
        ("minigrid:MiniGrid-DoorKey-5x5-v0", "MiniGrid", None),
        ("MiniGrid-Empty-8x8-v0", "MiniGrid", None),
        ("minigrid/DoorKey-8x8-v0:full=true", "MiniGrid", None),
        ("minatar/breakout", "atari", "atari"),
        ("minatar/freeway:sticky=0.0,ramping=false", "atari", "atari"),
        ("ALE/Pong-v5", "atari", "atari"),
        ("FrozenLake-v1", None, None),
        ("Taxi-v4", None, None),
        ("CliffWalking-v1", None, None),
        ("MountainCarContinuous-v0", None, None),
        ("catch:rows=3,columns=3", None, None),
        ("cartpole", None, None),
    ],
)
def test_entries_by_environment(env, ppo, dqn):
    assert (zoo_entry("ppo", env), zoo_entry("dqn", env)) == (ppo, dqn)


def test_without_an_entry_the_defaults_are_the_packages_own():
    assert zoo_settings("ppo", "Taxi-v4", STEPS) == {"num_envs": 8}
    own = {"num_envs": 1, "buffer_size": 100_000, "learning_starts": 1000}
    assert zoo_settings("dqn", "Taxi-v4", STEPS) == own


@pytest.mark.parametrize(("env_steps", "starts"), [(STEPS, 5000), (10_000_000, 100_000)])
def test_the_start_of_learning_keeps_its_share_of_the_run(env_steps, starts):
    assert zoo_settings("dqn", "minatar/breakout", env_steps)["learning_starts"] == starts
    assert zoo_settings("dqn", "CartPole-v1", env_steps)["learning_starts"] == 1000


def test_settings_are_resolved_for_each_environment_and_can_be_overridden():
    rules = ("zoo/ppo", "zoo/ppo:learning_rate=1e-3,normalize=false", "sb3/ppo")
    config = CompareConfig(rules=rules, envs=("Acrobot-v1", "Taxi-v4"), env_steps=STEPS)
    tuned, changed, plain = config.entrants()
    acrobot = config.peer_config(tuned, "Acrobot-v1", 0)
    assert acrobot.algorithm == "ppo"
    assert acrobot.settings == {
        "num_envs": 16,
        "normalize": True,
        "n_steps": 256,
        "n_epochs": 4,
        "gamma": 0.99,
        "gae_lambda": 0.94,
        "ent_coef": 0.0,
    }
    assert config.peer_config(tuned, "Taxi-v4", 0).settings == {"num_envs": 8}
    own = config.peer_config(changed, "Acrobot-v1", 0).settings
    assert own == acrobot.settings | {"learning_rate": 1e-3, "normalize": False}
    assert "normalize" not in config.peer_config(plain, "Acrobot-v1", 0).settings
    # Nothing of the table itself was changed.
    assert config.peer_config(tuned, "Acrobot-v1", 0).settings == acrobot.settings
