"""How a run looks: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from discorl.training.config import TrainConfig
from discorl.training.run import Progress

_SECONDS_BETWEEN_LINES = 5.0
_SHOWN = {
    "charts/episode_return": "return (last 100 episodes)",
    "rule/entropy": "policy entropy",
    "losses/total_loss": "loss",
    "losses/pi_loss": "policy loss",
    "losses/pg_loss": "policy-gradient loss",
    "losses/value_loss": "value loss",
    "losses/q_loss": "value loss",
    "eval/return_greedy": "evaluation, greedy",
    "eval/return_sampled": "evaluation, sampled",
    "charts/env_steps": "environment steps",
    "time/steps_per_second": "steps/s",
}


class Display(Protocol):
    """An observer of a run that is entered and left."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self, config: TrainConfig, folder: Path, notes: list[str]) -> None: ...

    def progress(self, progress: Progress) -> None: ...


def make_display(console: Console) -> Display:
    """The display that fits where the console writes to."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class PlainDisplay:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, config: TrainConfig, folder: Path, notes: list[str]) -> None:
        """Say what is about to happen."""
        for line in _opening(config, folder, notes):
            self._console.print(line, highlight=False, soft_wrap=True)

    def progress(self, progress: Progress) -> None:
        """One line, unless the last was a moment ago."""
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES and progress.step < progress.steps:
            return
        self._last = now
        metrics = progress.metrics
        parts = [f"step {progress.step}/{progress.steps}"]
        for name, label in (
            ("charts/episode_return", "return"),
            ("rule/entropy", "entropy"),
            ("losses/total_loss", "loss"),
        ):
            if name in metrics:
                parts.append(f"{label} {metrics[name]:.3f}")
        rate = metrics["time/steps_per_second"]
        parts.append(f"{rate:.1f} steps/s")
        parts.append(f"ETA {_duration((progress.steps - progress.step) / max(rate, 1e-9))}")
        self._console.print("  ".join(parts), highlight=False, soft_wrap=True)


class LiveDisplay:
    """A bar and a table that change in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Bar(
            TextColumn("{task.completed}/{task.total} steps"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("training", total=1)
        self._live = Live(self._bar, console=console, refresh_per_second=4)

    def __enter__(self) -> LiveDisplay:
        self._live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._live.__exit__(None, None, None)

    def start(self, config: TrainConfig, folder: Path, notes: list[str]) -> None:
        """Say what is about to happen above the panel."""
        for line in _opening(config, folder, notes):
            self._console.print(line, highlight=False)
        self._bar.update(self._task, total=config.steps)

    def progress(self, progress: Progress) -> None:
        """Move the bar and refill the table."""
        self._bar.update(self._task, completed=progress.step)
        table = Table(show_header=False, box=None, padding=(0, 2))
        for name, label in _SHOWN.items():
            if name in progress.metrics:
                value = progress.metrics[name]
                table.add_row(label, f"{value:,.0f}" if value == int(value) else f"{value:.3f}")
        self._live.update(Group(self._bar, table))


def _opening(config: TrainConfig, folder: Path, notes: list[str]) -> list[str]:
    return [f"discorl: {config.rule} on {config.env}, seed {config.seed} -> {folder}", *notes]


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"
