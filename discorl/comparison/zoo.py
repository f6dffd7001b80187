"""Settings that were tuned for an environment: those published in rl-baselines3-zoo.

The numbers are those of `hyperparams/ppo.yml` and `hyperparams/dqn.yml` in
https://github.com/DLR-RM/rl-baselines3-zoo (PPO: commit 208b6fdf; DQN: commit ce95481b, but for
Atari's buffer, which is 10,000 there and 100,000 in later versions). What an entry leaves out is
the algorithm's own default, there as here. Versions of environments are not told apart: the entry
for LunarLander-v2 is used for v3.
"""

from __future__ import annotations

import re
from typing import Any

from discorl.settings import split_spec

_ATARI = "atari"
_MINIGRID = "MiniGrid"
_ATARI_STEPS = 10_000_000
"""Steps of the runs that the entries for Atari were made for."""

_PPO: dict[str, dict[str, Any]] = {
    "CartPole": {
        "num_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "n_epochs": 20,
        "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "ent_coef": 0.0,
    },
    "MountainCar": {
        "num_envs": 16,
        "normalize": True,
        "n_steps": 16,
        "n_epochs": 4,
        "gamma": 0.99,
        "gae_lambda": 0.98,
        "ent_coef": 0.0,
    },
    "Acrobot": {
        "num_envs": 16,
        "normalize": True,
        "n_steps": 256,
        "n_epochs": 4,
        "gamma": 0.99,
        "gae_lambda": 0.94,
        "ent_coef": 0.0,
    },
    "LunarLander": {
        "num_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "n_epochs": 4,
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "ent_coef": 0.01,
    },
    _MINIGRID: {
        "num_envs": 8,
        "normalize": True,
        "n_steps": 128,
        "batch_size": 64,
        "n_epochs": 10,
        "learning_rate": 2.5e-4,
        "clip_range": 0.2,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "ent_coef": 0.0,
    },
    _ATARI: {
        "num_envs": 8,
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 4,
        "learning_rate": "lin_2.5e-4",
        "clip_range": "lin_0.1",
        "vf_coef": 0.5,
        "ent_coef": 0.01,
    },
}
_DQN: dict[str, dict[str, Any]] = {
    "CartPole": {
        "num_envs": 1,
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "net_arch": (256, 256),
    },
    "MountainCar": {
        "num_envs": 1,
        "learning_rate": 4e-3,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 1000,
        "gamma": 0.98,
        "target_update_interval": 600,
        "train_freq": 16,
        "gradient_steps": 8,
        "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
        "net_arch": (256, 256),
    },
    _ATARI: {
        "num_envs": 1,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "buffer_size": 100_000,
        "learning_starts": 100_000,
        "target_update_interval": 1000,
        "train_freq": 4,
        "gradient_steps": 1,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.01,
    },
}
_DQN["Acrobot"] = _DQN["LunarLander"] = {
    "num_envs": 1,
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "net_arch": (256, 256),
}
_ENTRIES = {"ppo": _PPO, "dqn": _DQN}
_WITHOUT_ENTRY: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 8},
    "dqn": {"num_envs": 1, "buffer_size": 100_000, "learning_starts": 1000},
}
"""Where the zoo has none: the package's own defaults. DQN's buffer is cut from a million."""
ZOO_ALGORITHMS = tuple(_ENTRIES)


def zoo_settings(algorithm: str, env: str, env_steps: int) -> dict[str, Any]:
    """The settings of an algorithm for a run on an environment.

    Atari's entries serve MinAtar too. In DQN's, learning starts after a hundredth of the run, as it
    does in the 10 million steps that the entry was made for; its exploration is given as a share
    of the run anyway, and its buffer and the interval between targets stay.
    """
    entry = zoo_entry(algorithm, env)
    if entry is None:
        return dict(_WITHOUT_ENTRY[algorithm])
    settings = dict(_ENTRIES[algorithm][entry])
    if entry == _ATARI and "learning_starts" in settings:
        settings["learning_starts"] = settings["learning_starts"] * env_steps // _ATARI_STEPS
    return settings


def zoo_entry(algorithm: str, env: str) -> str | None:
    """The zoo's entry for an environment, or None if it has none for this algorithm."""
    name, _ = split_spec(env)
    if name.startswith(("minatar/", "ALE/")):
        entry = _ATARI
    elif name.startswith("minigrid/") and "BabyAI-" not in name:
        entry = _MINIGRID
    else:
        entry = re.sub(r"-v\d+$", "", name.rpartition(":")[2])
        entry = _MINIGRID if entry.startswith("MiniGrid-") else entry
    return entry if entry in _ENTRIES[algorithm] else None
