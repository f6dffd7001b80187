"""Gymnasium's CartPole-v1 with the preset, and 100 evaluation episodes.

    python examples/cartpole.py

Shows `make_config`, which chooses the settings for environment and rule, and `Trainer`, the
training loop one step at a time. Disco103 must have been fetched once: `discorl rules fetch
disco103`; `--rule sprout` works offline.

Measured: with the preset of version 0.1, after 512,000 environment steps seeds 0, 1 and 2 return
499.8, 498.5 and 499.6 of 500 greedily and 499.7, 496.8 and 499.6 sampled, 100 episodes each.
docs/zoo.md has the present one, which takes 200,000 steps.
"""

from __future__ import annotations

import math
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import discorl
from discorl.errors import DiscorlError
from discorl.runs.plots import Curve, plot_curves
from discorl.runtime import tune_process


@dataclass(frozen=True)
class Args:
    """Train on CartPole-v1 and evaluate."""

    rule: str = "disco103"
    """A name from `discorl rules list`, or a rule file."""
    steps: int | None = None
    """Training steps; the preset's if not set."""
    seed: int = 0
    """Fixes every random choice."""
    episodes: int = 100
    """Evaluation episodes."""
    curve: Path = Path("cartpole.png")
    """Picture of the learning curve to write."""
    smoke: bool = False
    """A budget of seconds: everything runs, nothing is learned."""


def main(args: Args) -> None:
    """Train, evaluate, draw."""
    if args.smoke:
        args = replace(args, steps=20, episodes=4)
    tune_process()
    settings: dict[str, Any] = {} if args.steps is None else {"steps": args.steps}
    config = discorl.make_config("CartPole-v1", args.rule, seed=args.seed, **settings)
    print(f"{config.num_envs} poles, rollouts of {config.rollout_length}, {config.steps} steps")
    with closing(discorl.Trainer(config, discorl.load_rule(config.rule))) as trainer:
        points = train(trainer)
        for name in ("greedy", "sampled"):
            result = trainer.evaluate(greedy=name == "greedy", episodes=args.episodes)
            print(f"{name} return {result.mean_return:.1f} of 500, {result.episodes} episodes")
    steps, returns = np.array(points, dtype=float).T
    plot_curves([Curve("CartPole-v1", args.rule, {"steps": steps}, returns)], args.curve)
    print(f"the learning curve is {args.curve}")


def train(trainer: discorl.Trainer) -> list[tuple[int, float]]:
    """Train to the end; (step, return of the newest episodes) on the way."""
    points = []
    steps = trainer.config.steps
    for step in range(1, steps + 1):
        trainer.train_step()
        score = trainer.life.episodes.mean_return()
        if not math.isnan(score):
            points.append((step, score))
        if step % max(steps // 20, 1) == 0:
            print(f"step {step:5}  return {score:6.1f}", flush=True)
    return points


if __name__ == "__main__":
    try:
        main(tyro.cli(Args))
    except DiscorlError as error:
        sys.exit(f"error: {error}")
