"""The settings of a discovery run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from discorl.agents.config import NetworkConfig
from discorl.discovery.meta_gradient import Mode
from discorl.discovery.meta_loss import MetaLossConfig
from discorl.discovery.value_function import ValueConfig
from discorl.envs.families import has_members
from discorl.errors import DiscorlError
from discorl.life.config import ExperienceConfig, LearningConfig, LifeConfig, ReplayConfig
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.runs.config import RunConfig
from discorl.settings import (
    Count,
    FlatView,
    Positive,
    Range,
    Seed,
    Sizes,
    change,
    check_fields,
    flat_settings,
)


def _published_life() -> LifeConfig:
    """How agents of the published notebook live."""
    return LifeConfig(
        experience=ExperienceConfig(32, 16, ReplayConfig(batch_size=None, replay_fraction=0.0)),
        learning=LearningConfig(learning_rate=5e-4),
        network=NetworkConfig(body="mlp", model_size=256, head_hidden=256),
    )


@dataclass(frozen=True)
class MetaConfig:
    """How the rule learns; the defaults are the published notebook's."""

    meta_learning_rate: Positive = 5e-4
    """The rule's learning rate."""
    meta_learning_rate_schedule: Literal["constant", "cosine"] = "constant"
    """Keep the rule's learning rate, or let it fall to zero over the run along a cosine."""
    meta_optimiser: Literal["shared", "per_agent", "es"] = "shared"
    """One Adam on the mean meta-gradient (the notebook), or one for each agent's meta-gradient
    before the mean (the paper). Or es: one Adam on the mean of what evolution strategies over
    whole lifetimes estimate, without meta-gradients."""
    meta_clip: Positive | None = None
    """Largest norm of each agent's meta-gradient or estimate; larger ones are scaled down."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class EvolutionConfig:
    """Evolution strategies; read only with --meta-optimiser es."""

    es_pairs: Count = 8
    """Perturbations of the rule for each agent of the population and meta-step. Two agents live by
    each: one by the rule plus the perturbation, one by the rule minus it."""
    es_sigma: Positive = 0.02
    """Standard deviation of a perturbation, in every parameter of the rule."""
    es_lifetime: Count = 200
    """Updates that these agents live for, from birth."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class PopulationConfig(FlatView):
    """A population of agents that a rule learns from, and how it does.

    Settings have flat names: `num_envs` is called that in Python, in files and on the command
    line, and `config.num_envs` reads it.
    """

    envs: tuple[str, ...] = ("catch:rows=5,columns=5",)
    """Environments, each optionally with a weight after an at sign: catch@2. From a family
    (family:grid) every newborn agent gets another member."""
    init: str = "random"
    """The rule to start from: random, a name from `discorl rules list`, or a rule file."""
    meta_steps: Count = 800
    """Updates of the rule."""
    seed: Seed = 0
    """Fixes every random choice of the run."""

    agents: Count = 2
    """Population size; environments are dealt out by weight."""
    inner_steps: Count = 2
    """N: agent updates that a gradient of the rule reaches back through."""
    lifetimes: Sizes = ()
    """Agents are reborn after a number of updates drawn from these, short ones more often; by
    default they never are."""
    widths: Sizes = ()
    """Units of both torso layers, in place of --torso; each agent takes one of these in turn."""
    life: LifeConfig = field(default_factory=_published_life)

    meta: MetaConfig = field(default_factory=MetaConfig)

    float64: bool = False
    """Compute in double precision, for comparisons."""
    eval_steps: Count = 1000
    """Updates of each fresh agent that evaluates the rule."""
    eval_agents: Count = 1
    """Fresh agents in each environment."""
    run: RunConfig = field(
        default_factory=lambda: RunConfig(log_every=5, eval_every=200, checkpoint_every=50)
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.envs:
            raise DiscorlError("--envs: expected one or more environments")
        if self.lifetimes and min(self.lifetimes) < self.inner_steps:
            raise DiscorlError("--lifetimes: expected at least --inner-steps updates each")
        if self.life.experience.burn_in:
            raise DiscorlError("--burn-in: agents of a population have none")
        if self.life.learning.learning_rate_schedule != "constant":
            raise DiscorlError("--learning-rate-schedule: agents of a population have none")
        if self.life.experience.replay.replay_ratio > 1:
            raise DiscorlError("--replay-ratio: agents of a population update once per rollout")

    def life_of(self, index: int) -> LifeConfig:
        """How an agent of the population lives, or any fresh agent in its place."""
        if not self.widths:
            return self.life
        width = self.widths[index % len(self.widths)]
        return replace(self.life, network=replace(self.life.network, torso=(width, width)))

    def to_json(self) -> dict[str, Any]:
        """Plain values by flat name, for `config.json`."""
        return flat_settings(self)


@dataclass(frozen=True)
class DiscoverConfig(PopulationConfig):
    """One discovery run, reproducible from this alone (and the rule it starts from).

    The defaults are the published notebook's.
    """

    stacked: bool = False
    """Compute agents of equal shapes as one, and step the built-in games of a family as one:
    much faster with many small agents. Members of a family are padded to its largest."""
    padded: bool = False
    """With --stacked: show all agents vectors of one length and give them the same number of
    actions, so that the whole population is one stack."""
    curriculum: Literal["none", "learnability"] = "none"
    """Which members of its family newborn agents get: any, or more often those where the rule's
    agents and actor-critic came to different returns."""
    fresh_members: Annotated[float, Range(0.05, 1)] = 0.5
    """With --curriculum learnability: share of newborns that still get any member."""
    mode: Mode = "auto"
    """How meta-gradients are computed."""
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)
    meta_loss: MetaLossConfig = field(default_factory=MetaLossConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    num_bins: Annotated[int, Range(2)] = 601
    """Bins of the agents' action values, if the rule starts random."""
    max_abs_value: Positive = 300.0
    """Range of those bins, on the squashed scale: 30 stands for about 900."""
    sizes: MetaNetworkSizes = field(default_factory=MetaNetworkSizes)
    """Sizes of the rule, if it starts random."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.padded and not self.stacked:
            raise DiscorlError("--padded: only with --stacked")
        if self.meta.meta_optimiser == "es":
            self._check_evolution()
        if self.curriculum == "learnability":
            self._check_curriculum()

    def _check_curriculum(self) -> None:
        if not any(has_members(entry.rpartition("@")[0] or entry) for entry in self.envs):
            raise DiscorlError(
                "--curriculum learnability: --envs has no family whose members could be drawn"
            )
        if not self.lifetimes and self.meta.meta_optimiser != "es":
            raise DiscorlError(
                "--curriculum learnability: only newborns get another member, and without "
                "--lifetimes there are none"
            )

    def _check_evolution(self) -> None:
        if self.lifetimes:
            raise DiscorlError(
                "--lifetimes: with --meta-optimiser es all agents live for --es-lifetime updates"
            )
        if self.padded:
            raise DiscorlError(
                "--padded: not with --meta-optimiser es, whose stacks are agents in one environment"
            )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DiscoverConfig:
        """From what `to_json` returned, in this version or 0.1; unknown names are an error."""
        return change(cls(), _upgraded(values), "discovery setting")


def _upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """Version 0.1 had no batch size: replay, if it had any capacity, gave a share of a batch of
    one trajectory for each copy."""
    told = {"sizes", "widths", "num_envs", "replay_capacity", "replay_fraction", "device", "wandb"}
    if not told <= set(values) or "batch_size" in values:
        return values
    if values["replay_capacity"]:
        return values | {"batch_size": values["num_envs"]}
    return values | {"replay_capacity": 1024, "replay_fraction": 0.0}


def deal_environments(envs: tuple[str, ...], agents: int) -> list[str]:
    """One environment for each agent, as close to the weights as whole agents allow.

    Agents go through the list again and again, so that any number of the first ones is mixed.
    """
    weights = {}
    for entry in envs:
        spec, separator, weight = entry.rpartition("@")
        try:
            weights[spec if separator else entry] = float(weight) if separator else 1.0
        except ValueError as error:
            raise DiscorlError(f"--envs {entry}: '{weight}' is not a weight") from error
    if not all(0 < weight < math.inf for weight in weights.values()):
        raise DiscorlError("--envs: weights must be positive numbers")
    total = sum(weights.values())
    dealt = dict.fromkeys(weights, 0)
    order = []
    for count in range(1, agents + 1):
        spec = max(weights, key=lambda s: count * weights[s] / total - dealt[s])
        dealt[spec] += 1
        order.append(spec)
    return order
