"""How a search looks: a line for each trial, and a bar."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from discorl.tuning.study import Trial

_SECONDS_A_DAY = 86_400
_SECONDS_BETWEEN_LINES = 30.0
_LISTED = 10


@contextmanager
def tuning_shown_in_python(progress: bool | None) -> Iterator[TuningDisplay | None]:
    """What shows a search that was started from Python, if anything; by default in a terminal or a
    notebook."""
    console = Console(stderr=True)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    if not progress:
        yield None
        return
    with TuningDisplay(console) as display:
        yield display


class TuningDisplay:
    """A line for each trial that has ended, and on a terminal a bar below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.completed}/{task.total} trials"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
            # Trials take minutes: the default of half a minute holds too few to estimate speed.
            speed_estimate_period=_SECONDS_A_DAY,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> TuningDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, title: str, trials: int, done: int) -> None:
        """Say what is about to happen."""
        self._print(f"discorl: {title}")
        if done:
            self._print(f"resuming with {done} trials done")
        self._bar.reset(self._task, total=trials, completed=done)
        self._bar.start()

    def trying(self, number: int, values: dict[str, Any], look: int, value: float | None) -> None:
        """How far the trial is; a line now and then where there is no bar."""
        text = f"trial {number}: look {look}" + (f", return {value:.3f}" if look and value else "")
        self._bar.update(self._task, description=text)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            self._print(text)

    def finished(self, trial: Trial, done: int) -> None:
        """Say how the trial ended and move the bar."""
        self._last = time.monotonic()
        self._bar.update(self._task, completed=done)
        values = " ".join(f"{name}={show(value)}" for name, value in trial.values.items())
        self._print(f"{done}  trial {trial.number}  {values}  {outcome(trial)}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def trials_table(trials: list[Trial]) -> Table:
    """The best trials, for a terminal.

    Args:
      trials: the best first.
    """
    table = Table()
    names = list(trials[0].values)
    for name in ("trial", *names, "mean return"):
        table.add_column(Text(name), justify="right", overflow="fold")
    for trial in trials[:_LISTED]:
        values = [show(trial.values[name]) for name in names]
        style = "bold" if trial is trials[0] else None
        table.add_row(*map(Text, (str(trial.number), *values, outcome(trial))), style=style)
    return table


def outcome(trial: Trial) -> str:
    """How a trial ended, in a few words."""
    value = "" if trial.mean_return is None else f"{trial.mean_return:.3f}"
    if trial.finished:
        return value
    return f"failed: {trial.error}" if trial.error else f"{value} (pruned)"


def show(value: Any) -> str:
    """A setting's value, not longer than need be."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
