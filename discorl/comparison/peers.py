"""Algorithms of other packages that take part in comparisons, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from discorl.comparison.zoo import ZOO_ALGORITHMS, zoo_settings
from discorl.envs.base import EnvironmentConfig
from discorl.errors import UnknownNameError

_PLAIN, _TUNED = "sb3/", "zoo/"
"""The same algorithms, with settings of ours or with those tuned for the environment."""

_PPO: dict[str, Any] = {
    "num_envs": 8,
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 4,
    "learning_rate": 2.5e-4,
    "clip_range": 0.1,
    "ent_coef": 0.01,
    "gamma": 0.99,
}

DEFAULTS: dict[str, dict[str, Any]] = {
    "a2c": {"num_envs": 8},
    "dqn": {
        "num_envs": 1,
        "buffer_size": 100_000,
        "learning_starts": 5000,
        "train_freq": 4,
        "batch_size": 32,
        "learning_rate": 2.5e-4,
        "target_update_interval": 1000,
        "exploration_fraction": 0.2,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.05,
        "gamma": 0.99,
    },
    "maskable_ppo": _PPO,
    "ppo": _PPO,
}
"""Algorithm -> settings that differ from the package's own.

PPO: those in common use for Atari, with a constant learning rate. DQN: batch, learning rate and
frequency of updates as published for Atari; the buffer, the start of learning, the exploration
and the interval between targets are cut down to runs of some 100,000 steps. A2C: the package's
own, with as many environments as PPO. None of them was tuned on our environments; those that
others tuned for an environment are in `discorl.comparison.zoo`. PPO with masks, which keeps to
legal actions where an environment tells them, is of sb3-contrib.
"""


@dataclass(frozen=True)
class PeerConfig:
    """One run of a peer, reproducible from this alone."""

    env: str
    seed: int
    env_steps: int
    """Environment steps, rounded up to whole rollouts."""
    algorithm: str
    settings: dict[str, Any]
    """Keyword arguments of the algorithm, `num_envs`, `normalize` and `net_arch`."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for results and names."""
        return asdict(self)


def is_peer(name: str) -> bool:
    """Whether an entrant is an algorithm of another package rather than a rule."""
    return name.startswith((_PLAIN, _TUNED))


def peer_algorithm(name: str) -> str:
    """`sb3/ppo`, `zoo/ppo` -> `ppo`."""
    known = [_PLAIN + algorithm for algorithm in DEFAULTS]
    known += [_TUNED + algorithm for algorithm in ZOO_ALGORITHMS]
    if name not in known:
        raise UnknownNameError("algorithm", name, known)
    return name.partition("/")[2]


def peer_settings(name: str, env: str, env_steps: int, own: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run of a peer.

    Args:
      own: settings of the entrant, which override the others.
    """
    algorithm = peer_algorithm(name)
    tuned = name.startswith(_TUNED)
    given = zoo_settings(algorithm, env, env_steps) if tuned else DEFAULTS[algorithm]
    return {**given, **own}
