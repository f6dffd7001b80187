"""From arguments to commands, shared by all commands that start or resume a run."""

from __future__ import annotations

from typing import Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from discorl.errors import DiscorlError
from discorl.settings import flag, flat_settings

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
        number = float(text)
        if not number.is_integer():
            raise ValueError(f"expected a whole number, got {text}") from None
        return int(number)


def parse_command(command: Any, name: str, args: list[str], default: Any = None) -> Any:
    """Parse arguments into a command's dataclass; `--help` ends with its examples."""
    options = {} if default is None else {"default": default}
    try:
        return tyro.cli(
            command,
            args=args,
            prog=f"discorl {name}",
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            registry=_REGISTRY,
            **options,
        )
    except SystemExit as stop:
        examples = getattr(command, "examples", ())
        if stop.code == 0 and examples:
            print("\nExamples:\n" + "\n".join(f"  {line}" for line in examples))
        raise


def without_help(args: list[str]) -> list[str]:
    """Arguments for a first pass, which decides the flags' defaults."""
    return [a for a in args if a not in ("-h", "--help")]


def refuse_changes(config: Any, own: Any, allowed: str) -> None:
    """Raise DiscorlError if a resumed run is given settings that differ from its own."""
    given, kept = flat_settings(config), flat_settings(own)
    changed = [flag(name) for name in kept if name != allowed and given[name] != kept[name]]
    if changed:
        raise DiscorlError(f"--resume keeps the run's own configuration: drop {', '.join(changed)}")
