"""How an agent lives: what it acts in, what it stores, how it learns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from discorl.agents.base import Agent
from discorl.agents.config import NetworkConfig
from discorl.envs.base import EnvironmentConfig
from discorl.errors import DiscorlError
from discorl.group import SOLO, Group
from discorl.learner import Learner
from discorl.optim import ClippedAdam, Schedule
from discorl.rules.base import UpdateRule
from discorl.settings import (
    Count,
    FlatView,
    Natural,
    NotNegative,
    Positive,
    Range,
    Search,
    Share,
    check_fields,
)


@dataclass(frozen=True)
class ReplayConfig:
    """What an update learns from."""

    batch_size: Annotated[Count | None, Search(choices=(16, 32, 64, 128))] = 64
    """Trajectories in an update; None takes the newest of every copy, plus replayed ones by
    their share."""
    replay_capacity: Natural = 1024
    """Trajectories kept for replay, first in, first out; nothing is kept if none are drawn."""
    replay_fraction: Annotated[Share, Search(0.0, 0.95)] = 1.0
    """Share of a batch drawn from replay; the rest is the newest rollout."""
    replay_ratio: Annotated[Count, Search(choices=(1, 2, 4, 8))] = 1
    """Updates after each rollout, each from its own batch."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch_size is None and self.replay_fraction == 1:
            raise DiscorlError(
                "--batch-size: say how many trajectories an update takes if all come from replay"
            )

    def shares(self, newest: int) -> tuple[int, int]:
        """How many trajectories of a batch are new and replayed, if a rollout has `newest`."""
        batch = self.batch_size
        if batch is None:
            batch = round(newest / (1 - self.replay_fraction))
        fresh = round((1 - self.replay_fraction) * batch)
        return fresh, batch - fresh


