"""How a comparison looks: a line for each finished run, and a bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from discorl.comparison.cells import Cell, CellResult
from discorl.comparison.progress import Progress
from discorl.engines import Failure

_SECONDS_A_DAY = 86_400
_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BETWEEN_LOOKS = 1.0


@contextmanager
def comparison_shown_in_python(progress: bool | None) -> Iterator[ComparisonDisplay | None]:
    """What shows a comparison that was started from Python, if anything; by default in a terminal
    or a notebook."""
    console = Console(stderr=True)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    if not progress:
        yield None
        return
    with ComparisonDisplay(console) as display:
        yield display


class ComparisonDisplay:
    """A line for each finished run, and on a terminal a bar below them, which says how far those
    under way are."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = self._last = time.monotonic()
        self._done = 0
        self._bar = Bar(
            TextColumn("{task.fields[done]}/{task.total} runs"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[under_way]}"),
            console=console,
            disable=not console.is_terminal,
            # Runs take minutes: the default of half a minute holds too few to estimate speed.
            speed_estimate_period=_SECONDS_A_DAY,
        )
        self._task = self._bar.add_task("comparing", total=None, done=0, under_way="")

    def __enter__(self) -> ComparisonDisplay:
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
        self._done = done
        self._bar.reset(self._task, total=cells, completed=done, done=done, under_way="")
        self._bar.start()

    def finished(self, cell: Cell, outcome: CellResult | Failure) -> None:
        """Say how the run ended and move the bar."""
        self._done += 1
        self._bar.update(self._task, completed=self._done, done=self._done, under_way="")
        self._last = time.monotonic()
        task = self._bar.tasks[0]
        line = f"{self._done}/{task.total:.0f}  {cell}  "
        if isinstance(outcome, Failure):
            self._print(f"{line}FAILED: {outcome.error}", style="red")
            return
        line += f"return {outcome.final_return:.3f}  {outcome.seconds:.0f} s"
        if not self._console.is_terminal and task.time_remaining:
            line += f"  ETA {timedelta(seconds=int(task.time_remaining))}"
        self._print(line)

    def waiting(self, under_way: Callable[[], Sequence[Progress]]) -> None:
        """Move the bar; where there is none, a line now and then."""
        now, terminal = time.monotonic(), self._console.is_terminal
        if now - self._last < (_SECONDS_BETWEEN_LOOKS if terminal else _SECONDS_BETWEEN_LINES):
            return
        self._last = now
        runs = under_way()
        done = self._done + sum(run.share for run in runs)
        self._bar.update(self._task, completed=done, under_way="; ".join(map(str, runs)))
        if not terminal:
            passed = timedelta(seconds=int(now - self._begun))
            line = f"{self._done}/{self._bar.tasks[0].total:.0f}  under way for {passed}"
            self._print("; ".join([line, *map(str, runs)]))

    def _print(self, line: str, style: str | None = None) -> None:
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
