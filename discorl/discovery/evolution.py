"""Evolution strategies over whole lifetimes: the rule learns from how lives go, without gradients.

A meta-gradient sees N updates ahead. Here a perturbation of the rule is judged by agents that live
by it from birth to death, and by its opposite from the same birth: the same environment, newborn
and random numbers, so that the two lives differ by nothing but the rule. After Salimans et al.,
Evolution strategies as a scalable alternative to reinforcement learning (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.member import (
    Chooser,
    Resident,
    SeatMaker,
    begin_life,
    next_batch,
)
from discorl.discovery.stack import is_stacked
from discorl.errors import DiscorlError
from discorl.layers import Params
from discorl.life.episodes import LearningCurve
from discorl.life.life import Life
from discorl.life.together import act_together, learn_together
from discorl.rules.base import Metrics
from discorl.rules.disco import DiscoRule
from discorl.tree import split_groups, tree_map, unstack

EVOLUTION_METRICS = ("fitness", "fitness_spread", "pair_difference")
"""What lives at a place say, in the order of the table's columns."""
_PAIR_STRIDE = 15_485_863
"""Pairs at one place must not share their random numbers."""
_NOISE_OFFSET = 7_368_787
"""Nor may perturbations be drawn with the numbers that draw newborn agents."""


def antithetic_gradient(noise: Params, fitness: Tensor, sigma: float) -> dict[str, Tensor]:
    """An estimate of the gradient of fitness: the mean of (f+ - f-) / (2 sigma) x noise.

    Args:
      noise: [K, ...], what K pairs of lives were perturbed by, in units of sigma.
      fitness: [2, K], with the noise added, and with it subtracted.
      sigma: the size of the perturbations.
    """
    slopes = (fitness[0] - fitness[1]) / (2 * sigma * fitness.shape[1])
    return {name: torch.tensordot(slopes.to(drawn), drawn, dims=1) for name, drawn in noise.items()}


def on_own_scale(fitness: Tensor) -> Tensor:
    """[2, K] in units of its own deviation, so that every environment counts alike.

    All zeros if all lives went alike; no numbers if one of them has none.
    """
    spread = fitness.std(correction=0)
    return torch.where(spread == 0, 0.0, fitness / spread)


@dataclass(frozen=True)
class Verdict:
    """What the lives at a place say about the rule."""

    grads: dict[str, Tensor]
    """By the rule's parameter names: the way to less fitness, as an optimiser wants it."""
    metrics: dict[str, Tensor]
    inner_metrics: dict[str, Tensor]
    """Scalars of the last update, means over the lives where they are finite."""


