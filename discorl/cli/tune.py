"""`discorl tune`: search for settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import tyro
from rich.console import Console

from discorl.cli.parsing import parse_command, refuse_changes, without_help
from discorl.errors import DiscorlError
from discorl.runs.folder import read_settings, require_kind, unused_folder
from discorl.runs.session import Interrupted
from discorl.runtime import tune_process
from discorl.tuning.config import TuneConfig, require_optuna
from discorl.tuning.display import TuningDisplay, trials_table

if TYPE_CHECKING:
    from discorl.tuning.run import Tuning


@dataclass(frozen=True)
class TuneFlags(TuneConfig):
    """What is searched, where and for how long."""

    env: tyro.conf.Positional[str] = TuneConfig.env
    """Environment, optionally with settings after a colon."""


@dataclass(frozen=True)
class TuneCommand:
    """Search for settings with which a rule does well in an environment."""

    out: Path | None = None
    """Folder for the study; by default a new one under runs/. The same command again, also at the
    same time, works on the same study."""
    resume: Path | None = None
    """Work on the study in this folder. Of its settings, only --trials may be given."""
    json: bool = False
    """Print the trials as JSON on standard output, everything else on standard error."""
    config: TuneFlags = field(default_factory=TuneFlags)

    examples: ClassVar = (
        "discorl tune catch --rule actor_critic --trials 30",
        "discorl tune CartPole-v1 --rule disco103 --env-steps 1e5 --search learning_rate torso",
        "discorl tune catch --search learning_rate=0.001..0.1 'replay_ratio=1|2|4' --out runs/t",
        "discorl train --config runs/t/preset.json --out runs/tuned",
    )

    @classmethod
    def parse(cls, args: list[str]) -> TuneCommand:
        """Parse; a resumed search keeps its own settings."""
        first: TuneCommand = parse_command(cls, "tune", without_help(args))
        config = TuneConfig()
        if first.resume is not None:
            require_kind(first.resume, "tune")
            config = TuneConfig.from_json(read_settings(first.resume))
        default = cls(config=TuneFlags(**vars(config))) if first.resume else cls()
        command: TuneCommand = parse_command(cls, "tune", args, default=default)
        if command.resume is not None:
            refuse_changes(command.config, config, "trials")
            if command.out is not None:
                raise DiscorlError("--resume stays in the search's own folder: drop --out")
        return command

    def run(self) -> int:
        """Search, show progress, and say what was found."""
        require_optuna()
        tune_process()
        console = Console(stderr=self.json)
        config = TuneConfig(**vars(self.config))
        name = f"tune-{config.env}-{Path(config.rule).stem}"
        folder = self.resume or self.out or unused_folder(name)
        try:
            with TuningDisplay(console) as display:
                tuning = self._work(config, folder, display)
        except Interrupted as stop:
            again = f"discorl resume {stop.folder}"
            console.print(f"{stop}. Resume with: {again}", soft_wrap=True, highlight=False)
            return stop.exit_code
        if self.json:
            print(json.dumps(tuning.as_json()))
        console.print(trials_table(tuning.trials))
        again = f"discorl train --config {tuning.preset}"
        console.print(f"Train with the best: {again}", soft_wrap=True, highlight=False)
        return 0

    def _work(self, config: TuneConfig, folder: Path, display: TuningDisplay) -> Tuning:
        from discorl.tuning.run import start_tuning

        return start_tuning(config, folder, display)
