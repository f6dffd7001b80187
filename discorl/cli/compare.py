"""`discorl compare`: rules x environments x seeds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.comparison.config import CompareConfig
from discorl.comparison.display import ComparisonDisplay
from discorl.comparison.report import make_published_table, make_table, notes
from discorl.comparison.run import (
    ComparisonInterrupted,
    ComparisonObserver,
    read_comparison_config,
    resume_comparison,
    start_comparison,
)
from discorl.comparison.summary import Summary
from discorl.engines import EngineName
from discorl.errors import DiscorlError
from discorl.runs.folder import unused_folder
from discorl.settings import split_settings


@dataclass(frozen=True)
class CompareCommand:
    """Compare update rules over environments and seeds: scores with intervals."""

    out: Path | None = None
    """Folder for the results; by default a new one under runs/. Running the same command again
    adds whatever is missing in it."""
    resume: Path | None = None
    """Resume the comparison in this folder. Of its settings, only --seeds may be given."""
    jobs: int | None = None
    """Runs at once, on one core each; by default one for each core, or as many as a cluster has
    room for."""
    engine: EngineName = "local"
    """Where the runs work: in processes of this machine, on Ray, or as jobs of Slurm."""
    engine_options: tuple[str, ...] = ()
    """Settings of the engine: address=HOST:PORT (ray), slurm_partition=cpu timeout_min=60
    (slurm), retries=2 (all)."""
    json: bool = False
    """Print the results as JSON on standard output, everything else on standard error."""
    config: CompareConfig = field(default_factory=CompareConfig)

    examples: ClassVar = (
        "discorl compare --rules sprout actor_critic --envs catch cliff --seeds 3",
        "discorl compare --rules actor_critic sb3/ppo --envs CartPole-v1 --env-steps 1e5",
        "discorl compare --rules disco103 zoo/ppo zoo/dqn --envs Acrobot-v1 --env-steps 2e5",
        "discorl compare --rules disco103 sprout --envs suite:minatar --engine ray",
        "discorl compare --rules actor_critic actor_critic:entropy_cost=0.01 --envs catch",
    )

    @classmethod
    def parse(cls, args: list[str]) -> CompareCommand:
        """Parse; a resumed comparison keeps its own settings."""
        first: CompareCommand = parse_command(cls, "compare", without_help(args))
        config = CompareConfig()
        if first.resume is not None:
            config = read_comparison_config(first.resume)
        command: CompareCommand = parse_command(cls, "compare", args, default=cls(config=config))
        if command.resume is not None:
            refuse_changes(command.config, config, "seeds")
            if command.out is not None:
                raise DiscorlError("--resume stays in the comparison's own folder: drop --out")
        return command

    def run(self) -> int:
        """Compare, show progress, and say how it ended."""
        console = Console(stderr=self.json)
        folder = self.resume or self.out or unused_folder("compare")
        try:
            with ComparisonDisplay(console) as display:
                summary = self._work(folder, display)
        except ComparisonInterrupted as stop:
            again = f"discorl resume {stop.folder}"
            console.print(f"{stop}. Resume with: {again}", soft_wrap=True, highlight=False)
            return stop.exit_code
        if self.json:
            print(json.dumps(summary.as_json()))
        _print_summary(console, summary, folder)
        return 1 if summary.failed else 0

    def _work(self, folder: Path, observer: ComparisonObserver) -> Summary:
        options = split_settings(self.engine_options, "--engine-options")
        where = (self.jobs, observer, self.engine, options)
        if self.resume is not None:
            return resume_comparison(folder, self.config.seeds, *where)
        return start_comparison(self.config, folder, *where)


def _print_summary(console: Console, summary: Summary, folder: Path) -> None:
    console.print(make_table(summary))
    for note in notes(summary):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    if (published := make_published_table(summary)) is not None:
        console.print(published)
    for cell, failure in summary.failed:
        line = f"failed: {cell}: {failure.error}"
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(f"results, table and pictures are in {folder}", soft_wrap=True, highlight=False)
    if summary.failed:
        again = f"discorl resume {folder}"
        console.print(f"Try the failed ones again with: {again}", soft_wrap=True, highlight=False)
