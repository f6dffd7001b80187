"""A distillation in Python: its rules, resuming, plotting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from discorl.discovery.handle import RuleFolder
from discorl.distillation.config import DistilConfig
from discorl.distillation.plots import plot_distillation
from discorl.distillation.run import TEACHER_FILE, read_distillation_config, resume_distillation
from discorl.library.catalogue import load_rule, require_discovered
from discorl.rules.disco import DiscoRule
from discorl.runs.display import shown_in_python
from discorl.runs.folder import CURVE_FILE
from discorl.runs.session import Callback

SHOWN = {
    "distil/policy_kl": "KL of policy targets",
    "distil/y_kl": "KL of y targets",
    "distil/z_kl": "KL of z targets",
    "distil/policy_step": "KL from policy to its target",
    "distil/student_led": "share of agents led by the student",
    "population/return": "return of the population",
    "eval/fresh_agents": "return of fresh agents, by the teacher's",
    "time/steps_per_second": "meta-steps/s",
}
"""Metrics that a display shows, and what it calls them."""


class Distillation(RuleFolder):
    """A distillation run, whose rules are the student at different times."""

    @property
    def config(self) -> DistilConfig:
        """Its settings."""
        return read_distillation_config(self.folder)

    @property
    def teacher(self) -> DiscoRule:
        """The rule that was distilled."""
        return require_discovered(load_rule(self.folder / TEACHER_FILE))

    def resume(
        self,
        meta_steps: int | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Distillation:
        """Resume from the newest checkpoint, optionally to a new number of meta-steps."""
        with shown_in_python(progress, SHOWN) as observer:
            resume_distillation(self.folder, meta_steps, observer, callbacks)
        return self

    def plot(self, out: str | Path | None = None) -> Path:
        """Draw divergences and fresh agents in a file, by default `curve.png`; returns its path."""
        path = self.folder / CURVE_FILE if out is None else Path(out)
        plot_distillation([self.folder], path)
        return path