class Place(Resident):
    """A place of the population: in every meta-step, pairs of agents live and die here.

    All of them live in one environment, which in a family is another at every meta-step. Each pair
    has a newborn agent and random numbers of its own.
    """

    def __init__(
        self,
        config: DiscoverConfig,
        index: int,
        env: str,
        rule: DiscoRule,
        _seat: SeatMaker | None = None,
        choose: Chooser | None = None,
    ) -> None:
        super().__init__(config, index, env, choose)
        self.config = config
        self._newest_return = nan
        self.be_born()
        with ExitStack() as tried:  # What cannot be lived in is an error before the run begins.
            self._begin_lives([rule], tried)

    @property
    def mean_return(self) -> float:
        """Of the newest episodes at the end of the last lives; not a number if none ended."""
        return self._newest_return

    def meta_step(self, rule: DiscoRule) -> Verdict:
        """Live through all pairs, and return what they say about the rule."""
        noise = self._draw_noise(rule.params)
        sigma = self.config.evolution.es_sigma
        params = {
            n: torch.cat([p + sigma * noise[n], p - sigma * noise[n]])
            for n, p in rule.params.items()
        }
        with ExitStack() as open_lives:
            lives = self._begin_lives(_rules(rule, params), open_lives)
            returns, metrics = self._live(lives, params)
        fitness = returns.nanmean(dim=0).reshape(2, -1)
        self._newest_return = float(returns[-1].nanmean())
        self.age = len(returns)
        self.die(_curve(returns))
        self.be_born()
        grads = antithetic_gradient(noise, on_own_scale(fitness), sigma)
        return Verdict({name: -grad for name, grad in grads.items()}, _metrics(fitness), metrics)

    def be_born(self) -> None:
        """The next lives are others, in a family somewhere else."""
        self.lives += 1
        self.choose_level()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here: no life goes on after a meta-step."""
        return {"life": {"lives": torch.tensor(self.lives), "level": torch.tensor(self.level)}}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Resume exactly from what `state_dict` returned, flattened."""
        life = split_groups(tensors)["life"]
        self.lives, self.level = int(life["lives"]), int(life["level"])

    def close(self) -> None:
        """There is nothing to free between meta-steps."""

    def _draw_noise(self, params: Params) -> dict[str, Tensor]:
        """[K, ...] standard normal, for each parameter of the rule."""
        device, pairs = self.generator.device, self.config.evolution.es_pairs
        generator = torch.Generator(device).manual_seed(self.seed_of_life + _NOISE_OFFSET)
        return {
            name: torch.randn(pairs, *p.shape, generator=generator, dtype=p.dtype, device=device)
            for name, p in params.items()
        }

    def _begin_lives(self, rules: Sequence[DiscoRule], open_lives: ExitStack) -> list[Life]:
        """A newborn for each rule; those a whole number of pairs apart are the same one."""
        env = self.level_name
        pairs = self.config.evolution.es_pairs
        lives = []
        for number, rule in enumerate(rules):
            seed = self.seed_of_life + (number % pairs) * _PAIR_STRIDE
            generator = torch.Generator(self.generator.device).manual_seed(seed)
            life = begin_life(self.config, self.index, env, seed, rule, generator)
            lives.append(open_lives.enter_context(closing(life)))
        return lives

    def _live(self, lives: Sequence[Life], params: Params) -> tuple[Tensor, Metrics]:
        """From birth to death: mean returns [updates, 2 K], and metrics of the last update."""
        updates = self.config.evolution.es_lifetime
        returns = torch.full((updates, len(lives)), nan, dtype=torch.float64)
        for update in range(updates):
            metrics = self._learn(lives, params)
            newest = [life.episodes.mean_return() for life in lives]
            returns[update] = torch.tensor(newest, dtype=torch.float64)
        if returns.isnan().all():
            raise DiscorlError(
                f"--es-lifetime {updates}: no episode ended in '{lives[0].source.name}' in that "
                "many updates, and fitness is a mean return; raise it"
            )
        return returns, {name: _sound_mean([own[name] for own in metrics]) for name in metrics[0]}

    def _learn(self, lives: Sequence[Life], params: Params) -> list[Metrics]:
        """One update of each."""
        if not is_stacked(self.config):
            return [life.learn(next_batch(life, life.act())) for life in lives]
        batches = list(map(next_batch, lives, act_together(lives)))
        return learn_together(lives, batches, params)


def _rules(rule: DiscoRule, params: Params) -> list[DiscoRule]:
    """The rule with each of the parameters [P, ...]."""
    count = len(next(iter(params.values())))
    # Copies, because rounding depends on where a tensor lies, and two lives may be the same.
    return [rule.with_params(tree_map(torch.clone, dict(own))) for own in unstack(params, count)]


def _metrics(fitness: Tensor) -> dict[str, Tensor]:
    """As `EVOLUTION_METRICS` names them."""
    return {
        "fitness": fitness.mean(),
        "fitness_spread": fitness.std(correction=0),
        "pair_difference": (fitness[0] - fitness[1]).abs().mean(),
    }


def _sound_mean(values: Sequence[Tensor]) -> Tensor:
    """Of those that are finite: a perturbed rule may break an agent, and its returns tell."""
    joined = torch.stack(list(values))
    return joined.where(joined.isfinite(), nan).nanmean()


def _curve(returns: Tensor) -> LearningCurve:
    """Of all lives at a place as one."""
    curve = LearningCurve()
    for value in returns.flatten().tolist():
        curve.add(value)
    return curve
