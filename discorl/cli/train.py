"""`discorl train`."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console

from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.errors import DiscorlError
from discorl.life.life import PHASES
from discorl.runs.display import watch
from discorl.runs.folder import (
    CURVE_FILE,
    SEED_FOLDER,
    left_by_failed,
    read_settings_file,
    unused_folder,
)
from discorl.runs.session import Observer
from discorl.runtime import tune_process
from discorl.settings import Count, change, check_fields, flag, flat_settings
from discorl.training.config import TrainConfig
from discorl.training.handle import SHOWN
from discorl.training.presets import AUTO, PresetName, make_config
from discorl.training.start import read_config, resume_run, run_name, start_run
from discorl.training.together import start_runs


@dataclass(frozen=True)
class TrainFlags(TrainConfig):
    """What is trained, where and for how long."""

    env: tyro.conf.Positional[str] = TrainConfig.env
    """Environment: a name from `discorl envs list`, optionally with settings after a colon
    (catch:rows=10,columns=7), a Gymnasium id (CartPole-v1), or module:function."""
    rule: str = AUTO
    """Update rule: a name from `discorl rules list`, or a rule file, optionally with settings of
    its own after a colon (actor_critic:entropy_cost=0.01). By default the better of those that
    ship: sprout in discorl's own games, actor_critic elsewhere."""


@dataclass(frozen=True)
class TrainCommand:
    """Train an agent with an update rule, or resume a run that was stopped."""

    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Resume the run in this folder. Of the other flags, only --steps and --threads may be
    given."""
    preset: PresetName = "default"
    """Where the other flags' defaults come from: us, the published notebook, or the paper's table
    for large machines."""
    config_file: Annotated[Path | None, tyro.conf.arg(aliases=["--config"])] = None
    """Take the flags' defaults from a run's config.json."""
    env_steps: Count | None = None
    """Train for this many environment steps, over all copies, in place of --steps; rounded up to
    whole rollouts."""
    seeds: Count = 1
    """Train several agents, with seeds counting up from --seed, each in a folder of its own inside
    --out: one after the other, or side by side with --stacked."""
    stacked: bool = False
    """With --seeds: train them side by side as one computation. Faster with small networks; equal
    but for rounding."""
    json: bool = False
    """Print the result as JSON on standard output, everything else on standard error."""
    config: TrainFlags = field(default_factory=TrainFlags)

    examples: ClassVar = (
        "discorl train catch",
        "discorl train CartPole-v1 --rule actor_critic:entropy_cost=0.01 --env-steps 1e5",
        "discorl train minatar/breakout --rule disco103 --seeds 3 --out runs/breakout",
        "discorl train --resume runs/breakout/seed_0 --steps 4000",
        "discorl launch --processes 2 train catch --num-envs 8 --out runs/two",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.stacked and self.seeds == 1 and self.resume is None:
            raise DiscorlError("--stacked: only with --seeds of two or more")

    @classmethod
    def parse(cls, args: list[str]) -> TrainCommand:
        """Parse twice: environment, rule and preset decide the other flags' defaults."""
        first: TrainCommand = parse_command(cls, "train", without_help(args))
        if first.resume is not None:
            return cls._parse_resume(args, read_config(first.resume))
        if first.config_file is not None:
            config = TrainConfig.from_json(read_settings_file(first.config_file, "train"))
        else:
            environment = flat_settings(first.config.life.environment)
            config = make_config(first.config.env, first.config.rule, first.preset, **environment)
        command = cls._parse_over(args, config)
        if command.config.rule == first.config.rule:  # As the preset sets it up.
            command = replace(command, config=replace(command.config, rule=config.rule))
        if command.config.env == first.config.env:
            command = replace(command, config=replace(command.config, env=config.env))
        if command.env_steps is None:
            return command
        if command.config.steps != config.steps:
            raise DiscorlError("--steps and --env-steps: give one of them")
        steps = math.ceil(command.env_steps / command.config.life.experience.rollout_steps)
        return replace(command, config=change(command.config, {"steps": steps}))

    @classmethod
    def _parse_over(cls, args: list[str], config: TrainConfig) -> TrainCommand:
        default = cls(config=TrainFlags(**vars(config)))
        command: TrainCommand = parse_command(cls, "train", args, default=default)
        return command

    @classmethod
    def _parse_resume(cls, args: list[str], own: TrainConfig) -> TrainCommand:
        """A resumed run keeps its own configuration: say so rather than ignore a flag."""
        command = cls._parse_over(args, own)
        refuse_changes(command.config, own, "steps", "threads")
        default = cls()
        names = ("out", "preset", "config_file", "env_steps", "seeds", "stacked")
        changed = [flag(n) for n in names if getattr(command, n) != getattr(default, n)]
        if changed:
            raise DiscorlError(
                f"--resume stays in the run's own folder and settings: drop {', '.join(changed)}"
            )
        return command

    def run(self) -> int:
        """Train, show progress, and say how it ended."""
        tune_process(threads_by_size=True)
        console = Console(stderr=self.json)
        if self.stacked:
            return self._run_stacked(console)
        results = []
        for seed in range(self.config.seed, self.config.seed + self.seeds):
            config = change(self.config, {"seed": seed})
            code, result = watch(SHOWN, partial(self._work, config), console)
            if code:
                self._say_what_is_left(console, seed)
                return code
            if result:  # Not where another process leads.
                results.append(result)
                if not self.json:
                    print_result(console, result)
        self._print_all(console, results)
        return 0

    def _run_stacked(self, console: Console) -> int:
        seeds = range(self.config.seed, self.config.seed + self.seeds)
        out = self.out or unused_folder(run_name(self.config))
        results: list[dict[str, Any]] = []

        def work(observer: Observer) -> dict[str, Any]:
            results.extend(start_runs(self.config, seeds, out, observer))
            return {}

        code, _ = watch(SHOWN, work, console)
        if not code:
            self._print_all(console, results)
        elif self.seeds > 1:
            others = f"{out}/seed_{seeds[1]}" + (f" to seed_{seeds[-1]}" if self.seeds > 2 else "")
            console.print(f"and the other seeds in the same way: {others}", soft_wrap=True)
        return code

    def _print_all(self, console: Console, results: list[dict[str, Any]]) -> None:
        if not results:
            return
        if self.json:
            print(json.dumps(results[0] if self.seeds == 1 else results))
        elif self.seeds > 1:
            _print_seeds(console, results)

    def _work(self, config: TrainConfig, observer: Observer) -> dict[str, Any]:
        if self.resume is not None:
            return resume_run(self.resume, config.steps, observer, threads=config.run.threads)
        folder = self._folder(config)
        if left_by_failed(folder):
            return resume_run(folder, config.steps, observer, threads=config.run.threads)
        return start_run(config, folder, observer)

    def _say_what_is_left(self, console: Console, seed: int) -> None:
        """After a stop: which seeds were not begun, and how to train them."""
        left = self.config.seed + self.seeds - 1 - seed
        if left:
            console.print(
                f"Not begun: {left} of {self.seeds} seeds. Give the same command with --seed "
                f"{seed + 1} --seeds {left} for them"
                + (f" --out {self.out}/seed_{seed + 1}" if left == 1 and self.out else ""),
                soft_wrap=True,
                highlight=False,
            )

    def _folder(self, config: TrainConfig) -> Path:
        out = self.out
        if out is None:
            out = unused_folder(run_name(config))
        return (
            out / f"{SEED_FOLDER}{config.seed}" if self.seeds > 1 and self.out is not None else out
        )