@dataclass(frozen=True)
class ExperienceConfig(FlatView):
    """What an agent lives through and learns from."""

    num_envs: Annotated[Count, Search(choices=(4, 8, 16, 32, 64))] = 2
    """Copies of the environment that act at once."""
    rollout_length: Annotated[int, Range(2), Search(8, 64, log=True)] = 29
    """Steps each copy acts for between updates, all of them stored; they hold one transition
    fewer."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    burn_in: Natural = 0
    """Steps at the start of a trajectory that only refresh the agent's memory."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.burn_in > self.rollout_length - 2:
            raise DiscorlError(
                f"--burn-in {self.burn_in}: expected at most {self.rollout_length - 2}, so that "
                "two steps of --rollout-length are left to learn from"
            )
        fresh, replayed = self.shares
        if fresh > self.num_envs:
            raise DiscorlError(
                f"--replay-fraction {self.replay.replay_fraction} of a batch of "
                f"{fresh + replayed} wants {fresh} new trajectories a step, but {self.num_envs} "
                "environments give one each: raise --num-envs or --replay-fraction, or lower "
                "--batch-size"
            )
        if replayed and self.replay.replay_capacity < max(replayed, self.num_envs):
            raise DiscorlError(
                f"--replay-capacity {self.replay.replay_capacity}: expected room for a batch "
                f"({replayed}) and for one rollout ({self.num_envs})"
            )

    @property
    def shares(self) -> tuple[int, int]:
        """How many trajectories of a batch are new, and how many replayed."""
        return self.replay.shares(self.num_envs)

    def share(self, group: Group) -> ExperienceConfig:
        """One process's part of it, if several share it equally; DiscorlError if they cannot."""
        if group.size == 1:
            return self
        num_envs = group.share("--num-envs", self.num_envs)
        (fresh, replayed), replay = self.shares, self.replay
        if fresh % group.size or replayed % group.size:
            raise DiscorlError(
                f"--batch-size: an update takes {fresh} new and {replayed} replayed trajectories, "
                f"which {group.size} processes cannot share equally; both must be multiples of "
                f"{group.size}"
            )
        batch, capacity = replay.batch_size, replay.replay_capacity
        return replace(
            self,
            num_envs=num_envs,
            replay=replace(
                replay,
                batch_size=None if batch is None else batch // group.size,
                replay_capacity=group.share("--replay-capacity", capacity)
                if replayed
                else capacity,
            ),
        )

    @property
    def first_update(self) -> int:
        """The first training step with an update: replay must hold its share of a batch."""
        return max(-(-self.shares[1] // self.num_envs), 1)

    @property
    def rollout_steps(self) -> int:
        """Environment steps of one rollout, over all copies."""
        return self.num_envs * self.rollout_length


@dataclass(frozen=True)
class RewardConfig:
    """What is learned from in place of raw rewards. Reported returns are always raw."""

    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1]."""
    reward_scale: float = 1.0
    """Learn from rewards times this."""
    shrink_rewards: bool = False
    """Learn from rewards divided by the running deviation of returns, where that is above one."""
    normalize_rewards: Annotated[NotNegative, Search(choices=(0.0, 1.0, 10.0))] = 0.0
    """Learn from rewards on the scale where returns have this deviation, so far; 0 leaves them
    as they are."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.shrink_rewards and self.normalize_rewards:
            raise DiscorlError("--shrink-rewards and --normalize-rewards: choose one of them")
        if not math.isfinite(self.reward_scale) or self.reward_scale == 0:
            raise DiscorlError("--reward-scale: expected a number other than 0")

    @property
    def scales(self) -> bool:
        """Whether the deviation of returns must be known."""
        return self.shrink_rewards or self.normalize_rewards > 0


@dataclass(frozen=True)
class LearningConfig:
    """How far an update goes."""

    learning_rate: Annotated[Positive, Search(1e-4, 0.03, log=True)] = 0.01
    """The largest possible step of a parameter in one update."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Keep the learning rate, or let it fall over the run in a straight line or along a cosine."""
    final_learning_rate: Annotated[Share, Search(0.0, 0.5)] = 0.0
    """What is left of the learning rate at the end of a schedule, as a fraction."""
    warmup_updates: Natural = 0
    """Updates over which the learning rate rises from zero."""
    weight_decay: Annotated[NotNegative, Search(1e-6, 1e-2, log=True)] = 0.0
    """Decoupled weight decay."""
    max_step: Annotated[Positive, Search(0.1, 2.0, log=True)] = 1.0
    """No element of Adam's step exceeds this, before the learning rate."""
    learn_first_steps: bool = False
    """Let an episode's first step count in the loss; in the published learner it does not."""

    def __post_init__(self) -> None:
        check_fields(self)

    def learner(
        self,
        agent: Agent,
        rule: UpdateRule,
        updates: int | None = None,
        group: Group = SOLO,
    ) -> Learner:
        """A learner with these settings, for a life of `updates` updates if that is known."""
        falls = self.learning_rate_schedule != "constant"
        if falls and updates is None:
            raise DiscorlError(
                f"--learning-rate-schedule {self.learning_rate_schedule}: a life without a known "
                "end has no schedule"
            )
        schedule = Schedule(
            self.learning_rate,
            updates if falls else None,
            self.final_learning_rate,
            "linear" if self.learning_rate_schedule == "linear" else "cosine",
            self.warmup_updates,
        )
        optimiser = ClippedAdam(schedule, max_step=self.max_step, weight_decay=self.weight_decay)
        if updates is not None:
            rule = rule.for_run(updates)
        return Learner(agent, rule, optimiser, self.learn_first_steps, group=group)


@dataclass(frozen=True)
class LifeConfig(FlatView):
    """Everything that shapes an agent's life but the environment, the rule and the seed."""

    experience: ExperienceConfig = field(default_factory=ExperienceConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)

    def share(self, group: Group) -> LifeConfig:
        """One process's part of it; see `ExperienceConfig.share`."""
        return replace(self, experience=self.experience.share(group))
