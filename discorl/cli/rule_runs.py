"""What `discover` and `distil` have in common: both start or resume a run that makes a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.errors import DiscorlError
from discorl.runs.folder import read_settings_file, unused_folder


def parse_rule_run(
    command: Any,
    name: Literal["discover", "distil"],
    args: list[str],
    config: Any,
    read: Callable[[Path], Any],
) -> tuple[Any, Any]:
    """The command, with defaults from the run it resumes or from a configuration file, if one is
    named; and those defaults.

    Args:
      config: the class of its settings.
      read: the settings of a run folder.
    """
    first = parse_command(command, name, without_help(args))
    defaults = config()
    if first.resume is not None:
        defaults = read(first.resume)
    elif first.config_file is not None:
        defaults = config.from_json(read_settings_file(first.config_file, name))
    return parse_command(command, name, args, default=command(config=defaults)), defaults


def check_resumed(command: Any, defaults: Any) -> None:
    """Raise DiscorlError if a run is to be resumed with other settings, or in another folder."""
    if command.resume is None:
        return
    refuse_changes(command.config, defaults, "meta_steps", "threads")
    if command.out is not None:
        raise DiscorlError("--resume stays in the run's own folder: drop --out")


def out_folder(out: Path | None, name: str) -> Path:
    """The folder asked for, or a new one with this name."""
    return unused_folder(name) if out is None else out


def print_result(
    console: Console, result: dict[str, Any], as_json: bool, words: str, rule: str
) -> None:
    """How the run ended, in words, and where the rule is; or as JSON."""
    if as_json:
        print(json.dumps(result))
        return
    console.print(f"\n{words}", highlight=False)
    console.print(
        f"The newest {rule} is {result['folder']}/rule.safetensors. Train with the best by\n"
        f"  discorl train catch --rule {result['folder']}/best_rule.safetensors",
        soft_wrap=True,
    )
