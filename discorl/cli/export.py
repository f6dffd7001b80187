"""`discorl export`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro
from rich.console import Console

from discorl.errors import DiscorlError


@dataclass(frozen=True)
class ExportCommand:
    """Write a trained agent's policy as ONNX or for torch.export, and check what was written."""

    agent: tyro.conf.Positional[Path]
    """A training run's folder, one of its checkpoints, or a file that holds an agent."""
    out: tyro.conf.Positional[Path]
    """File to write, a .onnx or a .pt2; a description goes beside it."""
    checkpoint: str = "newest"
    """Which agent of a run: newest, best (of the run's own evaluations), or the step of a
    checkpoint."""
    force: bool = False
    """Overwrite the file if it exists."""

    examples: ClassVar = (
        "discorl export runs/a policy.onnx",
        "discorl export runs/a policy.pt2 --checkpoint best",
    )

    def run(self) -> int:
        """Export, and say how exact it is."""
        # Here, so that --help does not wait for PyTorch.
        from discorl.cli.agents import find_agent
        from discorl.exporting.export import check_export, description_path, export_policy

        check_export(self.out)
        if os.path.lexists(self.out) and not self.force:
            raise DiscorlError(f"{self.out}: exists already; --force overwrites it")
        agent = find_agent(self.agent, self.checkpoint, device="cpu")
        with Console(stderr=True).status("exporting"):
            exported = export_policy(agent, self.out)
        console, about = Console(soft_wrap=True, highlight=False), exported.description
        for title in ("inputs", "outputs"):
            ports = [f"{p['name']} {p['dtype']}{p['shape']}" for p in about[title]]
            console.print(f"{title + ':':9}{', '.join(ports)}".replace("'", ""), markup=False)
        console.print(
            f"{self.out}: {self.out.stat().st_size / 1000:,.0f} kB; largest difference from the "
            f"agent on random observations {exported.largest_difference:.1e}"
        )
        console.print(f"its description is in {description_path(self.out)}")
        return 0
