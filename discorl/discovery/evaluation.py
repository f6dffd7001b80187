"""The true measure of a rule: how well a fresh agent learns by it while it is held fixed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import torch

from discorl.discovery.config import PopulationConfig
from discorl.discovery.member import begin_life, next_batch
from discorl.life.playing import EvaluationStopped, Watch
from discorl.rules.disco import DiscoRule

_SEED_OFFSET = 500_000
"""Fresh agents must not be any that the rule was discovered with."""


@dataclass(frozen=True)
class RuleEvaluation:
    """One fresh agent's life."""

    env: str
    seed: int
    steps: int
    final_return: float
    """Mean return of its newest episodes after the last update."""
    mean_return: float
    """Mean over the whole life, which also tells how fast it learned."""
    curve: list[tuple[int, float]]
    """(updates, mean return of the newest episodes)."""


def evaluate_rule(
    rule: DiscoRule,
    config: PopulationConfig,
    env: str,
    seed: int = 0,
    points: int = 50,
    index: int = 0,
    watch: Watch | None = None,
) -> RuleEvaluation:
    """Train one fresh agent from birth with the rule held fixed.

    It lives as the population's agent `index` does: same network, same experience, same learning.
    `watch` is called after each update with the number so far and the total; True ends it.
    """
    seed_of_life = _SEED_OFFSET + seed
    generator = torch.Generator(config.run.torch_device).manual_seed(seed_of_life)
    every = max(config.eval_steps // points, 1)
    curve = []
    with closing(begin_life(config, index, env, seed_of_life, rule, generator)) as life:
        for step in range(1, config.eval_steps + 1):
            life.learn(next_batch(life, life.act()))
            if watch is not None and watch(step, config.eval_steps):
                raise EvaluationStopped
            if step % every == 0 or step == config.eval_steps:
                curve.append((step, life.episodes.mean_return()))
    returns = [value for _, value in curve]
    return RuleEvaluation(
        env=env,
        seed=seed,
        steps=config.eval_steps,
        final_return=returns[-1],
        mean_return=sum(returns) / len(returns),
        curve=curve,
    )
