"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discorl.envs.registry import is_external
from discorl.envs.worlds import find_world
from discorl.library.catalogue import DEFAULT_RULE
from discorl.life.config import LifeConfig
from discorl.runs.config import RunConfig
from discorl.settings import Count, FlatView, Seed, change, check_fields, flag, flat_settings


@dataclass(frozen=True)
class TrainConfig(FlatView):
    """One training run, reproducible from this alone (and the rule's weights).

    The defaults are the published ones for discovered rules, which is what `--preset published`
    means; `make_config` gives what `discorl train` runs. Settings have flat names: `num_envs` is
    called that in `make_config`, in files and on the command line, and `config.num_envs` reads it.
    """

    env: str = "catch"
    """Environment: a name from `discorl envs list`, optionally with settings after a colon
    (catch:rows=10,columns=7), a Gymnasium id (CartPole-v1), or module:function."""
    rule: str = DEFAULT_RULE
    """Update rule: a name from `discorl rules list`, or a rule file, optionally with settings of
    its own after a colon (actor_critic:entropy_cost=0.01)."""
    steps: Count = 1000
    """Training steps: each is one rollout and, once a batch is stored, an update (or
    --replay-ratio of them)."""
    seed: Seed = 0
    """Fixes every random choice of the run."""
    life: LifeConfig = field(default_factory=LifeConfig)
    eval_episodes: Count = 100
    """Episodes of each evaluation, greedy and sampled."""
    eval_max_steps: Count | None = None
    """Steps after which an evaluation's episode is cut off; by default the environment's own limit,
    or 3,000 where it names none."""
    record_evaluations: bool = False
    """Record an episode with sampled actions at each evaluation, as a GIF in the run's `videos/`
    and among TensorBoard's images."""
    stop_at_return: float | None = None
    """End the run once the mean return of the last 100 training episodes reaches this."""
    compile: bool = False
    """Compile the learner step: takes a minute or two at the start, then runs faster."""
    overlap: bool = False
    """Act in the background while learning: each rollout is made by the agent of one step before,
    and learned from one step later. Faster with two cores or more."""
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def env_steps(self) -> int:
        """Environment steps of the whole run, over all copies."""
        return self.steps * self.life.experience.rollout_steps

    @property
    def updates(self) -> int:
        """Updates of the whole run, at most."""
        return self.steps * self.life.experience.replay.replay_ratio

    def to_json(self) -> dict[str, Any]:
        """Plain values by flat name, for `config.json`."""
        return flat_settings(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """From what `to_json` returned, in this version or 0.1; unknown names are an error."""
        return change(cls(), values, "training setting")


_OF_GYMNASIUM = (
    "env_workers",
    "env_timeout",
    "env_kwargs",
    "env_wrappers",
    "discretize_actions",
    "mask_actions",
)
"""Settings of environments that Gymnasium makes."""


def unused_settings(config: TrainConfig) -> list[str]:
    """Warnings of settings that were changed and have no effect in this run."""
    network, environment = config.life.network, config.life.environment
    replay = config.life.experience.replay
    groups = [
        (network.memory == "none", "--memory is none", network, ("memory_size",)),
        (
            network.memory != "transformer",
            "--memory is not transformer",
            network,
            ("memory_window", "memory_layers", "memory_heads"),
        ),
        (network.memory == "none", "--memory is none", config.life.experience, ("burn_in",)),
        (network.body == "mlp", "--body is mlp", network, ("channels",)),
        (network.body not in ("impala", "auto"), "--body is not impala", network, ("blocks",)),
        (
            not is_external(config.env),
            "the environment is one of discorl's own games",
            environment,
            _OF_GYMNASIUM,
        ),
        (
            config.env.startswith(("minatar/", "ALE/")),
            "discorl makes these games itself",
            environment,
            _OF_GYMNASIUM,
        ),
        (
            find_world(config.env) is not None,
            "these take settings after a colon",
            environment,
            ("env_kwargs",),
        ),
        (replay.replay_fraction == 0, "--replay-fraction is 0", replay, ("replay_capacity",)),
        (
            config.life.learning.learning_rate_schedule == "constant",
            "--learning-rate-schedule is constant",
            config.life.learning,
            ("final_learning_rate",),
        ),
    ]
    return [
        f"warning: {flag(name)} has no effect: {why}"
        for applies, why, part, names in groups
        for name in names
        if applies and getattr(part, name) != getattr(type(part)(), name)
    ]
