"""Settings that every kind of run has, whatever it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discorl.errors import DiscorlError
from discorl.group import TIMEOUT
from discorl.settings import Count, Natural, Positive, check_fields

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class RunConfig:
    """Where a run computes, and what it writes when."""

    device: str = "cpu"
    """Where everything is computed: cpu, cuda, cuda:1, ...; auto takes an accelerator if there is
    one."""
    threads: Count | None = None
    """Threads that compute on the CPU. By default commands take one if an update is small, else
    what OMP_NUM_THREADS says or one for each core."""
    log_every: Count = 10
    """Steps between records of metrics."""
    eval_every: Natural = 0
    """Steps between evaluations; 0 evaluates at the end only."""
    checkpoint_every: Count = 100
    """Steps between checkpoints."""
    keep_checkpoints: Count = 2
    """How many of the newest checkpoints are kept."""
    wandb: bool = False
    """Log to Weights & Biases too."""
    process_timeout: Positive = TIMEOUT
    """Seconds that the processes of a run wait for one another before they give up."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def torch_device(self) -> torch.device:
        """The device, if it can be used here; `auto` is the accelerator, if there is one."""
        import torch

        from discorl.processes import local_device

        if self.device == "auto":
            found = torch.accelerator.is_available()
            accelerator = torch.accelerator.current_accelerator() if found else None
            return local_device(accelerator or torch.device("cpu"))
        try:
            device = local_device(torch.device(self.device))
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise DiscorlError(f"--device {self.device} cannot be used here: {error}") from error
        return device
