"""What a discovery run is told: one flat dataclass, every field a command-line flag."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from discorl.agents.config import NetworkConfig
from discorl.discovery.meta_gradient import Mode
from discorl.discovery.value_function import ValueConfig
from discorl.errors import DiscorlError
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.settings import check_known, check_least, flag


@dataclass(frozen=True)
class DiscoverConfig:
    """One discovery run, reproducible from this alone (and the rule it starts from).

    The defaults are the published notebook's.
    """

    envs: tuple[str, ...] = ("catch:rows=5,columns=5",)
    """Environments, each with a weight after an at-sign where wanted: catch@2. Of a family
    (family:grid) every newborn agent gets another member."""
    init: str = "random"
    """The rule to start from: random, a name from `discorl rules list`, or a rule file."""
    meta_steps: int = 800
    """Updates of the rule."""
    seed: int = 0
    """Fixes every random choice of the run."""

    agents: int = 2
    """Population size; the environments are dealt out by weight."""
    inner_steps: int = 2
    """N: agent updates that a meta-gradient reaches back through."""
    num_envs: int = 32
    """Copies of the environment that each agent acts in: the batch of its updates."""
    rollout_length: int = 16
    """Stored steps of a train rollout; the validation rollout is twice as long."""
    lifetimes: tuple[int, ...] = ()
    """Agents start anew after so many updates, drawn from these, short ones more often; by
    default they never do."""
    replay_capacity: int = 0
    """Trajectories each agent keeps for its train rollouts; 0 for none."""
    replay_fraction: float = 0.5
    """Share of a train rollout drawn from replay, if there is one."""

    learning_rate: float = 5e-4
    """Agents' learning rate."""
    learn_first_steps: bool = False
    """Let an episode's first step count in the agents' loss; in the published one it does not."""
    widths: tuple[int, ...] = (512,)
    """Units of the agents' torso layers; each agent takes one of these in turn."""
    activate_torso: bool = False
    """ReLU after the torso's last layer too."""
    model_size: int = 256
    """LSTM cells of the agents' action-conditional model."""
    head_hidden: int = 256
    """Hidden units of the agents' action heads."""
    action_head_std: float | None = None
    """Initial deviation of the action heads' last weights; by default 1 / sqrt(fan-in)."""
    value_width: float | None = None
    """Width around zero that the agents' values start with; by default nearly uniform."""
    value_torso: tuple[int, ...] = (256, 256)
    """Units of the value network that judges the agents."""
    value_learning_rate: float = 1e-3
    """Its learning rate."""

    meta_learning_rate: float = 5e-4
    """The rule's learning rate."""
    meta_learning_rate_schedule: Literal["constant", "cosine"] = "constant"
    """Keep it, or let it fall to zero over the run along a cosine."""
    meta_optimiser: Literal["shared", "per_agent"] = "shared"
    """One Adam on the mean meta-gradient (the notebook), or one for each agent's meta-gradient
    before the mean (the paper)."""
    meta_clip: float | None = None
    """Largest norm of each agent's meta-gradient; longer ones are shortened."""
    mode: Mode = "auto"
    """How meta-gradients are computed."""
    num_bins: int = 601
    """Bins of the action values of agents that learn by a random rule."""
    max_abs_value: float = 300.0
    """Range of those bins, on the squashed scale: 30 stands for about 900."""
    sizes: MetaNetworkSizes = field(default_factory=MetaNetworkSizes)
    """Sizes of a random rule."""

    device: str = "cpu"
    """Where everything is computed."""
    float64: bool = False
    """Compute in double precision, for comparisons."""
    log_every: int = 5
    """Meta-steps between records of metrics."""
    eval_every: int = 200
    """Meta-steps between evaluations of the rule on fresh agents; 0 evaluates at the end only."""
    eval_steps: int = 1000
    """Updates of each fresh agent."""
    checkpoint_every: int = 50
    """Meta-steps between checkpoints."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints stay."""
    wandb: bool = False
    """Log to Weights & Biases too."""

    def __post_init__(self) -> None:
        for name in ("envs", "lifetimes", "widths", "value_torso"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_least(self, _LEAST)
        if not self.envs:
            raise DiscorlError("--envs: expected one or more environments")
        for name in ("widths", "value_torso"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise DiscorlError(f"{flag(name)}: expected one or more positive sizes")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise DiscorlError(f"{flag(name)}: expected a positive number")
        if 0 < self.replay_capacity < self.num_envs:
            raise DiscorlError(
                f"--replay-capacity {self.replay_capacity}: expected 0, or room for one rollout "
                f"({self.num_envs})"
            )
        if self.lifetimes and min(self.lifetimes) < self.inner_steps:
            raise DiscorlError("--lifetimes: expected at least --inner-steps updates each")
        if not 0 <= self.replay_fraction <= 1:
            raise DiscorlError("--replay-fraction: expected a number from 0 to 1")

    def network(self, index: int) -> NetworkConfig:
        """The part that shapes the network of an agent."""
        width = self.widths[index % len(self.widths)]
        return NetworkConfig(
            torso=(width, width),
            activate_torso=self.activate_torso,
            model_size=self.model_size,
            head_hidden=self.head_hidden,
            action_head_std=self.action_head_std,
            value_width=self.value_width,
        )

    @property
    def value(self) -> ValueConfig:
        """The part that shapes the value network."""
        return ValueConfig(torso=self.value_torso, learning_rate=self.value_learning_rate)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `config.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DiscoverConfig:
        """What `to_json` gave; unknown names are an error."""
        check_known(cls, values, "discovery setting")
        try:
            sizes: Any = {
                k: tuple(v) if isinstance(v, list) else v
                for k, v in dict(values.get("sizes", {})).items()
            }
            return cls(**{**values, "sizes": MetaNetworkSizes(**sizes)})
        except (TypeError, ValueError) as error:
            raise DiscorlError(f"a setting has a value of the wrong type: {error}") from error


_POSITIVE = (
    "learning_rate",
    "value_learning_rate",
    "meta_learning_rate",
    "meta_clip",
    "max_abs_value",
    "action_head_std",
)
_LEAST = {
    "meta_steps": 1,
    "agents": 1,
    "inner_steps": 1,
    "num_envs": 1,
    "rollout_length": 2,
    "replay_capacity": 0,
    "model_size": 1,
    "head_hidden": 1,
    "num_bins": 2,
    "log_every": 1,
    "eval_every": 0,
    "eval_steps": 1,
    "checkpoint_every": 1,
    "keep_checkpoints": 1,
}


def deal_environments(envs: tuple[str, ...], agents: int) -> list[str]:
    """One environment for each agent, as near to the weights as whole agents allow.

    Agents come in the order of the list again and again, so that any number of the first ones
    is mixed.
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
