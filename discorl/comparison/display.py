"""How a comparison looks: a line for each finished run, and a bar."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from discorl.comparison.cells import Cell, CellResult
from discorl.engines import Failure

_SECONDS_A_DAY = 86_400
_SECONDS_BETWEEN_LINES = 30.0


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
