"""A discovery run in Python: its rules, resuming, plotting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.plots import plot_discovery
from discorl.discovery.run import BEST_FILE
from discorl.discovery.start import read_discovery_config, resume_discovery
from discorl.library.catalogue import load_rule, require_discovered
from discorl.rules.disco import DiscoRule
from discorl.runs.display import shown_in_python
from discorl.runs.folder import CURVE_FILE, RULE_FILE
from discorl.runs.handle import RunFolder
from discorl.runs.session import Callback

SHOWN = {
    "population/return": "return of the population",
    "meta/meta_loss": "meta-loss",
    "meta/pg_loss": "policy-gradient part",
    "meta/reg_loss": "regularising part",
    "meta/fitness": "fitness of whole lives",
    "meta/pair_difference": "difference within pairs",
    "meta/grad_norm": "meta-gradient norm",
    "meta/entropy": "policy entropy",
    "population/age": "age in updates",
    "meta/skipped": "meta-gradients skipped",
    "eval/fresh_agents": "return of fresh agents",
    "time/steps_per_second": "meta-steps/s",
}
"""Metrics that a display shows, and what it calls them."""


class RuleFolder(RunFolder):
    """A run that makes a rule."""

    @property
    def rule(self) -> DiscoRule:
        """The newest rule."""
        return require_discovered(load_rule(self.folder / RULE_FILE))

    @property
    def best_rule(self) -> DiscoRule:
        """The rule whose fresh agents did best."""
        return require_discovered(load_rule(self.folder / BEST_FILE))


class Discovery(RuleFolder):
    """A discovery run."""

    @property
    def config(self) -> DiscoverConfig:
        """Its settings."""
        return read_discovery_config(self.folder)

    def resume(
        self,
        meta_steps: int | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Discovery:
        """Resume from the newest checkpoint, optionally to a new number of meta-steps."""
        with shown_in_python(progress, SHOWN) as observer:
            resume_discovery(self.folder, meta_steps, observer, callbacks)
        return self

    def plot(self, out: str | Path | None = None) -> Path:
        """Draw population and fresh agents in a file, by default `curve.png`; returns its path."""
        path = self.folder / CURVE_FILE if out is None else Path(out)
        plot_discovery([self.folder], path)
        return path
