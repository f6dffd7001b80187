"""MinAtar's Breakout with the preset, from images of 10 x 10.

    python examples/minatar_breakout.py
    python examples/minatar_breakout.py --game freeway --rule actor_critic

Shows an environment from an extra (`pip install '.[minatar]'`), what its preset sets, and
an agent with convolutions. Disco103 must have been fetched once: `discorl rules fetch disco103`;
`--rule sprout` and `--rule actor_critic` work offline.

Measured: with the preset of version 0.1, after 200,064 environment steps the last 100 episodes
return 5.13, 5.91 and 6.83 with seeds 0, 1 and 2; random play 0.30 (docs/results.md).
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

import discorl
from discorl.errors import DiscorlError
from discorl.runs.plots import Curve, plot_curves
from discorl.runtime import tune_process


@dataclass(frozen=True)
class Args:
    """Train on a game of MinAtar and evaluate."""

    game: Literal["asterix", "breakout", "freeway", "seaquest", "space_invaders"] = "breakout"
    """Which game."""
    rule: str = "disco103"
    """A name from `discorl rules list`, or a rule file."""
    steps: int | None = None
    """Training steps; the preset's if not set."""
    seed: int = 0
    """Fixes every random choice."""
    episodes: int = 100
    """Evaluation episodes."""
    curve: Path = Path("minatar_breakout.png")
    """Picture of the learning curve to write."""
    smoke: bool = False
    """A budget of seconds: everything runs, nothing is learned."""


def main(args: Args) -> None:
    """Train, evaluate, draw."""
    env = f"minatar/{args.game}"
    settings: dict[str, Any] = {} if args.steps is None else {"steps": args.steps}
    if args.smoke:
        args = replace(args, episodes=4)
        env, settings = f"{env}:steps=30", {"steps": 12}  # episodes are cut off after 30 actions
    tune_process()
    config = discorl.make_config(env, args.rule, seed=args.seed, **settings)
    for name in ("num_envs", "rollout_length", "batch_size", "replay_fraction", "learning_rate"):
        print(f"{name:16} {getattr(config, name)}")
    points = []
    with closing(discorl.Trainer(config, discorl.load_rule(config.rule))) as trainer:
        for step in range(1, config.steps + 1):
            trainer.train_step()
            if step % max(config.steps // 40, 1) == 0:
                score = trainer.life.episodes.mean_return()
                points.append((step, score))
                print(f"step {step:5}  return {score:6.2f}", flush=True)
        result = trainer.evaluate(greedy=False, episodes=args.episodes)
    print(f"sampled return {result.mean_return:.2f} ± {result.std_return:.2f}, ", end="")
    print(f"{result.episodes} episodes after {config.steps} steps")
    steps, returns = np.array(points, dtype=float).T
    plot_curves([Curve(env, args.rule, {"steps": steps}, returns)], args.curve)
    print(f"the learning curve is {args.curve}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Args))
    except DiscorlError as error:
        sys.exit(f"error: {error}")
