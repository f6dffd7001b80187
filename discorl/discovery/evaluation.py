"""The true measure of a rule: how well a fresh agent learns by it, the rule held fixed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from discorl.discovery.config import DiscoverConfig
from discorl.envs.families import resolve_environment
from discorl.rules.disco import DiscoRule
from discorl.training.config import TrainConfig
from discorl.training.trainer import Trainer

_SEED_OFFSET = 500_000
"""Fresh agents are none that the rule was discovered with."""


@dataclass(frozen=True)
class RuleEvaluation:
    """One fresh agent's life."""

    env: str
    seed: int
    steps: int
    final_return: float
    """Mean return of its newest episodes after the last update."""
    mean_return: float
    """Mean over the whole life: how fast it learned, too."""
    curve: list[tuple[int, float]]
    """(updates, mean return of the newest episodes)."""


def evaluation_config(config: DiscoverConfig, env: str, seed: int) -> TrainConfig:
    """A fresh agent lives as the population's do: same network, same way of learning."""
    return TrainConfig(
        env=resolve_environment(env, _SEED_OFFSET + seed),
        rule="the rule under evaluation",
        steps=config.eval_steps,
        seed=_SEED_OFFSET + seed,
        num_envs=config.num_envs,
        rollout_length=config.rollout_length,
        batch_size=None,
        replay_fraction=0.0,
        learning_rate=config.learning_rate,
        learn_first_steps=config.learn_first_steps,
        device=config.device,
        **asdict(config.network(0)),
    )


def evaluate_rule(
    rule: DiscoRule, config: DiscoverConfig, env: str, seed: int = 0, points: int = 50
) -> RuleEvaluation:
    """Train one fresh agent from birth with the rule held fixed."""
    trainer = Trainer(evaluation_config(config, env, seed), rule)
    every = max(config.eval_steps // points, 1)
    curve = []
    for step in range(1, config.eval_steps + 1):
        trainer.train_step()
        if step % every == 0 or step == config.eval_steps:
            curve.append((step, trainer.mean_return()))
    returns = [value for _, value in curve]
    return RuleEvaluation(
        env=env,
        seed=seed,
        steps=config.eval_steps,
        final_return=returns[-1],
        mean_return=sum(returns) / len(returns),
        curve=curve,
    )
