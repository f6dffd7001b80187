"""From arguments to commands, shared by all commands that start or resume a run."""

from __future__ import annotations

from typing import Any

import tyro

from discorl.errors import DiscorlError
from discorl.settings import flag, flat_settings


def parse_command(command: type, name: str, args: list[str], default: Any = None) -> Any:
    """Parse arguments into a command's dataclass."""
    options = {} if default is None else {"default": default}
    return tyro.cli(
        command,
        args=args,
        prog=f"discorl {name}",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        **options,
    )


def without_help(args: list[str]) -> list[str]:
    """Arguments for a first pass, which decides the flags' defaults."""
    return [a for a in args if a not in ("-h", "--help")]


def refuse_changes(config: Any, own: Any, allowed: str) -> None:
    """Raise DiscorlError if a resumed run is given settings that differ from its own."""
    given, kept = flat_settings(config), flat_settings(own)
    changed = [flag(name) for name in kept if name != allowed and given[name] != kept[name]]
    if changed:
        raise DiscorlError(f"--resume keeps the run's own configuration: drop {', '.join(changed)}")
