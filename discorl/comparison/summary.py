"""A comparison's results: normalised scores, and the interquartile mean of each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from discorl.comparison.anchors import Anchors
from discorl.comparison.cells import Cell, CellResult
from discorl.comparison.config import CompareConfig
from discorl.engines import Failure
from discorl.envs.bsuite_scores import capability_scores
from discorl.envs.published import published_figures
from discorl.envs.scores import FieldScore, field_score
from discorl.statistics import Estimate, interquartile_estimate, mean_estimate, normalize


@dataclass(frozen=True)
class Scale:
    """The returns that become scores 0 and 1 on one environment."""

    zero: float
    one: float
    one_is: Literal["optimal return", "best rule", "rule compared with"]


@dataclass(frozen=True)
class GroupScore:
    """A score as the field reports it, of each seed."""

    name: str
    values: np.ndarray

    @property
    def estimate(self) -> Estimate | None:
        """The mean with its t-interval; None for fewer than two seeds."""
        return mean_estimate(self.values)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `results.json`."""
        between = self.estimate
        return {
            "name": self.name,
            "value": float(self.values.mean()),
            "low": between and between.low,
            "high": between and between.high,
            "values": self.values.tolist(),
        }


@dataclass(frozen=True)
class Group:
    """The runs of one rule on one environment, by seed."""

    runs: list[CellResult]
    scores: np.ndarray
    """Normalised final returns, or means along the curve, [n]; empty without a scale."""

    @property
    def returns(self) -> np.ndarray:
        """Final returns [n]."""
        return np.array([run.final_return for run in self.runs])

    def field_score(self, env: str) -> GroupScore | None:
        """What the field reports in place of the mean return; None if that is what it reports."""
        found = [field_score(env, run.final_return, run.outcomes) for run in self.runs]
        known = [score for score in found if score is not None]
        if not known:
            return None
        return GroupScore(known[0].name, np.array([score.value for score in known]))


@dataclass(frozen=True)
class Summary:
    """All of a comparison's numbers."""

    config: CompareConfig
    anchors: dict[str, Anchors]
    scales: dict[str, Scale | None]
    """Environment -> scale; None where no rule did better than random and no optimum is known, or
    random play failed."""
    groups: dict[tuple[str, str], Group]
    """(rule, environment) -> its runs."""
    estimates: dict[str, Estimate | None]
    """Rule -> interquartile mean; None if it has no run on some environment."""
    failed: list[tuple[Cell, Failure]]

    def env_steps(self, rule: str) -> int | None:
        """Environment steps of each run of a rule, if any of them finished."""
        runs = [run for env in self.config.envs for run in self.groups[rule, env].runs]
        return runs[0].env_steps if runs else None

    def random_score(self, env: str) -> FieldScore | None:
        """Random play's score as the field reports it."""
        anchors = self.anchors[env]
        if anchors.random_return is None:
            return None
        return field_score(env, anchors.random_return, anchors.random_outcomes)

    def bsuite(self, rule: str) -> dict[str, float]:
        """A rule's scores by capability, of bsuite's experiments that it ran; else nothing."""
        found = {env: self.groups[rule, env].field_score(env) for env in self.config.envs}
        return capability_scores({e: float(s.values.mean()) for e, s in found.items() if s})

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `results.json`."""
        return {
            "config": self.config.to_json(),
            "environments": {
                env: asdict(self.anchors[env])
                | {
                    "scale": scale and asdict(scale),
                    "published": [asdict(figures) for figures in published_figures(env)],
                }
                for env, scale in self.scales.items()
            },
            "rules": {rule: self._rule_as_json(rule) for rule in self.config.rules},
            "failed": [
                {
                    "rule": cell.label,
                    "env": cell.config.env,
                    "seed": cell.config.seed,
                    "error": failure.error,
                    "details": failure.details,
                }
                for cell, failure in self.failed
            ],
        }

    def _rule_as_json(self, rule: str) -> dict[str, Any]:
        estimate = self.estimates[rule]
        return {
            "iqm": estimate and asdict(estimate),
            "env_steps": self.env_steps(rule),
            "bsuite": self.bsuite(rule),
            "environments": {
                env: {
                    "seeds": [run.seed for run in group.runs],
                    "returns": group.returns.tolist(),
                    "scores": group.scores.tolist(),
                    "mean_return": float(group.returns.mean()) if group.runs else None,
                    "mean_score": float(group.scores.mean()) if len(group.scores) else None,
                    "field_score": (score := group.field_score(env)) and score.as_json(),
                    "seconds": [run.seconds for run in group.runs],
                }
                for env in self.config.envs
                for group in [self.groups[rule, env]]
            },
        }


def summarise(
    config: CompareConfig,
    anchors: Mapping[str, Anchors],
    results: Sequence[CellResult],
    failed: Sequence[tuple[Cell, Failure]] = (),
) -> Summary:
    """Normalise the returns and estimate each rule's interquartile mean."""
    runs = {(rule, env): _runs(results, rule, env) for rule in config.rules for env in config.envs}
    measured = {key: _measure(group, config.against) for key, group in runs.items()}
    scales = {
        env: _scale(anchors[env], {rule: measured[rule, env] for rule in config.rules}, config)
        for env in config.envs
    }
    groups = {
        (rule, env): Group(group, _scores(measured[rule, env], scales[env]))
        for (rule, env), group in runs.items()
    }
    scored = [env for env in config.envs if scales[env] is not None]
    return Summary(
        config=config,
        anchors=dict(anchors),
        scales=scales,
        groups=groups,
        estimates={
            rule: _estimate([groups[rule, env].scores for env in scored]) for rule in config.rules
        },
        failed=list(failed),
    )


def _runs(results: Sequence[CellResult], rule: str, env: str) -> list[CellResult]:
    found = [r for r in results if (r.rule, r.env) == (rule, env)]
    return sorted(found, key=lambda r: r.seed)


def _measure(runs: Sequence[CellResult], against: str | None) -> np.ndarray:
    """What becomes a score [n]: final returns, or means along the curve."""
    if against is None:
        return np.array([run.final_return for run in runs])
    return np.array([run.mean_along_curve() for run in runs])


def _scale(
    anchors: Anchors, measured: Mapping[str, np.ndarray], config: CompareConfig
) -> Scale | None:
    zero = anchors.random_return
    if zero is None:
        return None
    means = {rule: float(values.mean()) for rule, values in measured.items() if len(values)}
    if config.against is not None:
        one = means.get(config.against, zero)
        return Scale(zero, one, "rule compared with") if one > zero else None
    if anchors.optimal_return is not None:
        return Scale(zero, anchors.optimal_return, "optimal return")
    best = max(means.values(), default=zero)
    return Scale(zero, best, "best rule") if best > zero else None


def _scores(measured: np.ndarray, scale: Scale | None) -> np.ndarray:
    return np.array([]) if scale is None else normalize(measured, scale.zero, scale.one)


def _estimate(scores: Sequence[np.ndarray]) -> Estimate | None:
    if not scores or any(len(part) == 0 for part in scores):
        return None
    return interquartile_estimate(scores)
