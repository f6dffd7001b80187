"""`discorl` and `python -m discorl.cli`."""

from __future__ import annotations

import re
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from discorl.cli.commands import COMMANDS, parse_arguments
from discorl.errors import DiscorlError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors a user can fix take one line."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    if not debug:
        warnings.showwarning = _show_warning
    args = [arg for arg in args if arg != "--debug"]
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    if args[:1] == ["--version"]:
        args = ["version"]
    try:
        if not args or args[0] in ("-h", "--help"):
            print_overview()
            return 0 if args else 2
        return _told_launcher(int(parse_arguments(args[0], args[1:]).run()))
    except DiscorlError as error:
        if debug:
            traceback.print_exc()
        # In one line, whatever an environment or a library put into its message.
        line = f"error: {' '.join(str(error).split())}"
        console = Console(stderr=True, soft_wrap=True)
        console.print(line, style="red", markup=False, highlight=False)
        return 2
    except (MemoryError, RuntimeError) as error:
        if debug or not _is_lack_of_memory(error):
            raise
        print(f"error: not enough memory: {_last_line(error)}; try smaller sizes", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone, as `| head` does.
        sys.stderr.close()
        return 141
    except OSError as error:
        if debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def _told_launcher(code: int) -> int:
    """The exit code; to whoever started several processes, one that was asked to stop and did has
    not failed."""
    if code not in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return code
    from discorl.processes import group_size  # It brings PyTorch, which most commands need not.

    return 0 if group_size() > 1 else code


def _is_lack_of_memory(error: Exception) -> bool:
    words = ("allocate memory", "size calculation overflowed", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _last_line(error: Exception) -> str:
    """What an allocator says, without the place in its code."""
    line = (str(error) or type(error).__name__).partition("\n")[0]
    return line.rpartition("Allocator: ")[2].rstrip(".")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """In one line, without colours and the code that it came from."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(message)).strip()
    # Gymnasium warns of each error in a worker before it raises it: it is told once.
    if text and not text.startswith("ERROR: "):
        line = text.removeprefix("WARN: ").splitlines()[0]
        print(f"warning: {line}", file=sys.stderr)


def print_overview() -> None:
    """Every command and what it does."""
    console = Console()
    console.print("Train agents with discovered update rules, and discover new ones.\n")
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, command in COMMANDS.items():
        table.add_row(f"discorl {name}", command.summary)
    console.print(table)
    console.print(
        "\n`discorl COMMAND --help` lists a command's options, with examples; `--debug` shows the "
        "whole traceback of an error."
    )
    print(
        "\nExamples:\n  discorl train catch --out runs/a\n  discorl evaluate runs/a\n"
        "  discorl plot runs/a\n  discorl help train"
    )


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
