"""`discorl bench`: speed, measured side by side with a peer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console
from rich.table import Table

from discorl.errors import DiscorlError


@dataclass(frozen=True)
class BenchLearner:
    """Time a learner step at the published setting against disco-torch; ratios come last."""

    rule: str = "random"
    """A rule of Disco103's size: disco103, or a random one, which takes just as long."""
    rounds: int = 15
    """How often each is timed; medians are reported."""
    peer: bool = True
    """Time disco-torch too (extra `bench`)."""
    compile: bool = True
    """Time the compiled step too; compiling takes a minute or two."""
    reference: Path | None = None
    """Time the published JAX implementation too: a Python that has it, made by
    docs/reference_environment.sh."""
    record: Path | None = None
    """Add the figures to this JSON file too, with date, commit and processor."""
    json: bool = False
    """Print JSON on standard output."""

    def run(self) -> int:
        """Measure and print."""
        # Here, so that --help does not wait for PyTorch.
        from discorl.bench.learner import bench_learner
        from discorl.library.catalogue import load_rule, require_discovered, save_rule
        from discorl.rules.disco import DiscoRule

        _check_rounds(self.rounds, least=10)
        rule = DiscoRule.random()
        if self.rule != "random":
            rule = require_discovered(load_rule(self.rule))
        with TemporaryDirectory() as folder:
            weights = Path(folder) / "rule.npz"
            save_rule(rule, weights)
            keep = _recorder("learner", self.record)
            timed = (self.rounds, self.peer, self.compile, self.reference)
            return _report(lambda: bench_learner(rule, weights, *timed), self.json, keep)


@dataclass(frozen=True)
class BenchDiscover:
    """Time a meta-step at the published setting in both modes, and measure its memory; or one of
    a population of small agents, one by one and stacked."""

    rounds: int = 10
    """How often each is timed; medians are reported."""
    memory: bool = True
    """Measure peak memory for 1, 2, 5, 10 and 20 inner updates too, each in its own process."""
    agents: int = 0
    """Time a population of this many small agents in place of the published setting."""
    copies: int = 8
    """Copies of the environment that each of them has."""
    envs: tuple[str, ...] = ("family:catch",)
    """What they play, dealt out in turn; if there are several, padded to one shape too."""
    record: Path | None = None
    """Add the figures to this JSON file too, with date, commit and processor."""
    json: bool = False
    """Print JSON on standard output."""

    def run(self) -> int:
        """Measure and print."""
        from discorl.bench.discover import bench_discover, bench_population

        if self.agents:
            _check_rounds(self.rounds, least=3)
            population = (self.agents, self.copies, self.envs)
            keep = _recorder("population", self.record)
            return _report(lambda: bench_population(self.rounds, *population), self.json, keep)
        _check_rounds(self.rounds, least=5)
        keep = _recorder("discover", self.record)
        return _report(lambda: bench_discover(self.rounds, self.memory), self.json, keep)


@dataclass(frozen=True)
class BenchAtari:
    """Time environment steps in an Atari game, as ratios to a plain loop over ale-py."""

    game: str = "ALE/Pong-v5"
    """The game, with the settings of the v5 environments."""
    num_envs: int = 16
    """Copies of the game that act at once."""
    rule: str = "sprout"
    """The rule to time training with, at its preset."""
    replay: bool = True
    """Train as the preset does. --no-replay learns from every rollout once, and times that in four
    ways: plain, with --overlap, with --bfloat16, and with both."""
    rounds: int = 15
    """How often each is timed; medians and quartiles are reported."""
    json: bool = False
    """Print JSON on standard output."""

    def run(self) -> int:
        """Measure and print."""
        from discorl.bench.atari import bench_atari

        _check_rounds(self.rounds, least=5)
        return _report(
            lambda: bench_atari(self.game, self.num_envs, self.rule, self.rounds, self.replay),
            self.json,
        )


@dataclass(frozen=True)
class BenchCommand:
    """Time a learner step against disco-torch, a meta-step, or Atari against the emulator."""

    what: (
        Annotated[BenchLearner, tyro.conf.subcommand("learner")]
        | Annotated[BenchDiscover, tyro.conf.subcommand("discover")]
        | Annotated[BenchAtari, tyro.conf.subcommand("atari")]
    )

    examples: ClassVar = (
        "discorl bench learner --no-compile",
        "discorl bench discover --no-memory --json",
        "discorl bench discover --agents 28 --copies 8 --rounds 5",
        "discorl bench atari --game ALE/Breakout-v5",
    )

    def run(self) -> int:
        """Run the chosen benchmark."""
        return self.what.run()


def _check_rounds(rounds: int, least: int) -> None:
    if rounds < least:
        raise DiscorlError(f"--rounds: at least {least}, or the medians mean little")


def _recorder(benchmark: str, path: Path | None) -> Callable[[dict[str, Any]], None] | None:
    """What keeps figures in the file, which is read, like the commit, before anything is timed."""
    if path is None:
        return None
    from discorl.bench.record import current_commit, read_record, record

    if path.exists():
        read_record(path)
    return partial(record, path, benchmark, current_commit())


def _report(
    measure: Callable[[], dict[str, Any]],
    as_json: bool,
    keep: Callable[[dict[str, Any]], None] | None = None,
) -> int:
    """Measure while a spinner turns, keep the figures if asked to, and print."""
    from discorl.runtime import tune_process

    tune_process()
    with Console(stderr=True).status("timing, round by round"):
        figures = measure()
    if keep is not None:
        keep(figures)
    print_figures(figures, as_json)
    return 0


def print_figures(figures: dict[str, Any], as_json: bool) -> None:
    """A table with a row for each figure, or one line of JSON."""
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("figure", "value")
    table.columns[1].justify = "right"
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), _text(value))
    Console().print(table)


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.3f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"
