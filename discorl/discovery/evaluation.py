"""The true measure of a rule: how well a fresh agent learns by it while it is held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import torch

from discorl.discovery.config import PopulationConfig
from discorl.discovery.member import begin_life, next_batch
from discorl.discovery.stack import is_stacked, seats
from discorl.life.life import Life
from discorl.life.playing import EvaluationStopped, Watch
from discorl.life.together import act_together, by_shape, learn_together
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
    """Train one fresh agent from birth with the rule held fixed; see `evaluate_agents`."""
    return evaluate_agents(rule, config, env, (seed,), points, index, watch)[0]


def evaluate_agents(
    rule: DiscoRule,
    config: PopulationConfig,
    env: str,
    seeds: Sequence[int],
    points: int = 50,
    index: int = 0,
    watch: Watch | None = None,
) -> list[RuleEvaluation]:
    """Train a fresh agent for each seed from birth, with the rule held fixed.

    They live as the population's agent `index` does: same network, same experience, same learning;
    and all at once, if it is stacked. `watch` is called after each update with the number so far
    and the total; True ends it.
    """
    every = max(config.eval_steps // points, 1)
    curves: list[list[tuple[int, float]]] = [[] for _ in seeds]
    with ExitStack() as open_lives:
        lives = _fresh_lives(rule, config, env, seeds, index, open_lives)
        for step in range(1, config.eval_steps + 1):
            _live(lives, is_stacked(config))
            if watch is not None and watch(step, config.eval_steps):
                raise EvaluationStopped
            if step % every == 0 or step == config.eval_steps:
                for life, curve in zip(lives, curves, strict=True):
                    curve.append((step, life.episodes.mean_return()))
    return [
        RuleEvaluation(
            env=env,
            seed=seed,
            steps=config.eval_steps,
            final_return=curve[-1][1],
            mean_return=sum(value for _, value in curve) / len(curve),
            curve=curve,
        )
        for seed, curve in zip(seeds, curves, strict=True)
    ]


def _fresh_lives(
    rule: DiscoRule,
    config: PopulationConfig,
    env: str,
    seeds: Sequence[int],
    index: int,
    open_lives: ExitStack,
) -> list[Life]:
    of_lives = [_SEED_OFFSET + seed for seed in seeds]
    places = seats(config, [env] * len(seeds), of_lives, [index] * len(seeds))
    lives = []
    for seed, seat in zip(of_lives, places, strict=True):
        generator = torch.Generator(config.run.torch_device).manual_seed(seed)
        life = begin_life(config, index, env, seed, rule, generator, seat)
        lives.append(open_lives.enter_context(closing(life)))
    return lives


def _live(lives: Sequence[Life], stacked: bool) -> None:
    """One update of each."""
    if not stacked:
        for life in lives:
            life.learn(next_batch(life, life.act()), measured=False)
        return
    for group in by_shape(lives, lambda life: life):
        learn_together(group, list(map(next_batch, group, act_together(group))))
