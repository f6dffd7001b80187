"""What a meta-step tells: means over the population."""

from __future__ import annotations

import math
from collections.abc import Sequence

from discorl.discovery.discoverer import AGENT_METRICS, AgentReport, MetaStepReport
from discorl.discovery.plots import RETURN
from discorl.errors import DiscorlError


def check_finite(record: dict[str, float], skipped: int, step: int) -> None:
    """Raise DiscorlError for a metric that is not finite, before it gets into a checkpoint; those
    of a skipped agent do not matter."""
    if skipped:
        return
    for name, value in record.items():
        if not math.isfinite(value):
            raise DiscorlError(
                f"{name} is not finite at meta-step {step}; the last checkpoint is from before it"
            )


def summarise(report: MetaStepReport, names: Sequence[str] = AGENT_METRICS) -> dict[str, float]:
    """A meta-step's metrics: means over agents, and returns by environment.

    Args:
      names: what each agent said about the rule.
    """
    record = {f"meta/{name}": mean_metric(name, report.agents) for name in names}
    return record | summarise_population(report)


def mean_metric(name: str, agents: list[AgentReport]) -> float:
    """The mean of one of their metrics."""
    return math.fsum(agent.metrics[name] for agent in agents) / len(agents)


def summarise_population(report: MetaStepReport) -> dict[str, float]:
    """The part of a meta-step's metrics that does not depend on what the rule learns from."""
    agents, mean = report.agents, mean_metric
    record = {}
    record["meta/grad_norm"] = mean("grad_norm", agents)
    record["meta/update_norm"] = report.update_norm
    record["losses/inner_loss"] = mean("inner_loss", agents)
    record["population/age"] = mean("age", agents)
    record["population/lives"] = mean("lives", agents)
    known = [a for a in agents if "return" in a.metrics]
    if known:
        record[RETURN] = mean("return", known)
    for env in dict.fromkeys(a.env for a in known):
        record[f"{RETURN}/{env}"] = mean("return", [a for a in known if a.env == env])
    return record
