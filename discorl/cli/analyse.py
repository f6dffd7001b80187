"""`discorl analyse`: look inside rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import tyro
from rich.console import Console

from discorl.analysis.config import AnalyseConfig
from discorl.runs.folder import unused_folder


@dataclass(frozen=True)
class AnalyseCommand:
    """Look inside rules: what they respond to, what their agents know, what they rely on."""

    rules: tyro.conf.Positional[tuple[str, ...]]
    """Rules: names from `discorl rules list`, rule files, or folders of discoveries, which stand
    for their rule at each checkpoint that they kept and at its best. A random rule is put beside
    them."""
    out: Path | None = None
    """Folder for figures, tables and a page; by default a new one under runs/."""
    config: AnalyseConfig = field(default_factory=AnalyseConfig)

    examples: ClassVar = (
        "discorl analyse disco103",
        "discorl analyse disco103 sprout actor_critic --only responses closest",
        "discorl analyse runs/d sprout --only responses closest   # a rule during its discovery",
        "discorl analyse runs/d/best_rule.safetensors --env catch --steps 1000 --out runs/inside",
    )

    def run(self) -> int:
        """Analyse, show progress, and say where the results are."""
        # Here, so that --help does not wait for PyTorch.
        from discorl.analysis.report import PAGE
        from discorl.analysis.run import start_analysis
        from discorl.runs.display import make_display
        from discorl.runtime import tune_process

        tune_process()
        console = Console()
        folder = self.out or unused_folder("analyse")
        with make_display(console, {}) as display:
            result = start_analysis(self.rules, self.config, folder, display)
        for name, own in result["rules"].items():
            for line in _words(name, own):
                console.print(line, highlight=False)
        console.print(f"Figures and tables: {folder / PAGE}", highlight=False, soft_wrap=True)
        return 0


def _words(name: str, own: dict[str, Any]) -> list[str]:
    if "closest" not in own:
        return []
    scores = {k: v["r2"] for k, v in own["closest"].items() if v["r2"] is not None}
    if not scores:
        return [f"{name}: its push does not vary"]
    together = scores.pop("all together", None)
    best = max(scores, key=lambda k: scores[k])
    return [f"{name}: closest to {best} (R² {scores[best]:.2f}; all features {together:.2f})"]
