"""`discorl discover`: meta-train a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console

from discorl.cli.rule_runs import check_resumed, out_folder, parse_rule_run, print_result
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.handle import SHOWN
from discorl.discovery.start import read_discovery_config, resume_discovery, start_discovery
from discorl.runs.display import watch
from discorl.runs.folder import left_by_failed
from discorl.runs.session import Observer
from discorl.runtime import tune_process


@dataclass(frozen=True)
class DiscoverCommand:
    """Discover a rule by meta-gradients, or by evolution strategies, over a population of agents
    and environments."""

    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Resume the run in this folder. Of the other flags, only --meta-steps and --threads may
    be given."""
    config_file: Annotated[Path | None, tyro.conf.arg(aliases=["--config"])] = None
    """Take the flags' defaults from a run's config.json."""
    json: bool = False
    """Print the result as JSON on standard output, everything else on standard error."""
    config: DiscoverConfig = field(default_factory=DiscoverConfig)

    examples: ClassVar = (
        "discorl discover --out runs/d",
        "discorl discover --envs family:catch family:grid --agents 8 --lifetimes 200 430 830",
        "discorl discover --init disco103 --meta-steps 60",
        "discorl discover --init sprout --meta-optimiser es --es-lifetime 300 --stacked",
        "discorl launch --processes 2 discover --out runs/d",
    )

    @classmethod
    def parse(cls, args: list[str]) -> DiscoverCommand:
        """Parse, with defaults from a configuration file if one is named."""
        command: DiscoverCommand
        command, defaults = parse_rule_run(
            cls, "discover", args, DiscoverConfig, read_discovery_config
        )
        check_resumed(command, defaults)
        return command

    def run(self) -> int:
        """Discover, show progress, and say how it ended."""
        tune_process(threads_by_size=True)
        console = Console(stderr=self.json)
        code, result = watch(SHOWN, self._work, console)
        if "fresh_agents_return" in result:
            print_result(console, result, self.json, _words(result), "rule")
        return code

    def _work(self, observer: Observer) -> dict[str, Any]:
        if self.resume is not None:
            threads = self.config.run.threads
            return resume_discovery(self.resume, self.config.meta_steps, observer, threads=threads)
        folder = out_folder(self.out, f"discover-s{self.config.seed}")
        if left_by_failed(folder):
            return resume_discovery(folder, self.config.meta_steps, observer)
        return start_discovery(self.config, folder, observer)


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['meta_steps']} meta-steps. Fresh agents trained by the rule reach "
        f"{result['fresh_agents_return']:.3f} (best {result['best_fresh_agents_return']:.3f}, at "
        f"meta-step {result['best_meta_step']})."
    )
