"""One agent's life: act, store, learn. State in, state out; nothing is written here."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import torch

from discorl.agents.network import Network
from discorl.envs.base import Environment, TimeStep
from discorl.envs.registry import make_environment
from discorl.errors import DiscorlError
from discorl.learner import Learner, LearnerState
from discorl.optim import ClippedAdam, Schedule
from discorl.replay import Replay, ReplaySpec, concatenate, first_trajectories
from discorl.rollout import Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.rules.disco import DiscoRule
from discorl.runs.checkpoint import Checkpoint
from discorl.training.actor import Episode, EpisodeTracker, act
from discorl.training.config import TrainConfig
from discorl.training.evaluation import Evaluation, evaluate
from discorl.tree import flatten, split_groups, unflatten

RECENT_EPISODES = 100
"""The reported return is the mean of so many newest episodes."""
_EVALUATION_SEED = 1_000_003


class Trainer:
    """Everything one run holds in memory, and its single step."""

    def __init__(self, config: TrainConfig, rule: UpdateRule) -> None:
        self.config = config
        if rule.needs_advantages:
            raise DiscorlError(
                f"--rule {rule.name}: it needs advantages from outside, which training does not "
                "give; actor_critic estimates its own"
            )
        self.device = _device(config.device)
        self.rule = rule.to(device=self.device) if isinstance(rule, DiscoRule) else rule
        self.env: Environment = make_environment(config.env, config.num_envs, self.device)
        self.learner = self._make_learner()
        self.learner_step = self.learner.compiled_step() if config.compile else self.learner.step
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.state: LearnerState = self.learner.init(self.generator)
        self.time_step: TimeStep = self.env.reset(config.seed)
        self.replay = self._make_replay()
        self.tracker = EpisodeTracker(config.num_envs)
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self.step = 0
        self.episodes = 0
        self.seconds = {"acting": 0.0, "learning": 0.0}
        self.unlogged: list[tuple[int, Metrics]] = []
        """Steps and their metrics since the last record, which is their mean."""

    @property
    def env_steps(self) -> int:
        """Actions taken so far, over all copies of the environment."""
        return self.step * self.config.rollout_length * self.config.num_envs

    def mean_return(self) -> float:
        """Mean return of the newest episodes; not a number before the first has ended."""
        if not self.recent:
            return math.nan
        return math.fsum(e.total_reward for e in self.recent) / len(self.recent)

    def train_step(self) -> Metrics | None:
        """One rollout and one update; no metrics until enough is stored to learn from."""
        started = time.perf_counter()
        rollout, self.time_step = act(
            self.learner.agent,
            self.state.params,
            self.env,
            self.time_step,
            self.config.rollout_length,
            self.generator,
        )
        self._account(rollout)
        if self.replay is not None:
            self.replay.add(rollout)
        acted = time.perf_counter()
        self.seconds["acting"] += acted - started
        self.step += 1
        if self.replay is not None and self.replay.size < self.config.replayed_trajectories:
            return None
        self.state, metrics = self.learner_step(self.state, self._batch(rollout))
        self.seconds["learning"] += time.perf_counter() - acted
        return metrics

    def evaluate(self, greedy: bool, episodes: int | None = None) -> Evaluation:
        """Play whole episodes on environments of their own; training is not touched."""
        env = make_environment(self.config.env, episodes or self.config.eval_episodes, self.device)
        seed = _EVALUATION_SEED + self.config.seed
        return evaluate(self.learner.agent, self.state.params, env, seed, greedy)

    def checkpoint(self) -> Checkpoint:
        """All that is needed to go on exactly from here."""
        return Checkpoint(
            step=self.step,
            tensors=flatten(self._tensors()),
            values={
                "episodes": self.episodes,
                "recent": [[e.total_reward, e.length] for e in self.recent],
                "seconds": dict(self.seconds),
                "unlogged": [
                    [step, list(metrics), torch.stack(list(metrics.values())).tolist()]
                    for step, metrics in self.unlogged
                ],
            },
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on exactly from where the checkpoint was made."""
        groups = split_groups(checkpoint.tensors)
        try:
            self.state = unflatten(self.state, groups["learner"])
            self.time_step = unflatten(self.time_step, groups["time_step"])
            self.env.load_state_dict(groups["env"])
            if self.replay is not None:
                self.replay.load_state_dict(groups["replay"])
            self.tracker.load_state_dict(groups["tracker"])
            self.generator.set_state(groups["generator"]["state"])
            values = checkpoint.values
            self.episodes = int(values["episodes"])
            self.recent = deque((Episode(*e) for e in values["recent"]), maxlen=RECENT_EPISODES)
            self.seconds = dict(values["seconds"])
            self.unlogged = [
                (step, dict(zip(names, torch.tensor(row, device=self.device), strict=True)))
                for step, names, row in values["unlogged"]
            ]
        except (KeyError, ValueError) as error:
            raise DiscorlError(f"the checkpoint does not fit this run: {error}") from error
        self.step = checkpoint.step

    def _make_learner(self) -> Learner:
        config = self.config
        heads = self.rule.heads(self.env.num_actions)
        agent = Network.mlp(self.env.observation_shape, heads, config.network)
        cosine = config.steps if config.learning_rate_schedule == "cosine" else None
        optimiser = ClippedAdam(
            Schedule(config.learning_rate, cosine), weight_decay=config.weight_decay
        )
        return Learner(agent, self.rule, optimiser)

    def _make_replay(self) -> Replay | None:
        config = self.config
        if not config.replayed_trajectories:
            return None
        observation = self.time_step.observation
        spec = ReplaySpec(self.env.observation_shape, observation.dtype, self.env.num_actions)
        return Replay(config.replay_capacity, config.rollout_length, spec, self.device)

    def _batch(self, rollout: Rollout) -> Rollout:
        """The newest trajectories and replayed ones, as the configuration mixes them."""
        config = self.config
        parts = []
        if config.fresh_trajectories:
            parts.append(first_trajectories(rollout, config.fresh_trajectories))
        if self.replay is not None:
            parts.append(self.replay.sample(config.replayed_trajectories, self.generator))
        return parts[0] if len(parts) == 1 else concatenate(parts)

    def _account(self, rollout: Rollout) -> None:
        if not bool(torch.isfinite(rollout.rewards).all()):
            raise DiscorlError(
                f"environment '{self.config.env}' gave a reward that is not finite at step "
                f"{self.step + 1}. Every checkpoint is from before it."
            )
        episodes = self.tracker.update(rollout.rewards, rollout.discounts)
        self.episodes += len(episodes)
        self.recent.extend(episodes)

    def _tensors(self) -> dict[str, Any]:
        tensors = {
            "learner": self.state,
            "time_step": self.time_step,
            "env": self.env.state_dict(),
            "tracker": self.tracker.state_dict(),
            "generator": {"state": self.generator.get_state()},
        }
        if self.replay is not None:
            tensors["replay"] = self.replay.state_dict()
        return tensors


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DiscorlError(f"--device {name} cannot be used here: {error}") from error
    return device
