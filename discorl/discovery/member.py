"""One agent of the population: a life, a value function that judges it, and rebirth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from discorl.discovery.config import DiscoverConfig, PopulationConfig
from discorl.discovery.meta_gradient import meta_gradient
from discorl.discovery.meta_loss import MetaGradient
from discorl.discovery.value_function import ValueFunction, ValueState
from discorl.envs.families import PREFIX, has_members, resolve_environment
from discorl.envs.sources import EnvironmentSource, find_environment
from discorl.learner import LearnerState
from discorl.life.episodes import LearningCurve
from discorl.life.life import Life, upgraded
from discorl.rollout import Rollout
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoRule
from discorl.tree import split_groups, unflatten

_SEED_STRIDE = 100_003
"""Seeds of neighbouring runs must not share agents."""
_LIFE_STRIDE = 1_000_000_007
"""Nor must an agent's lives share environments."""


SeatMaker = Callable[[str], EnvironmentSource]
"""From what an agent is to play, to the source of its environment."""

Chooser = Callable[[str, int], int]
"""From a family and the seed of a life, to the seed that draws its member."""


@dataclass(frozen=True)
class Death:
    """What is left of an agent whose time was up."""

    level: int
    """The seed that drew its member of the family."""
    curve: LearningCurve
    updates: int
    """How many it lived for."""


class Resident:
    """An agent's place in a population: an environment, a seed, and one life after another."""

    def __init__(
        self, config: PopulationConfig, index: int, env: str, choose: Chooser | None = None
    ) -> None:
        self.index = index
        self.env_name = env
        self.dtype = torch.float64 if config.float64 else torch.float32
        self.seed = member_seed(config, index)
        self.generator = torch.Generator(config.run.torch_device).manual_seed(self.seed)
        self.lifetimes = config.lifetimes
        self.life: Life
        self.lives = 0
        self.age = 0
        self.lifetime = 0
        self._choose = choose if has_members(env) else None
        self.level = 0
        """The seed that draws this life's member of the family."""
        self.death: Death | None = None
        """The last one, until the curriculum takes note of it."""

    @property
    def seed_of_life(self) -> int:
        """The seed of this life's environment."""
        return self.seed + (self.lives - 1) * _LIFE_STRIDE

    @property
    def mean_return(self) -> float:
        """Of its newest episodes in this life; not a number before the first has ended."""
        return self.life.episodes.mean_return()

    @property
    def chooses(self) -> bool:
        """Whether something else than the seed of a life draws its member of the family."""
        return self._choose is not None

    @property
    def level_name(self) -> str:
        """The environment of this life."""
        return resolve_environment(self.env_name, self.level)

    def choose_level(self) -> None:
        """Decide on the environment of this life."""
        seed = self.seed_of_life
        self.level = seed if self._choose is None else self._choose(self.env_name, seed)

    def die(self, curve: LearningCurve) -> None:
        """Leave to the curriculum, if there is one, how life went."""
        if self.chooses:
            self.death = Death(self.level, curve, self.age)

    def close(self) -> None:
        """Free what the environment holds."""
        self.life.close()

    def outlives(self, updates: int) -> bool:
        """Whether this many more updates fit into its life."""
        return not self.lifetime or self.age + updates <= self.lifetime

    def _draw_lifetime(self) -> int:
        """One of the lifetimes, short ones more often: each gets the same share of all updates."""
        if not self.lifetimes:
            return 0
        weights = torch.tensor([1 / n for n in self.lifetimes], device=self.generator.device)
        return self.lifetimes[int(torch.multinomial(weights, 1, generator=self.generator))]


