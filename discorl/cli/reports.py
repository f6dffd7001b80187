"""`discorl report` and `discorl serve`: runs as web pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from rich.console import Console
from rich.text import Text

from discorl.errors import DiscorlError
from discorl.settings import Range, check_fields


@dataclass(frozen=True)
class ReportCommand:
    """Write a report on one or more runs: one web page with interactive curves.

    Runs that differ only in their seed are drawn as one line with a band. The page needs no
    network, and no file beside it.
    """

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders of any kind, or folders that hold some."""
    out: Path = Path("report.html")
    """File to write; an earlier one is overwritten."""
    film: bool = True
    """Let an agent of each experiment play an episode, unless its folder has a film."""

    examples: ClassVar = (
        "discorl report runs/a",
        "discorl report runs/three --out three.html   # all seeds in that folder",
        "discorl report runs/a runs/d runs/cmp --out all.html",
    )

    def run(self) -> int:
        """Write, and say where and what is missing."""
        if not self.folders:
            raise DiscorlError("report: name one or more run folders")
        from discorl.reports.write import write_report  # Here, so that --help is quick.

        runs = write_report(self.folders, self.out, self.film, _say)
        count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        _say(f"report on {count} written to {self.out}")
        for run in runs:
            for problem in run.problems:
                _say(f"{run.folder}: {problem}")
        return 0


@dataclass(frozen=True)
class ServeCommand:
    """Show the runs of a folder in a browser, live while they train.

    Only this machine can reach the pages, and they change nothing.
    """

    folder: tyro.conf.Positional[Path] = Path("runs")
    """A folder that holds runs."""
    port: Annotated[int, Range(0, 65535)] = 8765
    """Where to listen on 127.0.0.1; 0 takes any that is free."""

    examples: ClassVar = ("discorl serve runs", "discorl serve runs/breakout --port 9000")

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> int:
        """Serve until Ctrl-C."""
        from discorl.reports.server import make_server  # Here, so that --help is quick.

        with make_server(self.folder, self.port) as server:
            try:
                place = f"http://127.0.0.1:{server.server_port}/"
                _say(f"{self.folder} is at {place} (Ctrl-C ends it)")
                server.serve_forever()
            except KeyboardInterrupt:
                _say("ended")
        return 0


def _say(text: str) -> None:
    Console().print(Text(text), soft_wrap=True)
