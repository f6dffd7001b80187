"""What returns of an environment mean: those of random play, and the best there can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from discorl.agents.base import Agent
from discorl.envs.base import Environment
from discorl.envs.registry import make_environment, optimal_return
from discorl.layers import Params
from discorl.training.evaluation import evaluate

_COPIES = 1024
_SEEDS = range(2_000_003, 2_000_007)
_MAX_STEPS = 10_000


@dataclass(frozen=True)
class Anchors:
    """Two returns of an environment that scores are measured by."""

    random_return: float
    """Mean return of uniformly random actions; it is 0 of the score."""
    random_episodes: int
    optimal_return: float | None
    """Mean return of perfect play, or a bound of it, where it is known; it is 1 of the score."""


def measure_anchors(env: str) -> Anchors:
    """Play a few thousand random episodes, the same ones each time."""
    environment = make_environment(env, _COPIES)
    # Evaluation asks an agent for its policy and nothing else.
    agent = cast(Agent, _Uniform(environment))
    plays = [evaluate(agent, {}, environment, seed, False, _MAX_STEPS) for seed in _SEEDS]
    return Anchors(
        random_return=sum(p.mean_return for p in plays) / len(plays),
        random_episodes=sum(p.episodes for p in plays),
        optimal_return=optimal_return(env),
    )


class _Uniform:
    """Any action is as good as any other."""

    def __init__(self, env: Environment) -> None:
        self._logits = torch.zeros(env.num_envs, env.num_actions)

    def policy(self, params: Params, observations: object) -> Tensor:
        """[B, A] zeros."""
        return self._logits