class Member(Resident):
    """An agent with its own environment, network, seed and lifetime, judged by a value function.

    Args:
      seat: where its environments come from, if they step together with others'.
      choose: chooses members of its family, if not the seeds of its lives do.
    """

    def __init__(
        self,
        config: DiscoverConfig,
        index: int,
        env: str,
        rule: DiscoRule,
        seat: SeatMaker | None = None,
        choose: Chooser | None = None,
    ) -> None:
        super().__init__(config, index, env, choose)
        self.config = config
        self.rule = rule
        self.curve = LearningCurve()
        self._seat = seat
        self.value_function: ValueFunction
        self.value_state: ValueState
        self.be_born()

    def meta_step(self, rule: DiscoRule) -> MetaGradient:
        """Act, learn N times by the rule, and return what that says about the rule."""
        self.live_on()
        life = self.life
        rollouts = [life.act() for _ in range(self.config.inner_steps)]
        train = [next_batch(life, rollout) for rollout in rollouts]
        valid = life.act(2 * self.config.life.experience.rollout_length)
        result = meta_gradient(
            replace(life.mind.learner, rule=rule),
            life.state,
            self.value_function,
            self.value_state,
            train,
            valid,
            self.config.meta_loss,
            self.config.mode,
        )
        self.become(result.state, result.value_state)
        return result

    def live_on(self) -> None:
        """Be born again, if the next N updates would be more than the lifetime has left."""
        if not self.outlives(self.config.inner_steps):
            self.die(self.curve)
            self.be_born()

    def become(self, state: LearnerState, value_state: ValueState) -> None:
        """What the agent and its judge are after N updates."""
        self.life.mind.state, self.value_state = state, value_state
        self.age += self.config.inner_steps
        if self.chooses:
            self.curve.add(self.mean_return)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here, in groups."""
        life = {"ages": torch.tensor([self.age, self.lifetime, self.lives])}
        if self.chooses:
            life["level"] = torch.tensor(self.level)
            life["curve"] = torch.tensor(astuple(self.curve), dtype=torch.float64)
        return self.life.state_dict() | {"value_state": self.value_state, "life": life}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Resume exactly from what `state_dict` returned, flattened, in this version or 0.1."""
        groups = upgraded(split_groups(tensors))
        age, lifetime, lives = (int(n) for n in groups["life"]["ages"])
        self.lives = lives - 1
        level = int(groups["life"]["level"]) if self.chooses else None
        self.be_born(level)  # In that life's environment, which decides all shapes below.
        self.age, self.lifetime = age, lifetime
        if self.chooses:
            total, count, peak = groups["life"]["curve"].tolist()
            self.curve = LearningCurve(total, int(count), peak)
        self.value_state = unflatten(self.value_state, groups["value_state"])
        self.life.load_state_dict(groups)

    def be_born(self, level: int | None = None) -> None:
        """A new agent takes this one's place in the environment, or in another of its family.

        Args:
          level: the seed of that, if it was decided on before.
        """
        self.lives += 1
        self.curve = LearningCurve()
        if level is None:
            self.choose_level()
        else:
            self.level = level
        if self.lives == 1 or self.env_name.startswith(f"{PREFIX}:"):
            self._enter_environment()
        else:
            self.life.be_born()
        self.value_state = self.value_function.init(self.generator, self.dtype)
        self.age = 0
        self.lifetime = self._draw_lifetime()

    def _enter_environment(self) -> None:
        """Begin a life in this life's environment, with a value function of the same shapes."""
        if hasattr(self, "life"):
            self.life.close()
        self.life = begin_life(
            self.config,
            self.index,
            self.level_name,
            self.seed_of_life,
            self.rule,
            self.generator,
            self._seat,
        )
        self.value_function = ValueFunction(
            self.life.env.observation_spec, self.config.value, self.life.config.network
        )


def member_seed(config: PopulationConfig, index: int) -> int:
    """The seed of the population's agent `index`."""
    return config.seed * _SEED_STRIDE + index


def next_batch(life: Life, rollout: Rollout) -> Rollout:
    """What an update learns from; a newborn keeps acting until there is enough."""
    while (batch := life.batch(rollout)) is None:
        rollout = life.act()
    return batch


def begin_life(
    config: PopulationConfig,
    index: int,
    env: str,
    seed: int,
    rule: UpdateRule,
    generator: torch.Generator,
    seat: SeatMaker | None = None,
) -> Life:
    """The life of the population's agent `index`, or of any other in its place.

    Args:
      env: an environment, or a family, from which the seed draws a member.
      seat: where the environment comes from, if it steps together with others.
    """
    life = config.life_of(index)
    spec = resolve_environment(env, seed)
    if seat is not None:
        source = seat(spec)
    else:
        source = find_environment(spec, config.run.torch_device, life.environment)
    # Rules that are code have no parameters.
    dtype = next(iter(rule.params.values()), torch.empty(0)).dtype
    return Life(source, rule, life, seed, generator, dtype)
