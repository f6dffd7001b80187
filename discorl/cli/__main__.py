"""`discorl` and `python -m discorl.cli`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.console import Console

from discorl.cli.rules import RulesCommand
from discorl.cli.verify import VerifyCommand
from discorl.errors import DiscorlError

Command = (
    Annotated[RulesCommand, tyro.conf.subcommand("rules")]
    | Annotated[VerifyCommand, tyro.conf.subcommand("verify")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what a user can mend is said in one line."""
    command = tyro.cli(
        Command,  # type: ignore[arg-type]
        args=argv,
        prog="discorl",
        description="Train agents with discovered update rules, and discover new ones.",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    try:
        return command.run()
    except DiscorlError as error:
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", style="red", markup=False)
        return 2


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
