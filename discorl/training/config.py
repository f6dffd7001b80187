"""What a training run is told: one flat dataclass, every field a command-line flag."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import tyro

from discorl.agents.config import BodyName, MemoryName, NetworkConfig
from discorl.envs.base import EnvironmentOptions
from discorl.errors import DiscorlError
from discorl.settings import check_known, check_least


@dataclass(frozen=True)
class TrainConfig:
    """One training run, reproducible from this alone (and the rule's weights).

    The defaults are the published ones for discovered rules; `make_config` gives ours.
    """

    env: tyro.conf.Positional[str] = "catch"
    """Environment: a name from `discorl envs list` with settings after a colon
    (catch:rows=10,columns=7), a Gymnasium id (CartPole-v1), or module:function."""
    rule: str = "sprout"
    """Update rule: a name from `discorl rules list`, or a rule file."""
    steps: int = 1000
    """Training steps: each is one rollout and, once a batch is stored, one update."""
    seed: int = 0
    """Fixes every random choice of the run."""

    num_envs: int = 2
    """Copies of the environment that act at once."""
    rollout_length: int = 29
    """Steps each copy acts for between updates; the learner sees one transition less."""
    batch_size: int | None = 64
    """Trajectories in an update; None takes the newest of every copy, and replayed ones with
    them by their share."""
    replay_capacity: int = 1024
    """Trajectories kept for replay, first in, first out; none if none are drawn."""
    replay_fraction: float = 1.0
    """Share of a batch drawn from replay; the rest is the newest rollout."""

    clip_rewards: bool = False
    """Learn from rewards cut to -1 and 1. Returns are reported as they are."""
    reward_scale: float = 1.0
    """Learn from rewards times this. Returns are reported as they are."""
    shrink_rewards: bool = False
    """Learn from rewards divided by the running deviation of returns, where that is above one.
    Returns are reported as they are."""
    normalize_observations: bool = False
    """Shift and scale observations to mean 0 and deviation 1, as seen so far. Not images."""
    discretize_actions: int = 0
    """Values of each dimension of a continuous action to choose from; 0 refuses such actions."""
    env_workers: bool = False
    """A process for each copy of a Gymnasium environment; worth it if its steps are slow."""
    env_timeout: float = 60.0
    """Seconds after which such a process that does not answer is given up."""

    learning_rate: float = 0.01
    """The largest possible step of a parameter in one update."""
    learning_rate_schedule: Literal["constant", "cosine"] = "constant"
    """Keep the learning rate, or let it fall to zero over the run along a cosine."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""

    learn_first_steps: bool = False
    """Let an episode's first step count in the loss; in the published learner it does not."""

    torso: tuple[int, ...] = (512, 512)
    """Units of the fully connected layers: the MLP's, or those behind convolutions."""
    body: BodyName = "auto"
    """What reads the observation; by default an MLP for vectors, convolutions for images."""
    channels: tuple[int, ...] = ()
    """Channels of the convolutions; by default each body's own."""
    blocks: int = 2
    """Residual blocks in each section of the IMPALA body."""
    memory: MemoryName = "none"
    """What remembers earlier observations."""
    memory_size: int = 256
    """Cells of the LSTM or GRU, or the transformer's width."""
    memory_window: int = 32
    """Steps that the transformer looks back."""
    memory_layers: int = 2
    """The transformer's layers."""
    memory_heads: int = 4
    """The transformer's attention heads in each layer."""
    burn_in: int = 0
    """Steps at the start of a trajectory that only refresh the agent's memory."""
    activate_torso: bool = False
    """ReLU after the torso's last layer too."""
    model_size: int = 128
    """LSTM cells of the action-conditional model."""
    head_hidden: int = 128
    """Hidden units of each action head."""
    head_std: float = 0.01
    """Initial deviation of the state heads' weights."""
    action_head_std: float | None = None
    """Initial deviation of the action heads' last weights; by default 1 / sqrt(fan-in)."""
    value_width: float | None = None
    """Width around zero that categorical values start with; by default nearly uniform."""

    device: str = "cpu"
    """Where everything is computed: cpu, cuda, cuda:1, ..."""
    compile: bool = False
    """Compile the learner step: a minute or two at the start, then faster."""
    log_every: int = 10
    """Steps between records of metrics."""
    eval_every: int = 0
    """Steps between evaluations; 0 evaluates at the end only."""
    eval_episodes: int = 100
    """Episodes of each evaluation, greedy and sampled."""
    checkpoint_every: int = 100
    """Steps between checkpoints."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints stay."""
    wandb: bool = False
    """Log to Weights & Biases too."""

    def __post_init__(self) -> None:
        for name in ("torso", "channels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_least(self, _LEAST)
        if not self.learning_rate > 0:
            raise DiscorlError("--learning-rate: expected a positive number")
        if not 0 <= self.replay_fraction <= 1:
            raise DiscorlError("--replay-fraction: expected a number from 0 to 1")
        if not self.torso or min(self.torso) < 1:
            raise DiscorlError("--torso: expected one or more positive sizes")
        if self.channels and min(self.channels) < 1:
            raise DiscorlError("--channels: expected positive numbers")
        if not math.isfinite(self.reward_scale) or self.reward_scale == 0:
            raise DiscorlError("--reward-scale: expected a number other than 0")
        if not self.env_timeout > 0:
            raise DiscorlError("--env-timeout: expected a positive number of seconds")
        if self.burn_in > self.rollout_length - 2:
            raise DiscorlError(
                f"--burn-in {self.burn_in}: expected at most {self.rollout_length - 2}, so that "
                "two steps of --rollout-length are left to learn from"
            )
        self._check_batch()

    @property
    def network(self) -> NetworkConfig:
        """The part that shapes the network."""
        return NetworkConfig(**{f.name: getattr(self, f.name) for f in fields(NetworkConfig)})

    @property
    def env_options(self) -> EnvironmentOptions:
        """How an environment from outside is run."""
        return EnvironmentOptions(self.env_workers, self.env_timeout, self.discretize_actions)

    @property
    def rollout_steps(self) -> int:
        """Environment steps of one training step, over all copies."""
        return self.num_envs * self.rollout_length

    @property
    def env_steps(self) -> int:
        """Environment steps of the whole run, over all copies."""
        return self.steps * self.rollout_steps

    @property
    def batch(self) -> int:
        """Trajectories in an update."""
        if self.batch_size is not None:
            return self.batch_size
        return round(self.num_envs / (1 - self.replay_fraction))

    @property
    def fresh_trajectories(self) -> int:
        """How many trajectories of a batch are the newest ones."""
        return round((1 - self.replay_fraction) * self.batch)

    @property
    def replayed_trajectories(self) -> int:
        """How many trajectories of a batch are drawn from replay."""
        return self.batch - self.fresh_trajectories

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `config.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """What `to_json` gave; unknown names are an error."""
        check_known(cls, values, "training setting")
        try:
            return cls(**values)
        except TypeError as error:
            raise DiscorlError(f"a setting has a value of the wrong type: {error}") from error

    def _check_batch(self) -> None:
        if self.batch_size is None and self.replay_fraction == 1:
            raise DiscorlError(
                "--batch-size: say how many trajectories an update takes if all come from replay"
            )
        if self.fresh_trajectories > self.num_envs:
            raise DiscorlError(
                f"--replay-fraction {self.replay_fraction} of a batch of {self.batch} wants "
                f"{self.fresh_trajectories} new trajectories a step, but {self.num_envs} "
                "environments give one each: raise --num-envs or --replay-fraction, or lower "
                "--batch-size"
            )
        replayed = self.replayed_trajectories
        if replayed and self.replay_capacity < max(replayed, self.num_envs):
            raise DiscorlError(
                f"--replay-capacity {self.replay_capacity}: expected room for a batch "
                f"({replayed}) and for one rollout ({self.num_envs})"
            )


_LEAST = {
    "steps": 1,
    "num_envs": 1,
    "rollout_length": 2,
    "batch_size": 1,
    "model_size": 1,
    "head_hidden": 1,
    "blocks": 0,
    "memory_size": 1,
    "memory_window": 1,
    "memory_layers": 1,
    "memory_heads": 1,
    "burn_in": 0,
    "discretize_actions": 0,
    "log_every": 1,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 1,
    "keep_checkpoints": 1,
}
