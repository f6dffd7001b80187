"""The commands by name, each imported only when it is called, so that all start fast."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from discorl.errors import UnknownNameError


class Command(NamedTuple):
    """Where a command is, and what its docstring says first: the overview imports none of them."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "train": Command(
        "discorl.cli.train",
        "TrainCommand",
        "Train an agent with an update rule, or resume a run that was stopped.",
    ),
    "discover": Command(
        "discorl.cli.discover",
        "DiscoverCommand",
        "Discover a rule by meta-gradients, or by evolution strategies, over a population of "
        "agents and environments.",
    ),
    "distil": Command(
        "discorl.cli.distil",
        "DistilCommand",
        "Distil a discovered rule into a smaller one, on agents that learn by both.",
    ),
    "compare": Command(
        "discorl.cli.compare",
        "CompareCommand",
        "Compare update rules over environments and seeds: scores with intervals.",
    ),
    "tune": Command(
        "discorl.cli.tune",
        "TuneCommand",
        "Search for settings with which a rule does well in an environment.",
    ),
    "analyse": Command(
        "discorl.cli.analyse",
        "AnalyseCommand",
        "Look inside rules: what they respond to, what their agents know, what they rely on.",
    ),
    "launch": Command(
        "discorl.cli.launch",
        "LaunchCommand",
        "Run train, discover, distil or resume in several processes that share the work.",
    ),
    "resume": Command(
        "discorl.cli.runs",
        "ResumeCommand",
        "Resume a run of any kind: training, discovery, distillation, comparison or search.",
    ),
    "evaluate": Command(
        "discorl.cli.runs",
        "EvaluateCommand",
        "Play whole episodes with a trained agent, greedily and sampled.",
    ),
    "watch": Command(
        "discorl.cli.watch",
        "WatchCommand",
        "Watch a trained agent play: a video of whole episodes, or a board game in the terminal.",
    ),
    "export": Command(
        "discorl.cli.export",
        "ExportCommand",
        "Write a trained agent's policy as ONNX or for torch.export, and check what was written.",
    ),
    "pack": Command(
        "discorl.cli.hub",
        "PackCommand",
        "Write an agent or a rule as a folder for the Hugging Face hub, with a card.",
    ),
    "push": Command(
        "discorl.cli.hub",
        "PushCommand",
        "Upload a folder that `discorl pack` wrote to the Hugging Face hub.",
    ),
    "plot": Command(
        "discorl.cli.runs",
        "PlotCommand",
        "Draw learning curves of one or more runs; seeds of one experiment become a band.",
    ),
    "report": Command(
        "discorl.cli.reports",
        "ReportCommand",
        "Write a report on one or more runs: one web page with interactive curves.",
    ),
    "serve": Command(
        "discorl.cli.reports",
        "ServeCommand",
        "Show the runs of a folder in a browser, live while they train.",
    ),
    "rules": Command(
        "discorl.cli.rules", "RulesCommand", "List, show, fetch and export update rules."
    ),
    "envs": Command(
        "discorl.cli.envs",
        "EnvsCommand",
        "List the environments, show one with its training settings, or draw them.",
    ),
    "verify": Command(
        "discorl.cli.verify",
        "VerifyCommand",
        "Compare every quantity in golden files with ours, in float64 and in float32.",
    ),
    "bench": Command(
        "discorl.cli.bench",
        "BenchCommand",
        "Time a learner step against disco-torch, a meta-step, or Atari against the emulator.",
    ),
    "completion": Command(
        "discorl.cli.completion",
        "CompletionCommand",
        "Print a script for tab completion in bash, zsh or fish.",
    ),
    "version": Command(
        "discorl.cli.version", "VersionCommand", "Print the versions of discorl and of PyTorch."
    ),
}


def find_command(name: str) -> Any:
    """The dataclass of a command."""
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS, "See `discorl --help`.")
    command = COMMANDS[name]
    return getattr(importlib.import_module(command.module), command.attribute)


def parse_arguments(name: str, args: list[str]) -> Any:
    """A command with its arguments, ready to run."""
    command = find_command(name)
    if hasattr(command, "parse"):
        return command.parse(args)
    # The parser is not needed for the overview.
    from discorl.cli.parsing import parse_command

    return parse_command(command, name, args)
