"""Runs of stable-baselines3's algorithms, and one of sb3-contrib's, on our environments."""

from __future__ import annotations

import importlib
import inspect
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discorl.agents.bodies import choose_body, make_body
from discorl.agents.config import NetworkConfig
from discorl.agents.convolutions import conv_torso, nature_torso
from discorl.comparison.cells import CURVE_POINTS, Cell, CellResult
from discorl.comparison.facade import SingleEnv, is_for_our_body, tells_legal_actions
from discorl.comparison.peers import PeerConfig
from discorl.comparison.progress import Told
from discorl.envs.outcomes import told_by
from discorl.envs.registry import make_environment
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line
from discorl.life.episodes import RECENT_EPISODES, Episode
from discorl.observations import ArraySpec, Observation, ObservationSpec, spec_entries

_FEATURES = {"conv": 128, "nature": 512}
"""Units after the convolutions, by body."""
_BODY = 128
"""Units of what our own bodies read."""
_MASKABLE = "maskable_ppo"
"""The algorithm that keeps to legal actions, in a package of its own."""
_OURS = {"num_envs", "normalize", "net_arch"}
"""Settings that are not the algorithm's own keyword arguments."""
_LINEAR = "lin_"
_NOT_SETTABLE = {
    *("self", "policy", "env", "seed", "device", "verbose", "tensorboard_log", "policy_kwargs"),
    *("stats_window_size", "_init_setup_model"),
    *("rollout_buffer_class", "rollout_buffer_kwargs"),
    *("replay_buffer_class", "replay_buffer_kwargs"),
}


def check_peer(config: PeerConfig, name: str | None = None) -> None:
    """Raise DiscorlError if the run cannot begin.

    Args:
      name: what errors call the peer.
    """
    _make(config, [], name).get_env().close()


def run_peer(cell: Cell, told: Told | None = None) -> CellResult:
    """Learn from scratch."""
    config = cell.config
    assert isinstance(config, PeerConfig)
    episodes: list[Episode] = []
    model = _make(config, episodes, cell.label)
    singles = [single.unwrapped for single in model.get_env().unwrapped.envs]
    log = _Log(config.env_steps, episodes, told)
    started = time.perf_counter()
    with closing(model.get_env()), _masks_in_mind(config, singles[0]):
        model.learn(config.env_steps, callback=lambda *_: log.note(model.num_timesteps))
        outcomes = told_by([single.played for single in singles])
    seconds = time.perf_counter() - started
    env_steps = int(model.num_timesteps)
    if not episodes:
        raise DiscorlError(f"no episode ended in {env_steps} environment steps: raise --env-steps")
    log.finish(env_steps)
    return CellResult(
        rule=cell.label,
        env=config.env,
        seed=config.seed,
        final_return=log.curve[-1][1],
        steps=env_steps,
        env_steps=env_steps,
        episodes=len(episodes),
        seconds=round(seconds, 3),
        curve=log.curve,
        config=config.to_json(),
        outcomes=outcomes,
    )


@contextmanager
def _masks_in_mind(config: PeerConfig, single: SingleEnv) -> Iterator[None]:
    """Where an algorithm that knows no masks fails, tell of the one that does."""
    try:
        yield
    except DiscorlError as error:
        env = single.played
        masked = tells_legal_actions(env.observation_spec, env.num_actions)
        if config.algorithm == _MASKABLE or not masked:
            raise
        raise DiscorlError(f"{error}; sb3/{_MASKABLE} keeps to legal actions") from error


