"""`discorl train`, `discorl evaluate` and `discorl plot`."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from discorl.api import new_folder
from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.discovery.plots import plot_discovery
from discorl.errors import DiscorlError
from discorl.life.life import PHASES
from discorl.runs.display import watch
from discorl.runs.folder import run_kind
from discorl.runs.plots import EPISODE_RETURN, plot_curves, read_curve
from discorl.runs.session import Observer
from discorl.runtime import tune_process
from discorl.training.config import TrainConfig
from discorl.training.handle import SHOWN
from discorl.training.presets import PresetName, make_config
from discorl.training.run import load_trainer, read_config, resume_run, start_run


@dataclass(frozen=True)
class TrainFlags(TrainConfig):
    """Settings as the command line takes them: the environment is positional."""

    env: tyro.conf.Positional[str] = TrainConfig.env
    """Environment: a name from `discorl envs list`, optionally with settings after a colon
    (catch:rows=10,columns=7), a Gymnasium id (CartPole-v1), or module:function."""


@dataclass(frozen=True)
class TrainCommand:
    """Train an agent with an update rule, or resume a run that was stopped."""

    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Resume the run in this folder. Of the other flags, only --steps may be given."""
    preset: PresetName = "default"
    """Where the other flags' defaults come from: us, or the published experiments."""
    json: bool = False
    """Print the result as JSON on standard output, everything else on standard error."""
    config: TrainFlags = field(default_factory=TrainFlags)

    @classmethod
    def parse(cls, args: list[str]) -> TrainCommand:
        """Parse twice: environment, rule and preset decide the other flags' defaults."""
        first: TrainCommand = parse_command(cls, "train", without_help(args))
        if first.resume is not None:
            return cls._parse_resume(args, read_config(first.resume))
        config = make_config(first.config.env, first.config.rule, first.preset)
        return cls._parse_over(args, config)

    @classmethod
    def _parse_over(cls, args: list[str], config: TrainConfig) -> TrainCommand:
        default = cls(config=TrainFlags(**vars(config)))
        command: TrainCommand = parse_command(cls, "train", args, default=default)
        return command

    @classmethod
    def _parse_resume(cls, args: list[str], own: TrainConfig) -> TrainCommand:
        """A resumed run keeps its own configuration: say so rather than ignore a flag."""
        command = cls._parse_over(args, own)
        refuse_changes(command.config, own, allowed="steps")
        if command.out is not None or command.preset != "default":
            raise DiscorlError(
                "--resume stays in the run's own folder and settings: drop --out and --preset"
            )
        return command

    def run(self) -> int:
        """Train, show progress, and say how it ended."""
        tune_process()
        console = Console(stderr=self.json)
        code, result = watch("train", SHOWN, self._work, console)
        if result and self.json:
            print(json.dumps(result))
        elif result:
            _print_result(console, result)
        return code

    def _work(self, observer: Observer) -> dict[str, Any]:
        if self.resume is not None:
            return resume_run(self.resume, self.config.steps, observer)
        config, folder = self.config, self.out
        if folder is None:
            folder = new_folder(f"{config.env}-{Path(config.rule).stem}-s{config.seed}")
        return start_run(config, folder, observer)


@dataclass(frozen=True)
class EvaluateCommand:
    """Play whole episodes with a trained agent, greedily and sampled."""

    folder: tyro.conf.Positional[Path]
    """Run folder."""
    episodes: int = 100
    """How many episodes of each kind."""
    json: bool = False
    """Print JSON on standard output."""

    def run(self) -> int:
        """Evaluate the newest checkpoint."""
        if self.episodes < 1:
            raise DiscorlError("--episodes: expected at least 1")
        tune_process()
        with closing(load_trainer(self.folder)) as trainer:
            results = {
                name: asdict(trainer.evaluate(greedy=name == "greedy", episodes=self.episodes))
                for name in ("greedy", "sampled")
            }
        if self.json:
            print(json.dumps({"step": trainer.step, **results}))
            return 0
        console = Console()
        console.print(f"{self.folder} at step {trainer.step}, {self.episodes} episodes each:")
        for name, result in results.items():
            console.print(
                f"  {name:8} return {result['mean_return']:.3f} ± {result['std_return']:.3f}, "
                f"length {result['mean_length']:.1f}"
                + (f", {result['unfinished']} unfinished" if result["unfinished"] else "")
            )
        return 0


@dataclass(frozen=True)
class PlotCommand:
    """Draw learning curves of one or more runs; seeds of one experiment become a band.

    Discovery runs are drawn with their fresh agents.
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders."""
    out: Path = Path("curves.png")
    """Picture to write; its suffix decides the format."""
    metric: str = EPISODE_RETURN
    """Which metric, by its name in metrics.jsonl."""

    def run(self) -> int:
        """Draw and say where."""
        if not self.folders:
            raise DiscorlError("plot: name one or more run folders")
        kinds = {run_kind(folder) for folder in self.folders}
        if self.metric == EPISODE_RETURN and kinds == {"discover"}:
            plot_discovery(list(self.folders), self.out)
        else:
            curves = [read_curve(folder, self.metric) for folder in self.folders]
            plot_curves(curves, self.out, self.metric)
        runs = "1 run" if len(self.folders) == 1 else f"{len(self.folders)} runs"
        Console().print(f"{runs} drawn in {self.out}")
        return 0


def _print_result(console: Console, result: dict[str, Any]) -> None:
    console.print(
        f"\n{result['steps']} steps ({result['env_steps']:,} environment steps, "
        f"{result['episodes']:,} episodes) in {result['seconds']:.0f} s: "
        f"{result['env_steps_per_second']:,.0f} environment steps/s, "
        + ", ".join(f"{result[f'share_{phase}']:.1%} {phase}" for phase in PHASES),
        highlight=False,
        soft_wrap=True,
    )
    if result["episode_return"] is not None:
        console.print(f"return of the last episodes  {result['episode_return']:.3f}")
    console.print(
        f"evaluation, {result['eval_episodes']} episodes   "
        f"greedy {result['eval_return_greedy']:.3f}, sampled {result['eval_return_sampled']:.3f}"
    )
    if scores := result.get("human_normalized"):
        shown = {"last episodes": "episode_return", "sampled": "eval_return_sampled"}
        parts = [
            f"{text} {scores[name]:.1%}" for text, name in shown.items() if scores[name] is not None
        ]
        console.print(f"of a human's score above random play: {', '.join(parts)}")
    console.print(f"curve, metrics and checkpoints are in {result['folder']}", soft_wrap=True)
