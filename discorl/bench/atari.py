"""Environment steps per second in an Atari game, from the emulator alone to full training.

Everything is compared with a plain loop over ale-py's own vector environment: how much of its
speed our environment, the policy and the updates leave.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch

from discorl.bench.learner import acting_loop
from discorl.bench.machine import Stopwatch, spread
from discorl.envs.registry import make_environment
from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule
from discorl.life.life import PHASES
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer

_EMULATOR = "emulator"
_WITHOUT_REPLAY = {"replay_fraction": 0.0, "replay_ratio": 1, "batch_size": None}
_WAYS: dict[str, dict[str, bool]] = {
    "training": {},
    "training_overlap": {"overlap": True},
    "training_bfloat16": {"bfloat16": True},
    "training_overlap_bfloat16": {"overlap": True, "bfloat16": True},
}
"""How training without replay is timed."""


def bench_atari(
    game: str, num_envs: int, rule: str, rounds: int, replay: bool = True
) -> dict[str, Any]:
    """Time everything round by round and return the figures.

    Args:
      game: such as `ALE/Pong-v5`, without settings: the v5 environments' own are used.
      replay: train as the preset does; otherwise every rollout is learned from once, in each of
        several ways.
    """
    if not game.startswith("ALE/") or ":" in game:
        raise DiscorlError(f"--game {game}: expected an Atari game without settings, ALE/Pong-v5")
    ways = {"training": {}} if replay else {k: {**_WITHOUT_REPLAY, **v} for k, v in _WAYS.items()}
    trainers = {way: _trainer(game, rule, num_envs, settings) for way, settings in ways.items()}
    trainer = trainers["training"]
    length = trainer.config.rollout_length
    subjects: dict[str, Callable[[], object]] = {
        _EMULATOR: _emulator_loop(game, num_envs, length),
        "environment": _environment_loop(game, num_envs, length),
        "acting": acting_loop(trainer),
        **{way: each.train_step for way, each in trainers.items()},
    }
    for each in trainers.values():
        while each.train_step() is None:
            pass  # Until there is a batch to learn from.
    trainer.life.seconds = dict.fromkeys(PHASES, 0.0)
    watch = Stopwatch(subjects)
    seconds = watch.run(rounds)
    shares = dict(trainer.life.seconds)
    total = sum(shares.values())
    for each in trainers.values():
        each.close()
    figures: dict[str, Any] = {
        "game": game,
        "rule": rule,
        "num_envs": num_envs,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "replay": "as the preset" if replay else "none",
    }
    for name, time in seconds.items():
        figures[f"{name}_env_steps_per_second"] = length * num_envs / time
    for name in list(subjects)[1:]:
        figures |= _ratios(f"{name}_over_{_EMULATOR}", watch.seconds, name)
    for name in list(subjects)[1:]:
        figures |= _ratios(f"{name}_cpu_over_{_EMULATOR}", watch.cpu_seconds, name)
    for phase in PHASES:
        figures[f"training_share_{phase}"] = shares[phase] / total
    return figures


def _trainer(game: str, rule: str, num_envs: int, settings: dict[str, Any]) -> Trainer:
    return Trainer(make_config(game, rule, num_envs=num_envs, **settings), load_rule(rule))


def make_emulator(game: str, num_envs: int) -> Any:
    """ale-py's vector environment of a v5 game, as Gymnasium registers it."""
    base = importlib.import_module("ale_py.vector_env").AtariVectorEnv
    # A class of its own, as the base notes how it resets in all vector environments' metadata.
    emulator = type("Emulator", (base,), {"metadata": {}})
    settings = gymnasium.spec(game).kwargs
    return emulator(num_envs=num_envs, use_fire_reset=False, reward_clipping=False, **settings)


def _emulator_loop(game: str, num_envs: int, length: int) -> Callable[[], None]:
    env = make_emulator(game, num_envs)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(env.single_action_space.n, size=(length, num_envs))

    def run() -> None:
        for action in actions:
            env.step(action)

    return run


def _environment_loop(game: str, num_envs: int, length: int) -> Callable[[], None]:
    env = make_environment(game, num_envs)
    env.reset(0)
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(env.num_actions, (length, num_envs), generator=generator)

    def run() -> None:
        for action in actions:
            env.step(action)

    return run


def _ratios(figure: str, seconds: dict[str, list[float]], name: str) -> dict[str, float]:
    pairs = zip(seconds[_EMULATOR], seconds[name], strict=True)
    return spread(figure, [emulator / own for emulator, own in pairs])
