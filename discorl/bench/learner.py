"""A learner step at the published setting, against disco-torch and the machine's own limit.

8 x 8 Catch, 64 trajectories of 29 stored steps, MLP 512-512, LSTM 128. Layer by layer, the step's
matrix products are 19.1 GFLOP; `limit` is how long they take at this machine's measured speed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from discorl.bench.machine import MatrixProduct, Stopwatch, peak_memory, run_worker
from discorl.bench.peer import Peer
from discorl.bench.reference import Reference
from discorl.life.acting import act
from discorl.replay import concatenate
from discorl.rollout import Rollout
from discorl.rules.disco import DiscoRule
from discorl.runtime import tune_process
from discorl.training.config import TrainConfig
from discorl.training.trainer import Trainer

GFLOP = 19.1
_MEMORY_STEPS = 5


def bench_learner(
    rule: DiscoRule,
    weights: Path,
    rounds: int,
    with_peer: bool,
    with_compile: bool,
    reference: Path | None = None,
) -> dict[str, Any]:
    """Time everything round by round and return the figures.

    Args:
      reference: a Python that has the published JAX implementation, to be timed too.
    """
    trainer, batch = _experience(rule)
    product = MatrixProduct()
    subjects: dict[str, Callable[[], object]] = {"eager": _stepper(trainer, batch, False)}
    if with_compile:
        subjects["compiled"] = _stepper(trainer, batch, True)
    peer = Peer(batch, weights) if with_peer else None
    if peer is not None:
        subjects["disco-torch"] = peer.step
        subjects["disco-torch, batched"] = Peer(batch, weights, stepwise=False).step
    published = None
    if reference is not None:
        subjects["reference"] = published = Reference(reference, batch, weights)
    subjects["acting"] = acting_loop(trainer)
    subjects["matrix product"] = product
    with FlopCounterMode(display=False) as counter:
        subjects["eager"]()
    watch = Stopwatch(subjects)
    seconds = watch.run(rounds)
    if published is not None:
        published.close()

    config = trainer.config
    gflops = product.gflops(seconds["matrix product"])
    limit = GFLOP / gflops
    figures: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "matrix_gflops": gflops,
        "gflop": GFLOP,
        "eager_gflop": counter.get_total_flops() / 1e9,
        "limit_ms": 1e3 * limit,
        "eager_ms": 1e3 * seconds["eager"],
        **watch.over("eager", "matrix product", product.share(GFLOP)),
        "actor_env_steps_per_second": config.rollout_steps / seconds["acting"],
        "acting_share_of_step": seconds["acting"] / (seconds["acting"] + seconds["eager"]),
        "replay_bytes_per_step": _replay_bytes(trainer),
        "peak_memory_mib": run_worker("discorl.bench.learner", "ours", str(weights)),
    }
    if with_compile:
        figures["compiled_ms"] = 1e3 * seconds["compiled"]
        figures |= watch.over("compiled", "matrix product", product.share(GFLOP))
    if peer is not None:
        figures |= _peer_figures(peer, weights, watch, seconds, figures)
    if published is not None:
        figures["reference_ms"] = 1e3 * seconds["reference"]
        figures |= _speedups(watch, "reference", "_over_reference")
    return figures


def _speedups(watch: Stopwatch, other: str, figure: str = "") -> dict[str, float]:
    """How many times as fast as another our steps were."""
    figures = watch.speedup(f"speedup_eager{figure}", "eager", other)
    if "compiled" in watch.seconds:
        figures |= watch.speedup(f"speedup_compiled{figure}", "compiled", other)
    return figures


def _peer_figures(
    peer: Peer,
    weights: Path,
    watch: Stopwatch,
    seconds: dict[str, float],
    ours: dict[str, Any],
) -> dict[str, Any]:
    bytes_per_step = peer.bytes_per_step()
    return {
        "peer_ms": 1e3 * seconds["disco-torch"],
        "peer_replay_bytes_per_step": bytes_per_step,
        "replay_ratio": bytes_per_step / ours["replay_bytes_per_step"],
        "peer_peak_memory_mib": run_worker("discorl.bench.learner", "peer", str(weights)),
        "peer_batched_agent_ms": 1e3 * seconds["disco-torch, batched"],
        "speedup_over_batched_agent": seconds["disco-torch, batched"] / seconds["eager"],
        **_speedups(watch, "disco-torch"),
    }


def _experience(rule: DiscoRule) -> tuple[Trainer, Rollout]:
    """A trainer at the published setting, and a batch of its agent's experience."""
    trainer = Trainer(TrainConfig(rule=rule.name), rule)
    acts = acting_loop(trainer)
    rollouts = sum(trainer.config.life.experience.shares) // trainer.config.num_envs
    batch = [acts() for _ in range(rollouts)]
    return trainer, concatenate(batch)


def _replay_bytes(trainer: Trainer) -> int:
    replay = trainer.life.mind.replay
    assert replay is not None, "the published setting replays"
    return replay.spec.bytes_per_step()


def _stepper(trainer: Trainer, batch: Rollout, compiled: bool) -> Callable[[], object]:
    learner = trainer.life.mind.learner
    step = learner.compiled_step() if compiled else learner.step
    state = trainer.life.state

    def run() -> float:
        nonlocal state
        state, metrics = step(state, batch)
        return float(metrics["total_loss"])

    return run


def acting_loop(trainer: Trainer) -> Callable[[], Rollout]:
    """One rollout per call, each continuing from the one before."""

    def run() -> Rollout:
        life = trainer.life
        acted = act(
            life.mind.learner.agent,
            life.state.params,
            life.env,
            life.time_step,
            trainer.config.rollout_length,
            life.mind.generator,
        )
        life.time_step = acted.step
        return acted.rollout

    return run


def _measure_memory(who: str, weights: Path) -> float:
    from discorl.library.formats import read_rule

    tune_process()
    trainer, batch = _experience(read_rule(weights))
    step = _stepper(trainer, batch, False) if who == "ours" else Peer(batch, weights).step
    for _ in range(_MEMORY_STEPS):
        step()
    return peak_memory()


if __name__ == "__main__":
    print(json.dumps(_measure_memory(sys.argv[1], Path(sys.argv[2]))))
