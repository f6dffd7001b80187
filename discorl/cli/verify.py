"""`discorl verify`: compare this implementation with golden files of the published one."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from discorl.errors import DiscorlError

if TYPE_CHECKING:
    from discorl.verify import Check, FileReport, Report


@dataclass(frozen=True)
class VerifyCommand:
    """Compare every quantity in golden files with ours, in float64 and in float32.

    Exit code: 0 if all are within tolerance, 1 if some are not, 2 if a file could not be
    verified.
    """

    files: tyro.conf.Positional[tuple[Path, ...]]
    """Golden .npz files."""
    weights: Path | None = None
    """A rule's .npz, for golden files that do not carry their own; Disco103 by default."""
    json: bool = False
    """Print one JSON document instead of tables."""

    examples: ClassVar = (
        "discorl verify golden/*.npz",
        "discorl verify golden/rule.npz --weights disco_103.npz --json",
    )

    def run(self) -> int:
        """Verify, print, and return the exit code."""
        if not self.files:
            raise DiscorlError("no files given: name at least one golden .npz file")
        from discorl.verify import verify_files  # Here, so that --help does not wait for PyTorch.

        report = verify_files(self.files, self.weights)
        if self.json:
            print(json.dumps(report.as_json(), indent=2))
        else:
            _print(report)
        return report.exit_code


def _print(report: Report) -> None:
    console, errors = Console(soft_wrap=True), Console(soft_wrap=True, stderr=True)
    for file in report.files:
        if file.problem:
            errors.print(f"error: {file.problem}", style="red", markup=False, highlight=False)
        else:
            console.print(_table(file))
            _print_remarks(console, file)
    style = "green" if report.exit_code == 0 else "red"
    console.print(report.summary(), style=style, highlight=False)


def _table(file: FileReport) -> Table:
    """Quantity -> error in each float type, with the tolerances on top and the worst below."""
    table = Table(title=f"{escape(str(file.path))} ({file.kind})", title_justify="left")
    table.show_footer = True
    table.add_column("quantity", "largest", overflow="fold")
    for name, part in file.precisions.items():
        header = f"{name} ≤ {part.tolerance:.0e}"
        table.add_column(header, f"{part.max_error():.1e}", justify="right", no_wrap=True)
    tolerances = [part.tolerance for part in file.precisions.values()]
    for row in file.rows():
        checks = list(row.values())
        table.add_row(escape(checks[0].quantity), *map(_cell, checks, tolerances))
    return table


def _cell(check: Check, tolerance: float) -> str:
    if check.error is None:
        return "[dim]not compared[/dim]"
    number = f"{check.error:.1e}" if math.isfinite(check.error) else "wrong"
    return number if check.passes(tolerance) else f"[bold red]{number} FAIL[/bold red]"


def _print_remarks(console: Console, file: FileReport) -> None:
    """What the table has no room for: notes on single quantities, and which ones failed."""
    from discorl.verify.report import first_note

    for row in file.rows():
        checks = list(row.values())
        if note := first_note(checks):
            line = f"{checks[0].quantity}: {note}"
            console.print(line, style="dim", markup=False, highlight=False)
    if failures := file.failures():
        line = f"{file.path}: above tolerance: {', '.join(failures)}"
        console.print(line, style="red", markup=False, highlight=False)
