"""bsuite's scores: of a setting of an experiment, and by capability (Osband et al., 2020).

They are those of the package's own analysis, computed from means over all episodes of a run where
the package takes the first 1,000 or 10,000. Deep sea counts as solved if it is by the end of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

BSUITE = "bsuite/"

CAPABILITIES: dict[str, tuple[str, ...]] = {
    "bandit": ("basic",),
    "bandit_noise": ("noise",),
    "bandit_scale": ("scale",),
    "cartpole": ("basic", "credit_assignment", "generalization"),
    "cartpole_noise": ("noise", "generalization"),
    "cartpole_scale": ("scale", "generalization"),
    "cartpole_swingup": ("exploration", "generalization"),
    "catch": ("basic", "credit_assignment"),
    "catch_noise": ("noise", "credit_assignment"),
    "catch_scale": ("scale", "credit_assignment"),
    "deep_sea": ("exploration",),
    "deep_sea_stochastic": ("exploration", "noise"),
    "discounting_chain": ("credit_assignment",),
    "memory_len": ("memory",),
    "memory_size": ("memory",),
    "mnist": ("basic", "generalization"),
    "mnist_noise": ("noise", "generalization"),
    "mnist_scale": ("scale", "generalization"),
    "mountain_car": ("basic", "generalization"),
    "mountain_car_noise": ("noise", "generalization"),
    "mountain_car_scale": ("scale", "generalization"),
    "umbrella_distract": ("credit_assignment", "noise"),
    "umbrella_length": ("credit_assignment", "noise"),
}
"""Experiment -> what it tests."""

_Outcomes = Mapping[str, float]


def _clip(score: float) -> float:
    return min(max(score, 0.0), 1.0)


_SCORES: dict[str, Callable[[_Outcomes], float]] = {
    "bandit": lambda o: _clip(1 - o["regret"] / 0.5),
    # Half of it for the best episode: one above 500, or above 100 in the swing-up.
    "cartpole": lambda o: (_clip(o["raw_return"] / 1000) + (o["good"] > 0)) / 2,
    "cartpole_swingup": lambda o: (_clip(o["raw_return"] / 700) + (o["good"] > 0)) / 2,
    "catch": lambda o: _clip(1 - o["regret"] / 1.6),
    "deep_sea": lambda o: float(o["bad"] < 0.9),
    "deep_sea_stochastic": lambda o: float(o["bad"] < 0.8),
    "discounting_chain": lambda o: _clip(1 - 10 * (1.1 - o["raw_return"])),
    # Half of the answers are right by chance.
    "memory_len": lambda o: float((1 - o["perfect"]) / 0.5 < 0.75),
    "memory_size": lambda o: float((1 - o["perfect"]) / 0.5 < 0.75),
    "mountain_car": lambda o: _clip(1 - (-100 - o["raw_return"]) / 1000),
    "umbrella_distract": lambda o: float(o["regret"] < 0.5),
    "umbrella_length": lambda o: float(o["regret"] < 0.5),
}
"""Experiment -> its score, from means over episodes; those with noise or another scale have that of
the plain one. Digits are not scored: half of that is for accuracy at the end."""

GOOD_RETURN = {"cartpole": 500.0, "cartpole_swingup": 100.0}
"""Experiment -> the return above which an episode is a good one."""


def experiment_of(spec: str) -> str | None:
    """`bsuite/catch_noise/3` -> `catch_noise`; None if it is another environment."""
    name = spec.partition(":")[0]
    return name.removeprefix(BSUITE).partition("/")[0] if name.startswith(BSUITE) else None


def plain_experiment(experiment: str) -> str:
    """The experiment without noise and on its usual scale: `catch_noise` -> `catch`."""
    return experiment.removesuffix("_noise").removesuffix("_scale")


def setting_score(spec: str, outcomes: _Outcomes) -> float | None:
    """The score of one setting, from 0 to 1; None if it has none or nothing was told."""
    experiment = experiment_of(spec)
    score = None if experiment is None else _SCORES.get(plain_experiment(experiment))
    return score(outcomes) if score is not None and outcomes else None


def capability_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores by capability: means over experiments, each of which is one over its settings.

    Args:
      scores: environment -> its score; others than bsuite's are left out.
    """
    settings: dict[str, list[float]] = {}
    for spec, score in scores.items():
        if (experiment := experiment_of(spec)) in CAPABILITIES:
            settings.setdefault(experiment, []).append(score)
    found: dict[str, list[float]] = {}
    for experiment, values in settings.items():
        for capability in CAPABILITIES[experiment]:
            found.setdefault(capability, []).append(_over_settings(experiment, values))
    return {capability: fmean(values) for capability, values in sorted(found.items())}


def _over_settings(experiment: str, scores: Sequence[float]) -> float:
    """Noise and scale must hurt nowhere: half of that score is the mean less the deviation."""
    mean = fmean(scores)
    if plain_experiment(experiment) == experiment:
        return mean
    return (mean + _clip(mean - pstdev(scores))) / 2
