"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discorl.library.catalogue import DEFAULT_RULE
from discorl.life.config import LifeConfig
from discorl.runs.config import RunConfig
from discorl.settings import Count, FlatView, change, check_fields, flat_settings


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
    seed: int = 0
    """Fixes every random choice of the run."""
    life: LifeConfig = field(default_factory=LifeConfig)
    eval_episodes: Count = 100
    """Episodes of each evaluation, greedy and sampled."""
    compile: bool = False
    """Compile the learner step: takes a minute or two at the start, then runs faster."""
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
