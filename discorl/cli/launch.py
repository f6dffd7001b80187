"""`discorl launch`: another command in several processes.

The processes are torchrun's, and so is how they are started, watched and ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import ClassVar

import tyro

from discorl.cli.commands import parse_arguments
from discorl.cli.parsing import parse_command
from discorl.cli.torchrun import exit_code
from discorl.errors import DiscorlError
from discorl.settings import Count, Natural, check_fields

LAUNCHED = ("train", "discover", "distil", "resume")
"""Commands that several processes can share."""
_THEIR_TIMEOUT = 30


@dataclass(frozen=True)
class LaunchCommand:
    """Run train, discover, distil or resume in several processes that share the work."""

    processes: Count
    """Processes on this machine; on GPUs, one for each."""
    machines: Count = 1
    """Machines on which this command is given."""
    meet_at: str | None = None
    """HOST:PORT of one of the machines, if there are several."""
    restarts: Natural = 0
    """How often a run is resumed by itself after a process failed."""
    shutdown_timeout: Count = _THEIR_TIMEOUT
    """Seconds that processes have for a last checkpoint after a signal, before they are killed."""
    command: tyro.conf.Suppress[tuple[str, ...]] = ()

    examples: ClassVar = (
        "discorl launch --processes 2 train catch --num-envs 8 --out runs/two",
        "discorl launch --processes 4 --restarts 3 discover --agents 8 --out runs/d",
        "discorl launch --processes 2 resume runs/two",
        "discorl launch --processes 8 --machines 4 --meet-at HOST:29500 discover --agents 128 "
        "--device cuda --out /shared/runs/many",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.machines > 1) != (self.meet_at is not None):
            raise DiscorlError("--machines and --meet-at: several machines need both")

    @classmethod
    def parse(cls, args: list[str]) -> LaunchCommand:
        """What comes before the command to launch is for the launcher, the rest for the command,
        which is checked here: so that an error is told once."""
        places = [place for place, word in enumerate(args) if word in LAUNCHED]
        own, command = (args[: places[0]], args[places[0] :]) if places else (args, [])
        launch: LaunchCommand = parse_command(cls, "launch", own)
        if not command:
            raise DiscorlError(
                f"launch what? After the processes comes one of {', '.join(LAUNCHED)}"
            )
        launched = parse_arguments(command[0], command[1:])
        if command[0] != "resume" and launched.resume is None and launched.out is None:
            raise DiscorlError("give --out: without it, every process would make its own folder")
        return replace(launch, command=tuple(command))

    def run(self) -> int:
        """Start the processes and wait for them; returns the exit code."""
        # Slow to import, and not in every PyTorch.
        from torch.distributed import run

        # Processes that share a machine would take all of its cores each.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        try:
            run.run(run.parse_args(self._torchrun()))
        except Exception as error:
            if (code := exit_code(error)) is None:
                raise
            return code
        return 0

    def _torchrun(self) -> list[str]:
        """The same in torchrun's words."""
        meeting = ["--standalone"]
        if self.meet_at is not None:
            meeting = ["--nnodes", str(self.machines), "--rdzv-backend", "c10d"]
            meeting += ["--rdzv-endpoint", self.meet_at]
        if self.shutdown_timeout != _THEIR_TIMEOUT:  # Older ones have no such flag.
            meeting += ["--shutdown-timeout", str(self.shutdown_timeout)]
        return [
            *meeting,
            *("--nproc-per-node", str(self.processes), "--max-restarts", str(self.restarts)),
            *("-m", "discorl.cli", *self.command),
        ]
