"""From arguments to commands, shared by all commands that start or resume a run."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from discorl.errors import DiscorlError
from discorl.settings import flag, flat_settings

_INDENTED = 6
"""Spaces before a flag that the parser suggests; its description has more."""
_NO_TYPE = re.compile(r"^(--\S+): no type matching .* could be instantiated from .*\]: (.*)$")
"""What the parser says of a setting that may be left unset: all that was tried, of which the last
tells what is expected."""
_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Whole numbers may be written as 1e6."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda args: _read_whole(args[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def _read_whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        with contextlib.suppress(ValueError):
            if (number := float(text)).is_integer():
                return int(number)
        raise ValueError(f"expected a whole number, got {text}") from None


def parse_command(command: Any, name: str, args: list[str], default: Any = None) -> Any:
    """Parse arguments into a command's dataclass; `--help` ends with its examples.

    Raises DiscorlError for arguments that cannot be read.
    """
    options = {} if default is None else {"default": default}
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = tyro.cli(
                command,
                args=args,
                prog=f"discorl {name}",
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
                registry=_REGISTRY,
                **options,
            )
    except SystemExit as stop:
        if stop.code:
            raise DiscorlError(_in_one_line(said.getvalue(), name)) from None
        print("\nExamples:\n" + "\n".join(f"  {line}" for line in command.examples))
        raise
    sys.stderr.write(said.getvalue())
    return parsed


def _in_one_line(box: str, name: str) -> str:
    """What the parser says in a box: its first part, and the flags that may have been meant.

    Where its output cannot show frames, the box is drawn with dashes, and its title is a part.
    """
    parts: list[list[str]] = [[]]
    guesses = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines():
        inside = line.strip("│")
        text = inside.strip()
        if not text or text[0] in "╭╰":
            continue
        if len(text) > 1 and set(text) <= set("─-"):
            parts.append([])
            continue
        parts[-1].append(text)
        indented = len(inside) - len(inside.lstrip())
        if parts[-1][0].startswith("Perhaps you meant") and text.startswith("--"):
            guesses += [text.split()[0].rstrip(",")] if indented <= _INDENTED else []
    parts = parts if "╭" in box else parts[1:]
    problem = " ".join(parts[0]).removeprefix("Error parsing ")
    problem = problem.replace("Unrecognized options:", "unknown:").replace("(required)", "")
    problem = _NO_TYPE.sub(r"\1: \2", problem)
    guess = f" Did you mean {' or '.join(dict.fromkeys(guesses))}?" if guesses else ""
    return f"{problem.rstrip(' .')}.{guess} See `discorl {name} --help`"


def without_help(args: list[str]) -> list[str]:
    """Arguments for a first pass, which decides the flags' defaults."""
    return [a for a in args if a not in ("-h", "--help")]


def refuse_changes(config: Any, own: Any, *allowed: str) -> None:
    """Raise DiscorlError if a resumed run is given settings that differ from its own."""
    given, kept = flat_settings(config), flat_settings(own)
    changed = [flag(name) for name in kept if name not in allowed and given[name] != kept[name]]
    if changed:
        raise DiscorlError(f"--resume keeps the run's own configuration: drop {', '.join(changed)}")
