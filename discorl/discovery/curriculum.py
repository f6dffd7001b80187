"""A curriculum by learnability: where a rule and actor-critic differ, there is much to learn.

When an agent dies in a member of a family, its life is compared with that of an actor-critic agent
in the same member, with as many updates. Members with a large difference, to either side, are drawn
more often for newborns: there one of the two has found what the other has not. Where both fail and
where both succeed, a life teaches a rule little.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.member import Death, begin_life, next_batch
from discorl.discovery.stack import seats
from discorl.envs.families import resolve_environment
from discorl.group import Group
from discorl.life.episodes import LearningCurve
from discorl.rules.actor_critic import ActorCritic

_EVEN_SHARE = 0.2
"""Of draws among known members: these follow no difference, so that none is dropped."""
_NEWEST_SHARE = 0.5
"""What the newest death counts in a member's record: the rule changes, and so does its lead."""
_REFERENCE_SEED = 900_001
"""Of actor-critic agents: those of the same member are the same, whenever they are asked for."""


class Mortal(Protocol):
    """An agent that dies in an environment."""

    index: int
    env_name: str
    death: Death | None


@dataclass(frozen=True)
class Level:
    """What is known about a member of a family."""

    seed: int
    """One that draws it."""
    lead: float
    """How far the rule's agents were ahead of actor-critic, on the scale of the larger returns:
    a running mean."""


class Curriculum:
    """Knows the members that agents died in, and chooses among them for newborns."""

    def __init__(self, config: DiscoverConfig) -> None:
        self.config = config
        self.levels: dict[str, dict[str, Level]] = {}
        """Family -> member -> what is known about it."""
        self._references: dict[tuple[str, str], LearningCurve] = {}

    def choose(self, env: str, seed: int) -> int:
        """The seed that draws a newborn's member of a family.

        Args:
          seed: of the life. It draws the member itself if that is to be any member at all.
        """
        known = self._known(env)
        luck = random.Random(f"level {seed}")
        if not known or luck.random() < self.config.fresh_members:
            return seed
        return luck.choices(known, chances([level.lead for level in known]))[0].seed

    def take_note(self, members: Sequence[Mortal], env_of: Sequence[str], group: Group) -> None:
        """Record the deaths of all processes since the last time."""
        device = self.config.run.torch_device
        seeds = torch.zeros(len(env_of), dtype=torch.int64, device=device)
        leads = torch.zeros(len(env_of), 2, dtype=torch.float64, device=device)
        for member in members:
            death, member.death = member.death, None
            if death is None:
                continue
            lead = self._lead(member, death)
            if not math.isnan(lead):
                seeds[member.index] = death.level
                leads[member.index] = torch.tensor([1.0, lead], dtype=leads.dtype)
        rows = zip(env_of, group.sum(seeds).tolist(), group.sum(leads).tolist(), strict=True)
        for env, seed, (died, lead) in rows:
            if died:
                self._record(env, seed, lead)

    def metrics(self) -> dict[str, float]:
        """How many members are known, and how the rule stands in them; nothing before the first."""
        leads = [level.lead for env in self.levels for level in self._known(env)]
        if not leads:
            return {}
        return {
            "curriculum/members": float(len(leads)),
            "curriculum/lead": math.fsum(leads) / len(leads),
            "curriculum/difference": math.fsum(map(abs, leads)) / len(leads),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here, as plain JSON."""
        return {
            env: {name: [level.seed, level.lead] for name, level in levels.items()}
            for env, levels in self.levels.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what `state_dict` returned."""
        self.levels = {
            env: {name: Level(int(seed), float(lead)) for name, (seed, lead) in levels.items()}
            for env, levels in state.items()
        }

    def _known(self, env: str) -> list[Level]:
        """In an order that does not depend on who died first."""
        return [level for _, level in sorted(self.levels.get(env, {}).items())]

    def _record(self, env: str, seed: int, lead: float) -> None:
        levels = self.levels.setdefault(env, {})
        name = resolve_environment(env, seed)
        if name in levels:
            lead = levels[name].lead + _NEWEST_SHARE * (lead - levels[name].lead)
        levels[name] = Level(seed, lead)

    def _lead(self, member: Mortal, death: Death) -> float:
        """How far an agent was ahead of actor-critic; not a number if either ended no episode."""
        other = self._reference(member, death)
        scale = max(death.curve.peak, other.peak)
        return (death.curve.mean - other.mean) / scale if scale else 0.0

    def _reference(self, member: Mortal, death: Death) -> LearningCurve:
        """The life of an actor-critic agent in that member, with as many updates: lived once."""
        name = resolve_environment(member.env_name, death.level)
        key = (name, repr((death.updates, self.config.life_of(member.index))))
        if key not in self._references:
            self._references[key] = self._live(member, name, death.updates)
        return self._references[key]

    def _live(self, member: Mortal, name: str, updates: int) -> LearningCurve:
        config, index, seed = self.config, member.index, _REFERENCE_SEED
        generator = torch.Generator(config.run.torch_device).manual_seed(seed)
        (seat,) = seats(config, [member.env_name], [seed], [index])
        curve = LearningCurve()
        rule = ActorCritic()
        with closing(begin_life(config, index, name, seed, rule, generator, seat)) as life:
            for _ in range(updates):
                life.learn(next_batch(life, life.act()), measured=False)
                curve.add(life.episodes.mean_return())
        return curve


def chances(leads: Sequence[float]) -> list[float]:
    """How likely each member is drawn: by its difference, but each by some; they add up to one."""
    differences = [abs(lead) for lead in leads]
    total = math.fsum(differences)
    if not total:
        return [1 / len(leads)] * len(leads)
    even = _EVEN_SHARE / len(leads)
    return [even + (1 - _EVEN_SHARE) * difference / total for difference in differences]