class _Log:
    """The learning curve, recorded while the algorithm runs."""

    def __init__(self, env_steps: int, episodes: list[Episode], told: Told | None) -> None:
        self._env_steps, self._told = env_steps, told
        self._every = max(env_steps // CURVE_POINTS, 1)
        self._next = self._every
        self._episodes = episodes
        self.curve: list[tuple[int, float]] = []

    def note(self, env_steps: int) -> bool:
        """Called after each step of all copies; True lets the algorithm continue."""
        if env_steps >= self._next:
            self._next = (env_steps // self._every + 1) * self._every
            self._add(env_steps)
            if self._told is not None:
                share = min(env_steps / self._env_steps, 1.0)
                self._told(share, self.curve[-1][1] if self.curve else None)
        return True

    def finish(self, env_steps: int) -> None:
        """Make the end the last point."""
        if not self.curve or self.curve[-1][0] < env_steps:
            self._add(env_steps)

    def _add(self, env_steps: int) -> None:
        newest = self._episodes[-RECENT_EPISODES:]
        if newest:
            mean = math.fsum(episode.total_reward for episode in newest) / len(newest)
            self.curve.append((int(env_steps), mean))


class ImageFeatures(nn.Module):
    """Our agents' convolutions, as stable-baselines3 takes them.

    It scales byte images itself, and may have moved their channels to the front.
    """

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        spec = ArraySpec(observation_space.shape)
        body = choose_body(spec)
        make_torso = nature_torso if body == "nature" else conv_torso
        self.torso = make_torso(spec, (_FEATURES[body],))
        self.features_dim = self.torso.output_size

    def forward(self, observations: Tensor) -> Tensor:
        """[N, *shape] -> [N, features_dim]."""
        features: Tensor = self.torso(observations)
        return features


class OurFeatures(nn.Module):
    """Our agents' body, for what stable-baselines3 has none for: names of things, and texts."""

    def __init__(self, observation_space: Any, spec: ObservationSpec) -> None:
        super().__init__()
        self.body = make_body(spec, NetworkConfig(torso=(_BODY,)))
        self.features_dim = self.body.output_size

    def forward(self, observations: Observation) -> Tensor:
        """[N, *shape], or a dictionary of such -> [N, features_dim]."""
        features: Tensor = self.body(observations)
        return features


def _make(config: PeerConfig, episodes: list[Episode], name: str | None) -> Any:
    """The algorithm with its environments, which it owns."""
    package = _package()
    algorithm = _algorithm(package, config.algorithm)
    where = f"--rules {name or 'sb3/' + config.algorithm}"
    _check_names(where, algorithm, config.settings)
    settings = {key: _schedule(where, key, value) for key, value in config.settings.items()}
    copies = settings.pop("num_envs")
    if not isinstance(copies, int) or copies < 1:
        raise DiscorlError(f"{where}: num_envs: expected at least 1")
    normalised = settings.pop("normalize", False)
    if not isinstance(normalised, bool):
        raise DiscorlError(f"{where}: normalize: expected true or false, got {normalised}")
    net_arch = settings.pop("net_arch", None)
    envs = [
        make_environment(config.env, 1, config=config.environment)  # Seeds come with the reset.
        for _ in range(copies)
    ]
    singles = [SingleEnv(env, episodes) for env in envs]
    spec = singles[0].observation_spec
    policy, policy_settings = _network(spec)
    if net_arch is not None:
        policy_settings["net_arch"] = _sizes(where, net_arch)
    vector_env = package.common.vec_env.DummyVecEnv([partial(_given, env) for env in singles])
    if normalised:  # Only what the algorithm sees: episodes are counted inside.
        discount = {"gamma": settings["gamma"]} if "gamma" in settings else {}
        # What names things is left as it is.
        entries = spec_entries(spec)
        keys = [name for name, entry in entries.items() if not entry.kinds]
        which = {"norm_obs": bool(keys)} | (
            {} if isinstance(spec, ArraySpec) else {"norm_obs_keys": keys}
        )
        vector_env = package.common.vec_env.VecNormalize(vector_env, **discount, **which)
    try:
        return algorithm(
            policy,
            vector_env,
            seed=_spread(config.seed),
            device="cpu",
            policy_kwargs=policy_settings,
            **settings,
        )
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        vector_env.close()
        raise DiscorlError(f"{where} on {config.env}: {error}") from error


def _package(name: str = "stable_baselines3") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        title = name.replace("_", "-")
        raise DiscorlError(f"{title} is not installed: {install_line('bench')}") from error


def _algorithm(package: Any, name: str) -> Any:
    if name == _MASKABLE:
        return _package("sb3_contrib").MaskablePPO
    return getattr(package, name.upper())


def _check_names(where: str, algorithm: Any, settings: Mapping[str, Any]) -> None:
    known = {*_OURS, *inspect.signature(algorithm.__init__).parameters} - _NOT_SETTABLE
    for name in settings:
        if name not in known:
            raise UnknownNameError(f"setting in {where}:", name, known)


def _schedule(where: str, name: str, value: Any) -> Any:
    """`lin_0.001` as a function of the share of the run that is left; other values as they are."""
    if not (isinstance(value, str) and value.startswith(_LINEAR)):
        return value
    try:
        start = float(value.removeprefix(_LINEAR))
    except ValueError:
        raise DiscorlError(f"{where}: {name}: expected {_LINEAR}NUMBER, got {value}") from None
    # The last rollout may end beyond the end.
    return lambda left: start * max(left, 0.0)


def _sizes(where: str, value: Any) -> list[int]:
    """Units of the layers: 64, (64, 64) or, as on the command line, `64,64`."""
    parts = str(value).split(",") if isinstance(value, str | int) else value
    try:
        sizes = [int(part) for part in parts]
    except (TypeError, ValueError):
        sizes = [0]
    if min(sizes, default=0) < 1:
        raise DiscorlError(f"{where}: net_arch: expected numbers of units, got {value}")
    return sizes


def _network(spec: ObservationSpec) -> tuple[str, dict[str, Any]]:
    """The policy's name and its settings: the package's own except for small images."""
    if is_for_our_body(spec):
        ours = {
            "features_extractor_class": OurFeatures,
            "features_extractor_kwargs": {"spec": spec},
        }
        return "MlpPolicy" if isinstance(spec, ArraySpec) else "MultiInputPolicy", ours
    if not isinstance(spec, ArraySpec):
        return "MultiInputPolicy", {}
    body = choose_body(spec)
    if body == "mlp":
        return "MlpPolicy", {}
    if body == "nature" and spec.dtype == torch.uint8 and spec.scale != 1:
        return "CnnPolicy", {}
    return "MlpPolicy", {"features_extractor_class": ImageFeatures, "net_arch": []}


def _given(env: SingleEnv) -> SingleEnv:
    return env


def _spread(seed: int) -> int:
    """Copies get this and the numbers after it: runs with nearby seeds must not share any."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 2)
