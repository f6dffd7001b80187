"""What an environment's returns are measured against: random play, and the best possible."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from discorl.agents.masks import keep_legal
from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.registry import is_external, make_environment, optimal_return
from discorl.life.acting import choose
from discorl.life.playing import evaluate_policy
from discorl.rollout import TimeStep

_COPIES, _EPISODES = 1024, 4096
_EXTERNAL_COPIES, _EXTERNAL_EPISODES = 8, 100
"""External environments step one copy after another."""
_SEED = 2_000_003


@dataclass(frozen=True)
class Anchors:
    """Two returns of an environment that scores are measured against."""

    random_return: float | None
    """Mean return of uniformly random legal actions; it is 0 of the score. None if the environment
    failed while it was measured."""
    random_episodes: int
    optimal_return: float | None
    """Mean return of perfect play, or a bound on it, where known: a score of 1."""
    random_outcomes: dict[str, float] = field(default_factory=dict)
    """What random episodes came to besides their return, where the environment tells it."""


def measure_anchors(env: str, config: EnvironmentConfig | None = None) -> Anchors:
    """Play random episodes, the same each time: thousands, or a hundred in external ones."""
    external = is_external(env)
    copies, episodes = (_EXTERNAL_COPIES, _EXTERNAL_EPISODES) if external else (_COPIES, _EPISODES)
    with closing(make_environment(env, copies, config=config)) as environment:
        play = evaluate_policy(_Uniform(), environment, _SEED, episodes)
    return Anchors(
        random_return=play.mean_return,
        random_episodes=play.episodes,
        optimal_return=None if external else optimal_return(env),
        random_outcomes=play.outcomes,
    )


class _Uniform:
    """Every legal action is equally likely."""

    def begin(self, env: Environment, seed: int) -> Any:
        """See `Policy.begin`."""
        return torch.zeros(env.num_envs, env.num_actions), torch.Generator().manual_seed(seed)

    def act(self, step: TimeStep, carried: Any) -> tuple[Tensor, Any]:
        """See `Policy.act`."""
        logits, generator = carried
        return choose(keep_legal(logits, step.observation), generator), carried
