"""One agent of the population: it lives in its environment, and tells what the rule did to it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from discorl.agents.network import Network
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.meta_gradient import MetaGradient, meta_gradient
from discorl.discovery.value_function import ValueFunction, ValueState
from discorl.envs.base import (
    ArraySpec,
    Environment,
    ObservationSpec,
    TimeStep,
    restore_step,
)
from discorl.envs.families import PREFIX, resolve_environment
from discorl.envs.registry import make_environment
from discorl.errors import DiscorlError
from discorl.learner import Learner, LearnerState
from discorl.optim import ClippedAdam, Schedule
from discorl.replay import Replay, ReplaySpec, concatenate, first_trajectories
from discorl.rollout import Rollout
from discorl.rules.disco import DiscoRule
from discorl.training.actor import Episode, EpisodeTracker, act
from discorl.tree import split_groups, unflatten

RECENT_EPISODES = 200
_SEED_STRIDE = 100_003
"""Seeds of neighbouring runs must not share agents."""
_LIFE_STRIDE = 1_000_000_007
"""Nor must an agent's lives share environments."""


class Member:
    """An agent with its own environment, network, seed and lifetime."""

    def __init__(self, config: DiscoverConfig, index: int, env: str, rule: DiscoRule) -> None:
        self.config = config
        self.index = index
        self.env_name = env
        self.dtype = torch.float64 if config.float64 else torch.float32
        self.rule = rule
        self.seed = config.seed * _SEED_STRIDE + index
        self.generator = torch.Generator(config.device).manual_seed(self.seed)
        self.env: Environment
        self.time_step: TimeStep
        self.tracker: EpisodeTracker
        self.learner: Learner
        self.value_function: ValueFunction
        self.replay: Replay | None
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self.lives = 0
        self.age = 0
        self.lifetime = 0
        self.state: LearnerState
        self.value_state: ValueState
        self.be_born()

    @property
    def mean_return(self) -> float | None:
        """Mean return of the newest episodes, if any ended yet."""
        if not self.recent:
            return None
        return sum(e.total_reward for e in self.recent) / len(self.recent)

    def meta_step(self, rule: DiscoRule) -> MetaGradient:
        """Act, learn N times by the rule, and return what that says about the rule."""
        if self.lifetime and self.age + self.config.inner_steps > self.lifetime:
            self.be_born()
        train = [self._act(self.config.rollout_length) for _ in range(self.config.inner_steps)]
        train = [self._mix(rollout) for rollout in train]
        valid = self._act(2 * self.config.rollout_length)
        result = meta_gradient(
            replace(self.learner, rule=rule),
            self.state,
            self.value_function,
            self.value_state,
            train,
            valid,
            mode=self.config.mode,
        )
        self.state, self.value_state = result.state, result.value_state
        self.age += self.config.inner_steps
        return result

    def tensors(self) -> dict[str, Any]:
        """All that is needed to go on exactly from here."""
        groups: dict[str, Any] = {
            "state": self.state,
            "value_state": self.value_state,
            "time_step": self.time_step,
            "env": self.env.state_dict(),
            "tracker": self.tracker.state_dict(),
            "generator": {"state": self.generator.get_state()},
            "life": {"ages": torch.tensor([self.age, self.lifetime, self.lives])},
            "recent": {
                "returns": torch.tensor([e.total_reward for e in self.recent], dtype=torch.float64),
                "lengths": torch.tensor([e.length for e in self.recent], dtype=torch.int64),
            },
        }
        if self.replay is not None:
            groups["replay"] = self.replay.state_dict()
        return groups

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on exactly from what `tensors`, flattened, was."""
        groups = split_groups(tensors)
        age, lifetime, lives = (int(n) for n in groups["life"]["ages"])
        self.lives = lives - 1
        self.be_born()  # Into the environment of that life, which shapes all that follows.
        self.age, self.lifetime = age, lifetime
        self.state = unflatten(self.state, groups["state"])
        self.value_state = unflatten(self.value_state, groups["value_state"])
        self.time_step = restore_step(self.time_step, groups["time_step"])
        fresh_step = self.env.load_state_dict(groups["env"])
        if fresh_step is None:
            self.tracker.load_state_dict(groups["tracker"])
        else:  # It could not be put back, and began new episodes.
            self.time_step = fresh_step
        self.generator.set_state(groups["generator"]["state"])
        recent = groups["recent"]
        self.recent.clear()
        self.recent.extend(
            Episode(float(r), int(n))
            for r, n in zip(recent["returns"], recent["lengths"], strict=True)
        )
        if self.replay is not None:
            self.replay.load_state_dict(groups["replay"])

    def be_born(self) -> None:
        """A new agent takes this one's place in the environment, or in another of its family."""
        self.lives += 1
        if self.lives == 1 or self.env_name.startswith(f"{PREFIX}:"):
            self._enter_environment()
        self.state = self.learner.init(self.generator, self.dtype)
        self.value_state = self.value_function.init(self.generator, self.dtype)
        self.age = 0
        self.lifetime = self._draw_lifetime()
        self.recent.clear()
        self.replay = self._make_replay()

    def _enter_environment(self) -> None:
        """Make this life's environment, and what has its shapes."""
        config = self.config
        seed = self.seed + (self.lives - 1) * _LIFE_STRIDE
        env = resolve_environment(self.env_name, seed)
        self.env = make_environment(env, config.num_envs, config.device)
        self.time_step = self.env.reset(seed)
        self.tracker = EpisodeTracker(config.num_envs)
        network = config.network(self.index)
        heads = self.rule.heads(self.env.num_actions)
        shape = _flat_shape(env, self.env.observation_spec)
        agent = Network.mlp(shape, heads, network)
        optimiser = ClippedAdam(Schedule(config.learning_rate))
        self.learner = Learner(agent, self.rule, optimiser, config.learn_first_steps)
        self.value_function = ValueFunction(shape, config.value)

    def _draw_lifetime(self) -> int:
        """One of the lifetimes, likelier the shorter: each gets the same share of all updates."""
        lifetimes = self.config.lifetimes
        if not lifetimes:
            return 0
        weights = torch.tensor([1 / n for n in lifetimes], device=self.generator.device)
        return lifetimes[int(torch.multinomial(weights, 1, generator=self.generator))]

    def _act(self, length: int) -> Rollout:
        acted = act(
            self.learner.agent, self.state.params, self.env, self.time_step, length, self.generator
        )
        self.time_step = acted.step
        self.recent.extend(self.tracker.update(acted))
        return acted.rollout.to(self.dtype)

    def _mix(self, rollout: Rollout) -> Rollout:
        """Replace part of a train rollout by replayed trajectories."""
        if self.replay is None:
            return rollout
        self.replay.add(rollout)
        replayed = round(self.config.replay_fraction * self.config.num_envs)
        if replayed == 0:
            return rollout
        old = self.replay.sample(replayed, self.generator)
        fresh = first_trajectories(rollout, self.config.num_envs - replayed)
        return concatenate([fresh, old]) if replayed < self.config.num_envs else old

    def _make_replay(self) -> Replay | None:
        if self.config.replay_capacity == 0:
            return None
        spec = ReplaySpec(
            self.env.observation_spec,
            self.env.num_actions,
            self.dtype,
            final=self.time_step.boundary is not None,
        )
        return Replay(
            self.config.replay_capacity, self.config.rollout_length, spec, self.config.device
        )


def _flat_shape(env: str, spec: ObservationSpec) -> tuple[int, ...]:
    if not isinstance(spec, ArraySpec):
        raise DiscorlError(f"environment '{env}': discovery takes no dictionary observations")
    return spec.shape
