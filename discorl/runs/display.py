"""How a run looks: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from discorl.processes import follows
from discorl.runs.session import Interrupted, Observer, Progress

_SECONDS_BETWEEN_LINES = 5.0
_IN_A_LINE = 3


def make_display(console: Console, shown: dict[str, str]) -> Observer:
    """The display that suits where the console writes to.

    Args:
      shown: metric -> label, in the order of the table; plain lines show the first three.
    """
    lively = console.is_terminal or console.is_jupyter
    return LiveDisplay(console, shown) if lively else PlainDisplay(console, shown)


def shown_in_python(progress: bool | None, shown: dict[str, str]) -> Observer:
    """What shows a run that was started from Python, if anything.

    Args:
      progress: whether to show it; by default in a terminal or a notebook.
      shown: see `make_display`.
    """
    console = Console(stderr=True)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    return make_display(console, shown) if progress and not follows() else Observer()


def watch(
    shown: dict[str, str],
    work: Callable[[Observer], dict[str, Any]],
    console: Console,
) -> tuple[int, dict[str, Any]]:
    """Show a run while it works, unless another process does; returns its exit code, and its
    result if it finished."""
    quiet = follows()
    try:
        with Observer() if quiet else make_display(console, shown) as display:
            return 0, work(display)
    except Interrupted as stop:
        if not quiet:
            console.print(f"{stop}. Resume with: discorl resume {stop.folder}", soft_wrap=True)
        return stop.exit_code, {}


@contextmanager
def counting(what: str, console: Console) -> Iterator[Callable[[int, int], bool]]:
    """Shows how much of one piece of work is done: a bar, or a line every few seconds.

    Gives what is to be called with the number done and the total. It returns False: there is no
    reason to stop.
    """
    lively = console.is_terminal or console.is_jupyter
    lines = PlainDisplay(console, {})
    with Bar(console=console, transient=True, disable=not lively) as bar:
        task = bar.add_task(what, total=None)

        def tell(done: int, total: int) -> bool:
            if lively:
                bar.update(task, completed=done, total=total)
            else:
                lines.evaluating(what, done, total)
            return False

        yield tell


@contextmanager
def counting_in_python(
    progress: bool | None, what: str
) -> Iterator[Callable[[int, int], bool] | None]:
    """The same for what was started from Python, if it is to be shown; see `shown_in_python`."""
    console = Console(stderr=True)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    if not progress:
        yield None
        return
    with counting(what, console) as tell:
        yield tell


class PlainDisplay(Observer):
    """One line every few seconds, for logs and pipes."""

    def __init__(self, console: Console, shown: dict[str, str]) -> None:
        self._console = console
        self._shown = list(shown.items())[:_IN_A_LINE]
        self._last = 0.0
        self._evaluation = ""

    def start(self, title: str, steps: int, notes: list[str]) -> None:
        """Say what is about to happen."""
        for line in [f"discorl: {title}", *notes]:
            self._console.print(line, highlight=False, soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """One line, unless the last was a moment ago."""
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES and progress.step < progress.steps:
            return
        self._last = now
        metrics = progress.metrics
        parts = [f"step {progress.step}/{progress.steps}"]
        for name, label in self._shown:
            if name in metrics:
                parts.append(f"{label} {metrics[name]:.3f}")
        rate = metrics["time/steps_per_second"]
        parts.append(f"{rate:.1f} steps/s")
        parts.append(f"ETA {_duration((progress.steps - progress.step) / max(rate, 1e-9))}")
        self.message("  ".join(parts))

    def evaluating(self, what: str, done: int, total: int) -> None:
        """One line, unless the last was a moment ago."""
        now = time.monotonic()
        if what != self._evaluation:
            self._evaluation, self._last = what, now
        elif now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            self.message(f"{what}: {done}/{total}")

    def message(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, highlight=False, soft_wrap=True)


class LiveDisplay(Observer):
    """A bar and a table that change in place."""

    def __init__(self, console: Console, shown: dict[str, str]) -> None:
        self._console = console
        self._shown = shown
        self._latest: dict[str, float] = {}
        self._bar = Bar(
            TextColumn("{task.completed}/{task.total} steps"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("training", total=1)
        self._side = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            console=console,
        )
        self._evaluation = self._side.add_task("evaluating", total=1, visible=False)
        self._live = Live(self._bar, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._live.__exit__(None, None, None)

    def start(self, title: str, steps: int, notes: list[str]) -> None:
        """Say what is about to happen above the panel."""
        for line in [f"discorl: {title}", *notes]:
            self._console.print(line, highlight=False)
        self._bar.update(self._task, total=steps)

    def progress(self, progress: Progress) -> None:
        """Move the bar and refill the table."""
        self._bar.update(self._task, completed=progress.step)
        self._latest |= progress.metrics
        self._refresh()

    def _refresh(self) -> None:
        table = Table(show_header=False, box=None, padding=(0, 2))
        for name, label in self._shown.items():
            if name in self._latest:
                value = self._latest[name]
                table.add_row(label, f"{value:,.0f}" if value == int(value) else f"{value:.3f}")
        self._live.update(Group(self._bar, self._side, table))

    def evaluating(self, what: str, done: int, total: int) -> None:
        """A bar of its own, as long as it is under way."""
        self._side.update(self._evaluation, description=what, completed=done, total=total)
        self._side.update(self._evaluation, visible=done < total)
        self._refresh()

    def message(self, text: str) -> None:
        """A line above the panel."""
        self._console.print(text, highlight=False)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"
