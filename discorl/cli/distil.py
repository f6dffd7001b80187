"""`discorl distil`: a small rule learns to hand out the targets of a large one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console

from discorl.cli.rule_runs import check_resumed, out_folder, parse_rule_run, print_result
from discorl.distillation.config import DistilConfig
from discorl.distillation.handle import SHOWN
from discorl.distillation.run import (
    read_distillation_config,
    resume_distillation,
    start_distillation,
)
from discorl.runs.display import watch
from discorl.runs.folder import left_by_failed
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
    """Resume the run in this folder. Of the other flags, only --meta-steps and --threads may
    be given."""
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
        command: DistilCommand
        command, defaults = parse_rule_run(
            cls, "distil", args, DistilConfig, read_distillation_config
        )
        if command.rule is not None:
            command = replace(command, config=replace(command.config, teacher=command.rule))
        check_resumed(command, defaults)
        return command

    def run(self) -> int:
        """Distil, show progress, and say how it ended."""
        tune_process(threads_by_size=True)
        console = Console(stderr=self.json)
        code, result = watch(SHOWN, self._work, console)
        if "fresh_agents_return" in result:
            print_result(console, result, self.json, _words(result), "student")
        return code

    def _work(self, observer: Observer) -> dict[str, Any]:
        if self.resume is not None:
            threads = self.config.run.threads
            return resume_distillation(
                self.resume, self.config.meta_steps, observer, threads=threads
            )
        name = f"distil-{Path(self.config.teacher).stem}-s{self.config.seed}"
        folder = out_folder(self.out, name)
        if left_by_failed(folder):
            return resume_distillation(folder, self.config.meta_steps, observer)
        return start_distillation(self.config, folder, observer)


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['meta_steps']} meta-steps, from {result['teacher_parameters']:,} parameters to "
        f"{result['parameters']:,}. On the scale of the teacher's returns, fresh agents reach "
        f"{result['fresh_agents_return']:.3f} with the student (best "
        f"{result['best_fresh_agents_return']:.3f}, at meta-step {result['best_meta_step']}) and "
        f"{result['teacher_fresh_agents_return']:.3f} with the teacher."
    )
