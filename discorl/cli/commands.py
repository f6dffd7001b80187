"""The commands by name, each imported only when it is called, so that all start fast."""

from __future__ import annotations

import importlib
from typing import Any

from discorl.cli.parsing import parse_command
from discorl.errors import UnknownNameError

COMMANDS = {
    "train": ("discorl.cli.train", "TrainCommand"),
    "discover": ("discorl.cli.discover", "DiscoverCommand"),
    "distil": ("discorl.cli.distil", "DistilCommand"),
    "compare": ("discorl.cli.compare", "CompareCommand"),
    "tune": ("discorl.cli.tune", "TuneCommand"),
    "analyse": ("discorl.cli.analyse", "AnalyseCommand"),
    "resume": ("discorl.cli.runs", "ResumeCommand"),
    "evaluate": ("discorl.cli.runs", "EvaluateCommand"),
    "watch": ("discorl.cli.watch", "WatchCommand"),
    "export": ("discorl.cli.export", "ExportCommand"),
    "plot": ("discorl.cli.runs", "PlotCommand"),
    "report": ("discorl.cli.reports", "ReportCommand"),
    "serve": ("discorl.cli.reports", "ServeCommand"),
    "rules": ("discorl.cli.rules", "RulesCommand"),
    "envs": ("discorl.cli.envs", "EnvsCommand"),
    "verify": ("discorl.cli.verify", "VerifyCommand"),
    "bench": ("discorl.cli.bench", "BenchCommand"),
    "completion": ("discorl.cli.completion", "CompletionCommand"),
    "version": ("discorl.cli.runs", "VersionCommand"),
}
"""Command -> module and dataclass."""


def find_command(name: str) -> Any:
    """The dataclass of a command."""
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS, "See `discorl --help`.")
    module, attribute = COMMANDS[name]
    return getattr(importlib.import_module(module), attribute)


def parse_arguments(name: str, args: list[str]) -> Any:
    """A command with its arguments, ready to run."""
    command = find_command(name)
    if hasattr(command, "parse"):
        return command.parse(args)
    return parse_command(command, name, args)
