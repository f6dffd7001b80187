"""Settings that every kind of run has, whatever it does."""

from __future__ import annotations

from dataclasses import dataclass

from discorl.settings import Count, Natural, check_fields


@dataclass(frozen=True)
class RunConfig:
    """Where a run computes, and what it writes when."""

    device: str = "cpu"
    """Where everything is computed: cpu, cuda, cuda:1, ..."""
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

    def __post_init__(self) -> None:
        check_fields(self)
