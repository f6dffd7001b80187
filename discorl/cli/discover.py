"""`discorl discover`: meta-train a rule."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console

from discorl.api import unused_folder
from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.handle import SHOWN
from discorl.discovery.run import read_discovery_config, resume_discovery, start_discovery
from discorl.errors import DiscorlError
from discorl.runs.display import watch
from discorl.runs.folder import read_settings_file
from discorl.runs.session import Observer
from discorl.runtime import tune_process


@dataclass(frozen=True)
class DiscoverCommand:
    """Discover a rule by meta-gradients over a population of agents and environments."""

    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Resume the run in this folder. Of the other flags, only --meta-steps may be given."""
    config_file: Annotated[Path | None, tyro.conf.arg(aliases=["--config"])] = None
    """Take the flags' defaults from a run's config.json."""
    json: bool = False
    """Print the result as JSON on standard output, everything else on standard error."""
    config: DiscoverConfig = field(default_factory=DiscoverConfig)

    examples: ClassVar = (
        "discorl discover --out runs/d",
        "discorl discover --envs family:catch family:grid --agents 8 --lifetimes 200 430 830",
        "discorl discover --init disco103 --meta-steps 60",
        "torchrun --nproc-per-node 2 -m discorl.cli discover --out runs/d",
    )

    @classmethod
    def parse(cls, args: list[str]) -> DiscoverCommand:
        """Parse, with defaults from a configuration file if one is named."""
        first: DiscoverCommand = parse_command(cls, "discover", without_help(args))
        config = DiscoverConfig()
        if first.resume is not None:
            config = read_discovery_config(first.resume)
        elif first.config_file is not None:
            config = DiscoverConfig.from_json(read_settings_file(first.config_file, "discover"))
        command: DiscoverCommand = parse_command(cls, "discover", args, default=cls(config=config))
        if command.resume is not None:
            refuse_changes(command.config, config, allowed="meta_steps")
            if command.out is not None:
                raise DiscorlError("--resume stays in the run's own folder: drop --out")
        return command

    def run(self) -> int:
        """Discover, show progress, and say how it ended."""
        tune_process()
        console = Console(stderr=self.json)
        code, result = watch(SHOWN, self._work, console)
        if "fresh_agents_return" in result:
            _print_result(console, result, self.json)
        return code

    def _work(self, observer: Observer) -> dict[str, Any]:
        if self.resume is not None:
            return resume_discovery(self.resume, self.config.meta_steps, observer)
        return start_discovery(self.config, self._folder(), observer)

    def _folder(self) -> Path:
        if self.out is not None:
            return self.out
        if "WORLD_SIZE" in os.environ:
            raise DiscorlError("--out: name the run folder, so that all processes use the same")
        return unused_folder(f"discover-s{self.config.seed}")


def _print_result(console: Console, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    console.print(
        f"\n{result['meta_steps']} meta-steps. Fresh agents trained by the rule reach "
        f"{result['fresh_agents_return']:.3f} (best {result['best_fresh_agents_return']:.3f}, at "
        f"meta-step {result['best_meta_step']}).",
        highlight=False,
    )
    console.print(
        f"The rule is {result['folder']}/rule.safetensors; train with it by\n"
        f"  discorl train catch --rule {result['folder']}/best_rule.safetensors",
        soft_wrap=True,
    )
