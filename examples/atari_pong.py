"""Atari's Pong with the preset, in a run that can be stopped and resumed.

    python examples/atari_pong.py
    python examples/atari_pong.py --resume

Shows a run on disk with checkpoints: stop the first command with Ctrl-C, or kill it, and the
second one resumes from the newest checkpoint. Needs `pip install '.[atari]'`. Disco103 must
have been fetched once: `discorl rules fetch disco103`; `--rule sprout` works offline.

Measured: 3000 updates, 480,000 environment steps, are too few: the last 100 games return -20.9 and
16 evaluation games -20.9 sampled, as random play does. Give `--steps` for more (docs/results.md).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

import discorl
from discorl.errors import DiscorlError
from discorl.runs.session import Interrupted, Progress
from discorl.runtime import tune_process
from discorl.training.run import resume_run, start_run


@dataclass(frozen=True)
class Args:
    """Train on Pong, or resume a run."""

    rule: str = "disco103"
    """A name from `discorl rules list`, or a rule file."""
    steps: int | None = None
    """Training steps; the preset's if not set. With --resume a new end."""
    seed: int = 0
    """Fixes every random choice, but for the simulator's of a resumed run."""
    out: Path = Path("runs/atari_pong")
    """Run folder."""
    resume: bool = False
    """Resume the run in the folder."""
    smoke: bool = False
    """A budget of seconds: a few steps, then a few more after resuming."""


class Printer:
    """Shows a run in plain lines."""

    def start(self, title: str, steps: int, notes: list[str]) -> None:
        """The run begins, or is resumed."""
        print(title, *notes, sep="\n")

    def progress(self, progress: Progress) -> None:
        """A record was written."""
        score = progress.metrics.get("charts/episode_return", float("nan"))
        print(f"step {progress.step:6} of {progress.steps}  return {score:6.2f}", flush=True)

    def message(self, text: str) -> None:
        """Something takes a while, or came out."""
        print(text)


def train(args: Args) -> None:
    """Start a run or resume it, and say how well the agent plays."""
    if args.resume:
        result = resume_run(args.out, args.steps, Printer())
    else:
        env = "ALE/Pong-v5"
        settings: dict[str, Any] = {}
        if args.smoke:
            env = f"{env}:frames=80,noops=0"  # games of 20 actions
            settings = {"num_envs": 2, "eval_episodes": 2}
        if args.steps is not None:
            settings["steps"] = args.steps
        config = discorl.make_config(env, args.rule, seed=args.seed, **settings)
        result = start_run(config, args.out, Printer())
    print(f"{result['steps']} steps, {result['env_steps']:,} environment steps")
    print(f"sampled return {result['eval_return_sampled']:.2f}, from -21 to 21")
    print(f"checkpoints and curve are in {args.out}")


def main(args: Args) -> None:
    """Train; where a signal stops it, say how to resume."""
    tune_process()
    try:
        if args.smoke:
            train(replace(args, steps=2))
            train(replace(args, steps=4, resume=True))
        else:
            train(args)
    except Interrupted as stop:
        sys.exit(f"{stop}; resume with --resume --out {stop.folder}")


if __name__ == "__main__":
    try:
        main(tyro.cli(Args))
    except DiscorlError as error:
        sys.exit(f"error: {error}")
