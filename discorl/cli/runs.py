"""`discorl resume`, `discorl evaluate` and `discorl plot`: what can be done with a run folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import tyro
from rich.console import Console

from discorl.cli.commands import parse_arguments
from discorl.engines import EngineName
from discorl.errors import DiscorlError
from discorl.runs.folder import KINDS, run_kind, seed_folders
from discorl.runs.plots import EPISODE_RETURN, Axis, plot_curves, read_curve
from discorl.settings import Count, Seed, check_fields, flag, typed

if TYPE_CHECKING:
    from discorl.life.playing import Evaluation
    from discorl.training.handle import Run


@dataclass(frozen=True)
class ResumeCommand:
    """Resume a run of any kind: training, discovery, distillation, comparison or search."""

    folder: tyro.conf.Positional[Path]
    """Run folder; or one with the runs of several seeds, which are resumed one after the other."""
    steps: Count | None = None
    """A new number of steps (meta-steps of a discovery or distillation, seeds of a comparison,
    trials of a search)."""
    threads: Count | None = None
    """Another number of threads; by default the run's own setting."""
    jobs: Count | None = None
    """Of a comparison: runs at once."""
    engine: EngineName | None = None
    """Of a comparison: where the runs work."""
    engine_options: tuple[str, ...] = ()
    """Of a comparison: settings of the engine."""
    json: bool = False
    """Print the result as JSON on standard output, everything else on standard error."""

    examples: ClassVar = (
        "discorl resume runs/a",
        "discorl resume runs/a --steps 5000",
        "discorl resume runs/cmp --engine ray",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> int:
        """Hand over to the command that made the run, or the runs of several seeds."""
        for folder in seed_folders(self.folder):
            if code := self._resume(folder):
                return code
        return 0

    def _resume(self, folder: Path) -> int:
        kind = run_kind(folder)
        args = ["--resume", str(folder), *(["--json"] if self.json else [])]
        if self.steps is not None:
            names = {"train": "--steps", "compare": "--seeds", "tune": "--trials"}
            args += [names.get(kind, "--meta-steps"), str(self.steps)]
        for name in ("jobs", "engine", "engine_options"):
            value = getattr(self, name)
            if value and kind != "compare":
                raise DiscorlError(f"{flag(name)} is for comparisons; this is {KINDS[kind]}")
            args += typed(name, value) if value else []
        if self.threads is not None:
            if kind in ("compare", "tune"):
                raise DiscorlError(f"--threads: runs of {KINDS[kind]} have one thread; drop it")
            args += ["--threads", str(self.threads)]
        return int(parse_arguments(kind, args).run())


@dataclass(frozen=True)
class EvaluateCommand:
    """Play whole episodes with a trained agent, greedily and sampled."""

    folder: tyro.conf.Positional[Path]
    """A training run's folder."""
    env: str | None = None
    """Another environment than the run's, such as levels to test on; by default the run's own."""
    episodes: Count = 100
    """How many episodes of each."""
    checkpoint: str = "newest"
    """Which agent: newest, best (of the run's own evaluations), or the step of a checkpoint."""
    seed: Seed | None = None
    """Fixes the episodes; by default as in the run's own evaluations."""
    device: str | None = None
    """Where to compute; by default where the run did."""
    threads: Count | None = None
    """Threads that compute on the CPU; by default one for small networks."""
    max_steps: Count | None = None
    """Steps after which an episode is cut off; by default as in the run's own evaluations."""
    json: bool = False
    """Print JSON on standard output."""

    examples: ClassVar = (
        "discorl evaluate runs/a",
        "discorl evaluate runs/a --checkpoint best --episodes 500 --seed 7",
        "discorl evaluate runs/coinrun --env procgen/coinrun:mode=easy",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> int:
        """Evaluate and print."""
        # Here, so that --help does not wait for PyTorch.
        from discorl.envs.scores import field_score
        from discorl.runtime import computing_on, tune_process
        from discorl.training.handle import Run

        tune_process(threads_by_size=True)
        run = Run(self.folder)
        env = self.env or run.config.env
        agent = run.load_agent(self.checkpoint, self.device)
        work = self.episodes * sum(p.numel() for p in agent.params.values())
        with computing_on(self.threads, work):
            results = {name: asdict(self._evaluate(run, name)) for name in ("greedy", "sampled")}
        for result in results.values():
            score = field_score(env, result["mean_return"], result["outcomes"])
            result["score"] = score and {score.name: score.value}
        if self.json:
            print(json.dumps({"step": agent.info["steps"], "env": env, **results}))
            return 0
        console = Console()
        step = agent.info["steps"]
        where = f" in {self.env}" if self.env else ""
        console.print(
            f"{self.folder} at step {step}, {self.episodes} episodes each{where}:",
            highlight=False,
            soft_wrap=True,
        )
        for name, result in results.items():
            console.print(
                f"  {name:8} return {result['mean_return']:.3f} ± {result['std_return']:.3f}, "
                f"length {result['mean_length']:.1f}"
                + (f", {result['unfinished']} unfinished" if result["unfinished"] else "")
                + "".join(
                    f", {name.replace('_', ' ')} {value:.3f}"
                    for name, value in (result["score"] or {}).items()
                ),
                soft_wrap=True,
            )
        return 0

    def _evaluate(self, run: Run, name: str) -> Evaluation:
        from discorl.runs.display import counting

        with counting(f"evaluating, {name}", Console(stderr=True)) as watch:
            return run.evaluate(
                self.episodes,
                deterministic=name == "greedy",
                checkpoint=self.checkpoint,
                seed=self.seed,
                device=self.device,
                max_steps=self.max_steps,
                watch=watch,
                env=self.env,
            )


@dataclass(frozen=True)
class PlotCommand:
    """Draw learning curves of one or more runs; seeds of one experiment become a band.

    Discoveries and distillations are drawn with their fresh agents, comparisons environment by
    environment, searches setting by setting.
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders; one with the runs of several seeds stands for all of them."""
    out: Path = Path("curves.png")
    """Picture to write; its suffix decides the format."""
    metric: str = EPISODE_RETURN
    """Which metric, by its name in metrics.jsonl."""
    x: Axis | Literal["auto"] = "auto"
    """What runs over the x-axis: training steps, environment steps or seconds of work; by default
    environment steps if the runs take different numbers of them in a training step."""

    examples: ClassVar = (
        "discorl plot runs/a runs/b --out curves.svg",
        "discorl plot runs/a --metric losses/total_loss --x env_steps",
    )

    def run(self) -> int:
        """Draw and say where."""
        if not self.folders:
            raise DiscorlError("plot: name one or more run folders")
        folders = [run for folder in self.folders for run in seed_folders(folder)]
        kinds = {run_kind(folder) for folder in folders}
        if len(kinds) > 1:
            found = " and ".join(sorted(KINDS[kind] for kind in kinds))
            raise DiscorlError(f"plot: {found} cannot be drawn in one picture")
        if kinds == {"compare"}:
            self._refuse_choices("a comparison", metric=True)
            self._plot_comparison()
        elif kinds == {"tune"}:
            self._refuse_choices("a search", metric=True)
            self._plot_search()
        elif kinds == {"discover"} and self.metric == EPISODE_RETURN:
            self._refuse_choices("a discovery's fresh agents", metric=False)
            from discorl.discovery.plots import plot_discovery

            plot_discovery(folders, self.out)
        elif kinds == {"distil"} and self.metric == EPISODE_RETURN:
            self._refuse_choices("a distillation", metric=False)
            from discorl.distillation.plots import plot_distillation

            plot_distillation(folders, self.out)
        else:
            curves = [read_curve(folder, self.metric) for folder in folders]
            plot_curves(curves, self.out, self.metric, None if self.x == "auto" else self.x)
        runs = "1 run" if len(folders) == 1 else f"{len(folders)} runs"
        Console().print(f"{runs} drawn in {self.out}")
        return 0

    def _refuse_choices(self, what: str, metric: bool) -> None:
        """Raise DiscorlError for flags that would have no effect."""
        given = ["--x"] if self.x != "auto" else []
        given += ["--metric"] if metric and self.metric != EPISODE_RETURN else []
        if given:
            raise DiscorlError(f"plot: {what} has its own axes: drop {' and '.join(given)}")

    def _plot_search(self) -> None:
        if len(self.folders) > 1:
            raise DiscorlError("plot: searches are drawn one at a time")
        from discorl.tuning.config import require_optuna

        require_optuna()
        from discorl.tuning.pictures import plot_study
        from discorl.tuning.run import read_tuning

        tuning = read_tuning(self.folders[0])
        if not tuning.trials:
            raise DiscorlError(f"plot: no trial of {self.folders[0]} has come to its end yet")
        plot_study(tuning.trials, self.out)

    def _plot_comparison(self) -> None:
        if len(self.folders) > 1:
            raise DiscorlError("plot: comparisons are drawn one at a time")
        from discorl.comparison.pictures import plot_learning
        from discorl.comparison.run import read_summary

        plot_learning(read_summary(self.folders[0]), self.out)