def print_result(console: Console, result: dict[str, Any]) -> None:
    """What a training run came to, in a few lines."""
    console.print(
        f"\n{result['steps']} steps ({result['env_steps']:,} environment steps, "
        f"{result['episodes']:,} episodes, {result['updates']:,} updates) in "
        f"{result['seconds']:.0f} s: {result['env_steps_per_second']:,.0f} environment steps/s, "
        + ", ".join(f"{result[f'share_{phase}']:.1%} {phase}" for phase in PHASES),
        highlight=False,
        soft_wrap=True,
    )
    if not result["updates"]:
        console.print("warning: no update was made, so nothing was learned", style="yellow")
    if result["episode_return"] is not None:
        console.print(f"return of the last episodes  {result['episode_return']:.3f}")
    unfinished = result["eval_unfinished"]
    console.print(
        f"evaluation, {result['eval_episodes']} episodes   "
        f"greedy {result['eval_return_greedy']:.3f}, sampled {result['eval_return_sampled']:.3f}"
        + (f"; {unfinished} episodes were cut off at --eval-max-steps" if unfinished else ""),
        soft_wrap=True,
    )
    if scores := result.get("human_normalized"):
        shown = {"last episodes": "episode_return", "sampled": "eval_return_sampled"}
        parts = [
            f"{text} {scores[name]:.1%}" for text, name in shown.items() if scores[name] is not None
        ]
        console.print(f"of a human's score above random play: {', '.join(parts)}")
    if result.get("score") not in (None, "human_normalized"):
        parts = [
            f"{text} {result[name]:.3f}"
            for text, name in (("training", "score_training"), ("sampled", "score_evaluation"))
            if result[name] is not None
        ]
        console.print(f"{result['score'].replace('_', ' ')}: {', '.join(parts)}")
    curve = "curve, " if (Path(result["folder"]) / CURVE_FILE).exists() else ""
    console.print(f"{curve}metrics and checkpoints are in {result['folder']}", soft_wrap=True)


def _print_seeds(console: Console, results: list[dict[str, Any]]) -> None:
    for name in ("episode_return", "eval_return_greedy", "eval_return_sampled"):
        values = [result[name] for result in results if result[name] is not None]
        if values:
            console.print(
                f"{name.replace('_', ' ')} over {len(values)} seeds: "
                f"{statistics.mean(values):.3f} ± {statistics.pstdev(values):.3f}"
            )
