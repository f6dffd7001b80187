"""The paper's settings of evaluation, by environment: Oh et al., Nature 648 (2025), Methods and
Extended Data Table 6.

They are for large machines. What a table of ours cannot say exactly is said beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discorl.errors import DiscorlError
from discorl.settings import join_spec, split_spec

_UNROLL = 29

_IMPALA: dict[str, Any] = {
    "body": "impala",
    "channels": (256, 384, 384, 256),
    "torso": (768,),
    "model_size": 1024,
    "head_hidden": 1024,
    "activate_torso": True,
}
"""The Atari network; that of the other domains is not in the table, and taken to be the same."""


@dataclass(frozen=True)
class Domain:
    """One column of the table."""

    prefix: str
    """How names of its environments begin."""
    num_envs: int
    """Trajectories that are acted for an update: those of a batch that are not replayed."""
    batch_size: int
    replay_fraction: float
    replay_steps: int
    """Steps that replay keeps."""
    env_steps: int
    warmup_steps: int
    """Environment steps over which the learning rate rises."""
    learning_rate: float = 3e-4
    schedule: str = "cosine"
    weight_decay: float = 0.1
    max_step: float = 1.0
    replay_ratio: int = 1
    stack: int | None = None
    """Frames that an observation shows, where that is a setting of the environment."""
    images: bool = True

    def settings(self) -> dict[str, Any]:
        """Fields of `TrainConfig`."""
        rollout = self.num_envs * _UNROLL
        network = _IMPALA if self.images else {k: v for k, v in _IMPALA.items() if k in _PLAIN}
        return {
            **network,
            "num_envs": self.num_envs,
            "rollout_length": _UNROLL,
            "batch_size": self.batch_size,
            "replay_fraction": self.replay_fraction,
            "replay_capacity": self.replay_steps // _UNROLL,
            "replay_ratio": self.replay_ratio,
            "learning_rate": self.learning_rate,
            "learning_rate_schedule": self.schedule,
            "warmup_updates": self.replay_ratio * self.warmup_steps // rollout,
            "weight_decay": self.weight_decay,
            "max_step": self.max_step,
            "steps": self.env_steps // rollout,
        }


_PLAIN = ("torso", "model_size", "head_hidden", "activate_torso")
"""What is said of a network that reads no images."""

DOMAINS = (
    Domain("ALE/", 5, 96, 0.95, 1_760_000, 200_000_000, 5_000_000),
    Domain("procgen/", 19, 192, 0.9, 880_000, 200_000_000, 1_000_000, stack=4),
    # One copy and four updates after each of its rollouts: every step is learned from about 100
    # times. Of the 32 frames, 30 are shown: replay keeps no more of them once in rollouts of 29.
    Domain(
        "crafter",
        1,
        24,
        0.99,
        400_000,
        50_000_000,
        0,
        schedule="constant",
        weight_decay=0.3,
        replay_ratio=4,
        stack=30,
    ),
    # It shows glyphs, the hero's state and messages, which are not stacked.
    Domain(
        "nethack",
        5,
        96,
        0.95,
        1_760_000,
        200_000_000,
        10_000_000,
        learning_rate=1e-4,
        weight_decay=0.03,
        max_step=0.3,
        images=False,
    ),
    # A board says everything, so that nothing is gained from a stack of them.
    Domain("sokoban", 10, 96, 0.9, 880_000, 200_000_000, 0),
)


def is_in_paper(env: str) -> bool:
    """Whether the paper tells settings for an environment."""
    return _find(env) is not None


def paper_domain(env: str) -> Domain:
    """The column for an environment; DiscorlError if there is none."""
    if (domain := _find(env)) is not None:
        return domain
    known = ", ".join(f"{d.prefix}..." if d.prefix.endswith("/") else d.prefix for d in DOMAINS)
    raise DiscorlError(
        f"--preset paper: the paper tells no settings for '{env}', only for {known}; give others "
        "with --preset default"
    )


def _find(env: str) -> Domain | None:
    name = env.partition(":")[0]
    for domain in DOMAINS:
        of_many = domain.prefix.endswith("/")
        if name == domain.prefix or (of_many and name.startswith(domain.prefix)):
            return domain
    return None


def paper_environment(env: str) -> str:
    """The environment with as many frames as the paper shows, unless it says how many itself."""
    stack = paper_domain(env).stack
    name, settings = split_spec(env)
    if stack is None or "stack" in settings:
        return env
    return join_spec(name, {**settings, "stack": str(stack)})
