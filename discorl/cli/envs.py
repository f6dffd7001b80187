"""`discorl envs`: which environments there are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from discorl.envs.registry import list_environments


@dataclass(frozen=True)
class EnvsCommand:
    """List the environments and their settings."""

    json: bool = False
    """Print JSON on standard output."""

    def run(self) -> int:
        """Print a table."""
        entries = list_environments()
        if self.json:
            print(json.dumps([asdict(entry) for entry in entries]))
            return 0
        table = Table("name", "settings", "what it is")
        for entry in entries:
            settings = ", ".join(f"{k}={v}" for k, v in entry.settings.items())
            table.add_row(entry.name, settings, entry.summary)
        Console().print(table)
        return 0
