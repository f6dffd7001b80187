"""What a training run is told: one flat dataclass, every field a command-line flag."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import tyro

from discorl.agents.network import NetworkConfig
from discorl.errors import DiscorlError
from discorl.settings import check_known, check_least


@dataclass(frozen=True)
class TrainConfig:
    """One training run, reproducible from this alone (and the rule's weights).

    The defaults are the published ones for discovered rules; `make_config` gives ours.
    """

    env: tyro.conf.Positional[str] = "catch"
    """Environment, with settings after a colon: catch:rows=10,columns=7."""
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

    learning_rate: float = 0.01
    """The largest possible step of a parameter in one update."""
    learning_rate_schedule: Literal["constant", "cosine"] = "constant"
    """Keep the learning rate, or let it fall to zero over the run along a cosine."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""

    torso: tuple[int, ...] = (512, 512)
    """Units of the MLP torso's layers."""
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
        object.__setattr__(self, "torso", tuple(self.torso))
        check_least(self, _LEAST)
        if not self.learning_rate > 0:
            raise DiscorlError("--learning-rate: expected a positive number")
        if not 0 <= self.replay_fraction <= 1:
            raise DiscorlError("--replay-fraction: expected a number from 0 to 1")
        if not self.torso or min(self.torso) < 1:
            raise DiscorlError("--torso: expected one or more positive sizes")
        self._check_batch()

    @property
    def network(self) -> NetworkConfig:
        """The part that shapes the network."""
        return NetworkConfig(**{f.name: getattr(self, f.name) for f in fields(NetworkConfig)})

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
    "log_every": 1,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 1,
    "keep_checkpoints": 1,
}
