"""Who is looked at: a rule, and an agent that was trained by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from discorl.agents.base import Agent
from discorl.analysis.config import AnalyseConfig
from discorl.analysis.evidence import Evidence, look
from discorl.analysis.history import rules_on_the_way
from discorl.errors import DiscorlError
from discorl.learner import LearnerState
from discorl.library.catalogue import as_rule
from discorl.library.formats import SUFFIXES
from discorl.life.acting import choose
from discorl.rollout import Rollout
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.training.config import TrainConfig
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer
from discorl.tree import tree_map

AnyRule = str | Path | UpdateRule
Told = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and how much there is."""

EXPERIENCE_SEED = 3_000_003
COPIES, LENGTH = 32, 49
"""Trajectories, and stored steps of each, that are looked at."""
_RANDOM_SHARE = 0.25
"""Of the actions: a trained agent alone would show the same outcome every time."""
_LARGE = 128
_SMALL_LIFE: dict[str, Any] = {
    "torso": (64,),
    "model_size": 32,
    "head_hidden": 32,
    "num_envs": 16,
    "rollout_length": 9,
    "batch_size": None,
    "replay_fraction": 0.5,
    "learning_rate": 0.01,
}
"""In place of presets with large networks: these agents learn 5 x 5 Catch in seconds."""
_SMALL_SIZES = MetaNetworkSizes(predictions=32, hidden=64, meta_hidden=32)
"""Of the random rule beside rules that are code."""


@dataclass(frozen=True)
class Candidate:
    """A rule to look at, and how its agents live."""

    label: str
    rule: DiscoRule | ActorCritic
    config: TrainConfig
    named: AnyRule
    """The rule as it was given."""
    null: bool = False
    """Whether it is a random rule, there for comparison."""


@dataclass(frozen=True)
class Moment:
    """An agent at one time of its life, and what it lives through if it stays as it is."""

    agent: Agent
    state: LearnerState
    explored: Rollout
    """Experience with some random actions."""
    own: Rollout
    """Experience with its own policy."""

    def evidence(self, own: bool = False, steps: int = LENGTH, copies: int = COPIES) -> Evidence:
        """What the rule would read in an update on some of this experience."""
        rollout = self.own if own else self.explored
        part = tree_map(lambda tensor: tensor[:steps, :copies], rollout)
        return look(self.agent, self.state, part)


@dataclass(frozen=True)
class Subject:
    """A rule, and an agent that learned by it."""

    candidate: Candidate
    rule: DiscoRule | ActorCritic
    """In float64."""
    episode_return: float
    """Mean return of the agent's last 100 training episodes."""
    learning: Moment
    """Halfway through its training, while its policy still changes: later, an action that is
    certain cannot be made likelier."""
    grown: Moment
    """At the end of its training."""

    @property
    def label(self) -> str:
        return self.candidate.label


def find_candidates(rules: Sequence[AnyRule], config: AnalyseConfig) -> list[Candidate]:
    """The rules by name, by file, by a discovery's folder or as themselves, and the random ones
    beside them."""
    if not rules:
        raise DiscorlError("analyse: name one or more rules, for instance disco103")
    given: list[Candidate] = []
    for named, label, rule in (entry for each in rules for entry in _named(each)):
        label = _unused(label, [candidate.label for candidate in given])
        if not isinstance(rule, DiscoRule | ActorCritic):
            raise DiscorlError(
                f"analyse: '{label}' is neither a discovered rule nor actor_critic, and only those "
                "can be looked into"
            )
        given.append(Candidate(label, rule, _life(named, rule, config), named))
    return given + _nulls(given, config)


def _named(named: AnyRule) -> list[tuple[AnyRule, str, UpdateRule]]:
    """How each rule that is meant is given, its label, and itself; a discovery stands for its rule
    at several times."""
    if isinstance(named, str | Path) and (found := rules_on_the_way(Path(named).expanduser())):
        return [(rule, label, rule) for label, rule in found]
    text = str(named) if isinstance(named, str | Path) else named.name
    label = Path(text).stem if text.endswith(SUFFIXES) else text
    return [(named, label, as_rule(named))]


def _unused(text: str, taken: Sequence[str]) -> str:
    same = sum(label == text or label.startswith(f"{text} #") for label in taken)
    return f"{text} #{same + 1}" if same else text


def _life(named: AnyRule, rule: UpdateRule, config: AnalyseConfig) -> TrainConfig:
    spec = rule if not isinstance(named, str | Path) else str(named)
    own: dict[str, Any] = {"seed": config.seed, "steps": config.steps}
    life = make_config(config.env, spec, **own)
    if max(life.torso, default=0) > _LARGE:
        life = make_config(config.env, spec, **own, **_SMALL_LIFE)
    return life


def _nulls(given: Sequence[Candidate], config: AnalyseConfig) -> list[Candidate]:
    """A random rule for each kind of discovered rule, or a small one if there is none."""
    nulls: dict[DiscoConfig, Candidate] = {}
    for candidate in given:
        own = candidate.rule.config
        if isinstance(own, DiscoConfig) and own not in nulls:
            label = f"random, like {candidate.label}"
            rule = DiscoRule.random(own, config.seed)
            nulls[own] = Candidate(label, rule, candidate.config, rule, null=True)
    if not nulls:
        rule = DiscoRule.random(DiscoConfig(_SMALL_SIZES), config.seed)
        nulls[rule.config] = Candidate("random", rule, _life(rule, rule, config), rule, True)
    taken = [candidate.label for candidate in given]
    if len(nulls) == 1:
        return [replace(candidate, label=_unused("random", taken)) for candidate in nulls.values()]
    return list(nulls.values())


def train_agent(trainer: Trainer, steps: int, told: Told, what: str) -> list[float]:
    """Train an agent up to a step; returns the mean return of its last 100 episodes after each."""
    returns = []
    while trainer.step < steps:
        trainer.train_step()
        returns.append(trainer.life.episodes.mean_return())
        told(what, trainer.step, trainer.config.steps)
    return returns


def make_subject(candidate: Candidate, told: Told) -> Subject:
    """Train an agent, and let it act halfway and at the end."""
    steps, what = candidate.config.steps, f"training an agent with {candidate.label}"
    with closing(Trainer(candidate.config, candidate.rule)) as trainer:
        train_agent(trainer, steps // 2, told, what)
        learning = _moment(trainer)
        train_agent(trainer, steps, told, what)
        grown = _moment(trainer)
        episode_return = trainer.life.episodes.mean_return()
    return Subject(candidate, candidate.rule.to(torch.float64), episode_return, learning, grown)


def _moment(trainer: Trainer) -> Moment:
    life = trainer.life
    explored, own = (_experience(trainer, share) for share in (_RANDOM_SHARE, 0.0))
    return Moment(life.mind.learner.agent, life.state, explored, own)


@torch.no_grad()
def _experience(trainer: Trainer, random_share: float) -> Rollout:
    """What an agent lives through that acts at random now and then."""
    life = trainer.life
    seed = trainer.config.seed + EXPERIENCE_SEED
    generator = torch.Generator(life.device).manual_seed(seed)
    steps, actions, logits = [], [], []
    with closing(life.source.make(COPIES)) as env:
        step = env.reset(seed)
        for _ in range(LENGTH):
            policy = life.mind.learner.agent.policy(life.state.params, step.observation)
            probs = torch.softmax(policy, dim=-1)
            probs = (1 - random_share) * probs + random_share / probs.shape[-1]
            steps.append(step)
            logits.append(probs.log())
            actions.append(choose(logits[-1], generator))
            step = env.step(actions[-1])
    return Rollout.from_steps(steps, actions, logits)
