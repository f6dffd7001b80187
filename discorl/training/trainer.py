"""One agent's life: act, store, learn. State in, state out; nothing is written here."""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch

from discorl.agents.base import initial_memory
from discorl.agents.network import Network
from discorl.envs.base import Environment, TimeStep, restore_step
from discorl.envs.registry import is_external, make_environment
from discorl.envs.wrappers import NormalizedEnvironment, RunningMoments
from discorl.errors import DiscorlError
from discorl.learner import Learner, LearnerState
from discorl.optim import ClippedAdam, Schedule
from discorl.replay import Replay, ReplaySpec, concatenate, first_trajectories
from discorl.rollout import Memory, Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.rules.disco import DiscoRule
from discorl.runs.checkpoint import Checkpoint
from discorl.training.actor import Acted, Episode, EpisodeTracker, act, burn_in
from discorl.training.config import TrainConfig
from discorl.training.evaluation import Evaluation, evaluate
from discorl.training.rewards import RewardScaler
from discorl.tree import flatten, split_groups, unflatten

PHASES = ("environment", "acting", "replay", "learning")
"""What a run's time is spent on."""
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
        self.moments = RunningMoments() if config.normalize_observations else None
        self.env = self._make_env(config.num_envs)
        self.learner = self._make_learner()
        self.learner_step = self.learner.compiled_step() if config.compile else self.learner.step
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.state: LearnerState = self.learner.init(self.generator)
        self.time_step: TimeStep = self.env.reset(config.seed)
        self.memory = self._no_memory()
        self.replay = self._make_replay()
        self.reward_scaler = (
            RewardScaler(config.num_envs, self.device) if config.shrink_rewards else None
        )
        self.tracker = EpisodeTracker(config.num_envs)
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self.step = 0
        self.episodes = 0
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.unlogged: list[tuple[int, Metrics]] = []
        """Steps and their metrics since the last record, which is their mean."""

    @property
    def env_steps(self) -> int:
        """Actions taken so far, over all copies of the environment."""
        return self.step * self.config.rollout_steps

    def mean_return(self) -> float:
        """Mean return of the newest episodes; not a number before the first has ended."""
        if not self.recent:
            return math.nan
        return math.fsum(e.total_reward for e in self.recent) / len(self.recent)

    def train_step(self) -> Metrics | None:
        """One rollout and one update; no metrics until enough is stored to learn from."""
        clock = time.perf_counter()
        acted = act(
            self.learner.agent,
            self.state.params,
            self.env,
            self.time_step,
            self.config.rollout_length,
            self.generator,
            self.memory,
        )
        self._account(acted)
        self.time_step, self.memory = acted.step, acted.memory
        clock = self._spent("acting", clock + acted.env_seconds)
        self.seconds["environment"] += acted.env_seconds
        batch = self._batch(self._shape_rewards(acted))
        clock = self._spent("replay", clock)
        self.step += 1
        if batch is None:
            return None
        self.state, metrics = self.learner_step(self.state, self._refresh_memory(batch))
        self._spent("learning", clock)
        return metrics

    def _spent(self, phase: str, since: float) -> float:
        """Book the time since then on a phase; returns now."""
        now = time.perf_counter()
        self.seconds[phase] += now - since
        return now

    def evaluate(self, greedy: bool, episodes: int | None = None) -> Evaluation:
        """Play whole episodes on environments of their own; training is not touched."""
        episodes = episodes or self.config.eval_episodes
        # Copies of an environment from outside cost memory or processes: each plays many episodes.
        copies = self.config.num_envs if is_external(self.config.env) else episodes
        seed = _EVALUATION_SEED + self.config.seed
        with closing(self._make_env(copies, frozen=True)) as env:
            return evaluate(self.learner.agent, self.state.params, env, seed, greedy, episodes)

    def close(self) -> None:
        """Free what the environment holds."""
        self.env.close()

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
            self.time_step = restore_step(self.time_step, groups["time_step"])
            fresh_step = self.env.load_state_dict(groups["env"])
            if self.memory is not None:
                self.memory = unflatten(self.memory, groups["memory"])
            if self.reward_scaler is not None:
                self.reward_scaler.load_state_dict(groups["rewards"])
            if self.replay is not None:
                self.replay.load_state_dict(groups["replay"])
            self.tracker.load_state_dict(groups["tracker"])
            self.generator.set_state(groups["generator"]["state"])
            values = checkpoint.values
            self.episodes = int(values["episodes"])
            self.recent = deque((Episode(*e) for e in values["recent"]), maxlen=RECENT_EPISODES)
            self.seconds |= values["seconds"]
            self.unlogged = [
                (step, dict(zip(names, torch.tensor(row, device=self.device), strict=True)))
                for step, names, row in values["unlogged"]
            ]
        except (KeyError, ValueError) as error:
            raise DiscorlError(f"the checkpoint does not fit this run: {error}") from error
        self.step = checkpoint.step
        if fresh_step is not None:
            self._begin_episodes(fresh_step)

    def _begin_episodes(self, step: TimeStep) -> None:
        """Go on with new episodes, where the environment could not be put back."""
        self.time_step = step
        self.memory = self._no_memory()
        self.tracker = EpisodeTracker(self.config.num_envs)

    def _no_memory(self) -> Memory | None:
        return initial_memory(self.learner.agent, self.config.num_envs, self.device)

    def _make_env(self, copies: int, frozen: bool = False) -> Environment:
        config = self.config
        env = make_environment(config.env, copies, self.device, config.env_options)
        if self.moments is None:
            return env
        return NormalizedEnvironment(env, self.moments, frozen)

    def _shape_rewards(self, acted: Acted) -> Rollout:
        """What is learned from; returns were counted before."""
        config, rewards = self.config, acted.rewards
        if config.clip_rewards:
            rewards = rewards.clamp(-1, 1)
        if self.reward_scaler is not None:
            rewards = self.reward_scaler.scale(rewards, acted.ended)
        return replace(acted.rollout, rewards=config.reward_scale * rewards)

    def _refresh_memory(self, batch: Rollout) -> Rollout:
        """Replace the first steps of a batch by what the agent would remember of them now."""
        if not self.config.burn_in or self.memory is None:
            return batch
        return burn_in(self.learner.agent, self.state.params, batch, self.config.burn_in)

    def _make_learner(self) -> Learner:
        config = self.config
        heads = self.rule.heads(self.env.num_actions)
        agent = Network.for_observations(self.env.observation_spec, heads, config.network)
        cosine = config.steps if config.learning_rate_schedule == "cosine" else None
        optimiser = ClippedAdam(
            Schedule(config.learning_rate, cosine), weight_decay=config.weight_decay
        )
        return Learner(agent, self.rule, optimiser, config.learn_first_steps)

    def _make_replay(self) -> Replay | None:
        config = self.config
        if not config.replayed_trajectories:
            return None
        spec = ReplaySpec(
            self.env.observation_spec,
            self.env.num_actions,
            final=self.time_step.boundary is not None,
            memory={} if self.memory is None else {k: m.shape[1:] for k, m in self.memory.items()},
        )
        return Replay(config.replay_capacity, config.rollout_length, spec, self.device)

    def _batch(self, rollout: Rollout) -> Rollout | None:
        """The newest trajectories and replayed ones, as the configuration mixes them.

        Nothing until enough is stored.
        """
        config = self.config
        if self.replay is not None:
            self.replay.add(rollout)
            if self.replay.size < config.replayed_trajectories:
                return None
        parts = []
        if config.fresh_trajectories:
            parts.append(first_trajectories(rollout, config.fresh_trajectories))
        if self.replay is not None:
            parts.append(self.replay.sample(config.replayed_trajectories, self.generator))
        return parts[0] if len(parts) == 1 else concatenate(parts)

    def _account(self, acted: Acted) -> None:
        if not bool(torch.isfinite(acted.rewards).all()):
            raise DiscorlError(
                f"environment '{self.config.env}' gave a reward that is not finite at step "
                f"{self.step + 1}."
            )
        episodes = self.tracker.update(acted)
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
        if self.memory is not None:
            tensors["memory"] = self.memory
        if self.reward_scaler is not None:
            tensors["rewards"] = self.reward_scaler.state_dict()
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
