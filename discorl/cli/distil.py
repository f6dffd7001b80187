"""`discorl distil`: a small rule learns to hand out the targets of a large one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console

from discorl.api import unused_folder
from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.distillation.config import DistilConfig
from discorl.distillation.handle import SHOWN
from discorl.distillation.run import (
    read_distillation_config,
    resume_distillation,
    start_distillation,
)
from discorl.errors import DiscorlError
from discorl.runs.display import watch
from discorl.runs.folder import read_settings_file
from discorl.runs.session import Observer
from discorl.runtime import tune_process


@dataclass(frozen=True)
class DistilCommand:
    """Distil a discovered rule into a smaller one, on agents that learn by both."""

    rule: tyro.conf.Positional[str | None] = None
    """The rule to distil, as --teacher: a name from `discorl rules list`, or a rule file."""
    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: Path | None = None
    """Resume the run in this folder. Of the other flags, only --meta-steps may be given."""
    config_file: Annotated[Path | None, tyro.conf.arg(aliases=["--config"])] = None
    """Take the flags' defaults from a run's config.json."""
    json: bool = False
    """Print the result as JSON on standard output, everything else on standard error."""
    config: DistilConfig = field(default_factory=DistilConfig)

    examples: ClassVar = (
        "discorl distil disco103 --out runs/x",
        "discorl distil disco103 --hidden 64 --predictions 32 --meta-hidden 32",
        "discorl distil runs/d/best_rule.safetensors --predictions 16 --hidden 32",
    )

    @classmethod
    def parse(cls, args: list[str]) -> DistilCommand:
        """Parse, with defaults from a configuration file if one is named."""
        first: DistilCommand = parse_command(cls, "distil", without_help(args))
        config = DistilConfig()
        if first.resume is not None:
            config = read_distillation_config(first.resume)
        elif first.config_file is not None:
            config = DistilConfig.from_json(read_settings_file(first.config_file, "distil"))
        command: DistilCommand = parse_command(cls, "distil", args, default=cls(config=config))
        if command.rule is not None:
            command = replace(command, config=replace(command.config, teacher=command.rule))
        if command.resume is not None:
            refuse_changes(command.config, config, allowed="meta_steps")
            if command.out is not None:
                raise DiscorlError("--resume stays in the run's own folder: drop --out")
        return command

    def run(self) -> int:
        """Distil, show progress, and say how it ended."""
        tune_process()
        console = Console(stderr=self.json)
        code, result = watch(SHOWN, self._work, console)
        if "fresh_agents_return" in result:
            _print_result(console, result, self.json)
        return code

    def _work(self, observer: Observer) -> dict[str, Any]:
        if self.resume is not None:
            return resume_distillation(self.resume, self.config.meta_steps, observer)
        return start_distillation(self.config, self._folder(), observer)

    def _folder(self) -> Path:
        if self.out is not None:
            return self.out
        if "WORLD_SIZE" in os.environ:
            raise DiscorlError("--out: name the run folder, so that all processes use the same")
        name = Path(self.config.teacher).stem
        return unused_folder(f"distil-{name}-s{self.config.seed}")


def _print_result(console: Console, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    console.print(
        f"\n{result['meta_steps']} meta-steps, from {result['teacher_parameters']:,} parameters to "
        f"{result['parameters']:,}. On the scale of the teacher's returns, fresh agents reach "
        f"{result['fresh_agents_return']:.3f} with the student (best "
        f"{result['best_fresh_agents_return']:.3f}, at meta-step {result['best_meta_step']}) and "
        f"{result['teacher_fresh_agents_return']:.3f} with the teacher.",
        highlight=False,
    )
    console.print(
        f"The student is {result['folder']}/rule.safetensors; train with it by\n"
        f"  discorl train catch --rule {result['folder']}/best_rule.safetensors",
        soft_wrap=True,
    )
