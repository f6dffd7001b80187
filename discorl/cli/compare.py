"""`discorl compare`: rules x environments x seeds."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.comparison.cells import Cell, CellResult
from discorl.comparison.config import CompareConfig
from discorl.comparison.report import make_table, notes
from discorl.comparison.run import (
    ComparisonInterrupted,
    ComparisonObserver,
    read_comparison_config,
    resume_comparison,
    start_comparison,
)
from discorl.comparison.summary import Summary
from discorl.comparison.workers import Failure
from discorl.errors import DiscorlError
from discorl.runs.folder import unused_folder

_SECONDS_A_DAY = 86_400
_SECONDS_BETWEEN_LINES = 30.0


@dataclass(frozen=True)
class CompareCommand:
    """Compare update rules over environments and seeds: scores with intervals."""

    out: Path | None = None
    """Folder for the results; by default a new one under runs/. Running the same command again
    adds whatever is missing in it."""
    resume: Path | None = None
    """Resume the comparison in this folder. Of its settings, only --seeds may be given."""
    jobs: int | None = None
    """Runs at once, on one core each; by default one for each core."""
    json: bool = False
    """Print the results as JSON on standard output, everything else on standard error."""
    config: CompareConfig = field(default_factory=CompareConfig)

    examples: ClassVar = (
        "discorl compare --rules sprout actor_critic --envs catch cliff --seeds 3",
        "discorl compare --rules actor_critic sb3/ppo --envs CartPole-v1 --env-steps 1e5",
        "discorl compare --rules disco103 zoo/ppo zoo/dqn --envs Acrobot-v1 --env-steps 2e5",
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
            with _Display(console) as display:
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
        if self.resume is not None:
            return resume_comparison(folder, self.config.seeds, self.jobs, observer)
        return start_comparison(self.config, folder, self.jobs, observer)


class _Display:
    """A line for each finished run, and on a terminal a bar below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = self._last = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.completed}/{task.total} runs"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            # Runs take minutes: the default of half a minute holds too few to estimate speed.
            speed_estimate_period=_SECONDS_A_DAY,
        )
        self._task = self._bar.add_task("comparing", total=None)

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def preparing(self, what: str) -> None:
        """Say so."""
        self._print(what)

    def start(self, title: str, cells: int, done: int) -> None:
        """Say what is about to happen."""
        self._print(f"discorl: {title}")
        if done:
            self._print(f"resuming with {done} of them done")
        self._begun = self._last = time.monotonic()
        self._bar.reset(self._task, total=cells, completed=done)
        self._bar.start()

    def finished(self, cell: Cell, outcome: CellResult | Failure) -> None:
        """Say how the run ended and move the bar."""
        self._bar.advance(self._task)
        self._last = time.monotonic()
        task = self._bar.tasks[0]
        line = f"{task.completed:.0f}/{task.total:.0f}  {cell}  "
        if isinstance(outcome, Failure):
            self._print(f"{line}FAILED: {outcome.error}", style="red")
            return
        line += f"return {outcome.final_return:.3f}  {outcome.seconds:.0f} s"
        if not self._console.is_terminal and task.time_remaining:
            line += f"  ETA {timedelta(seconds=int(task.time_remaining))}"
        self._print(line)

    def waiting(self) -> None:
        """A line now and then where there is no bar."""
        now = time.monotonic()
        if self._console.is_terminal or now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        task = self._bar.tasks[0]
        passed = timedelta(seconds=int(now - self._begun))
        self._print(f"{task.completed:.0f}/{task.total:.0f}  under way for {passed}")

    def _print(self, line: str, style: str | None = None) -> None:
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def _print_summary(console: Console, summary: Summary, folder: Path) -> None:
    console.print(make_table(summary))
    for note in notes(summary):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for cell, failure in summary.failed:
        line = f"failed: {cell}: {failure.error}"
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(f"results, table and pictures are in {folder}", soft_wrap=True, highlight=False)
    if summary.failed:
        again = f"discorl resume {folder}"
        console.print(f"Try the failed ones again with: {again}", soft_wrap=True, highlight=False)
