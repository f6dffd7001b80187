"""The settings of a distillation run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from discorl.agents.config import NetworkConfig
from discorl.discovery.config import MetaConfig, PopulationConfig
from discorl.errors import DiscorlError
from discorl.life.config import ExperienceConfig, LearningConfig, LifeConfig, ReplayConfig
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.runs.config import RunConfig
from discorl.settings import Count, Natural, NotNegative, Positive, Range, Share, Sizes, change


def _small_life() -> LifeConfig:
    """Small agents that learn from new experience and replay."""
    return LifeConfig(
        experience=ExperienceConfig(8, 16, ReplayConfig(batch_size=None, replay_fraction=0.75)),
        learning=LearningConfig(learning_rate=5e-3, learn_first_steps=True),
        network=NetworkConfig(
            torso=(64, 64),
            body="mlp",
            activate_torso=True,
            model_size=64,
            head_hidden=64,
            value_width=1.0,
            action_head_std=0.001,
        ),
    )


@dataclass(frozen=True)
class DistilConfig(PopulationConfig):
    """One distillation, reproducible from this alone (and the teacher)."""

    envs: tuple[str, ...] = (
        "family:catch@2",
        "family:grid",
        "family:corridor",
        "family:bandit",
        "family:umbrella",
        "family:cliff",
        "cartpole",
    )
    """Environments, each optionally with a weight after an at sign: catch@2. From a family
    (family:grid) every newborn agent gets another member."""
    teacher: str = "disco103"
    """The rule to distil: a name from `discorl rules list`, or a rule file."""
    init: str = "teacher"
    """The student to start from: a part of the teacher, random, or a rule file."""
    meta_steps: Count = 600
    """Updates of the student."""
    agents: Count = 8
    """Population size; environments are dealt out by weight."""
    inner_steps: Count = 4
    """N: agent updates that a gradient of the rule reaches back through."""
    lifetimes: Sizes = (150, 330, 630)
    """Agents are reborn after a number of updates drawn from these, short ones more often; with
    none given, they never are."""
    student_share: Share = 0.5
    """Share of newborn agents that learn by the student; the others learn by the teacher."""
    student_rise: Natural = 100
    """Meta-steps over which that share rises from zero."""
    policy_weight: NotNegative = 1.0
    """Weight of the divergence between the two policy targets."""
    y_weight: NotNegative = 1.0
    """Weight of the divergence between the two targets of y."""
    z_weight: NotNegative = 1.0
    """Weight of the divergence between the two targets of z."""
    life: LifeConfig = field(default_factory=_small_life)
    meta: MetaConfig = field(default_factory=lambda: MetaConfig(meta_learning_rate=3e-4))
    num_bins: Annotated[int, Range(2)] | None = None
    """Bins of the agents' action values; by default the teacher's."""
    max_abs_value: Positive | None = None
    """Range of those bins, on the squashed scale; by default the teacher's."""
    sizes: MetaNetworkSizes = field(default_factory=lambda: MetaNetworkSizes(predictions=32))
    """Sizes of the student."""
    eval_steps: Count = 400
    """Updates of each fresh agent that evaluates the rule."""
    run: RunConfig = field(
        default_factory=lambda: RunConfig(log_every=5, eval_every=200, checkpoint_every=50)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.meta.meta_optimiser == "es":
            raise DiscorlError("--meta-optimiser es: only in discovery; a student has gradients")
        if not self.policy_weight + self.y_weight + self.z_weight > 0:
            raise DiscorlError("--policy-weight, --y-weight, --z-weight: one must be above zero")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DistilConfig:
        """From what `to_json` returned; unknown names are an error."""
        return change(cls(), values, "distillation setting")

    @property
    def weights(self) -> dict[str, float]:
        """Target -> the weight of its divergence."""
        return {"policy": self.policy_weight, "y": self.y_weight, "z": self.z_weight}
