"""One agent in one environment, from birth on: act, store, learn. No files are written here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from discorl.agents.base import Agent, initial_memory
from discorl.agents.given import agent_from_module
from discorl.agents.network import Network
from discorl.envs.base import Environment
from discorl.envs.sources import EnvironmentSource
from discorl.envs.wrappers import NormalizedEnvironment, RunningMoments, SharedMoments
from discorl.errors import DiscorlError
from discorl.group import SOLO, Group
from discorl.layers import Params
from discorl.learner import LearnerState
from discorl.life.acting import Acted, act
from discorl.life.backdrop import Backdrop
from discorl.life.config import LifeConfig
from discorl.life.episodes import RECENT_EPISODES, EpisodeLog
from discorl.life.mind import Mind
from discorl.life.playing import AgentPolicy, Evaluation, Watch, evaluate_policy
from discorl.life.rewards import RewardScaler
from discorl.replay import ReplaySpec
from discorl.rollout import Memory, Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.tree import split_groups, tree_map, unflatten

_PLACES = 100
"""Of an image, roughly, at which the weights of a convolution are used."""
PHASES = ("environment", "acting", "replay", "learning")
"""What a life's time is spent on."""


class BadRewardError(DiscorlError):
    """Nothing can be learned from this reward."""


class Life:
    """An agent that lives in copies of an environment: everything it is and has.

    Args:
      source: where the environment comes from.
      rule: what it learns by; on the generator's device, in the agent's float type.
      config: how it lives.
      seed: of the environment.
      generator: draws the newborn agent, its actions and its replays.
      updates: how many it will live for, if known; schedules need it.
      network: a module that learns in place of the network that the configuration describes.
      compiled: learn by a compiled step.
      group: processes in which parts of this life are lived; `config` is this one's part.
    """

    def __init__(
        self,
        source: EnvironmentSource,
        rule: UpdateRule,
        config: LifeConfig,
        seed: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        updates: int | None = None,
        network: nn.Module | None = None,
        compiled: bool = False,
        group: Group = SOLO,
    ) -> None:
        if rule.needs_advantages:
            raise DiscorlError(
                f"--rule {rule.name}: it needs advantages from outside, which training does not "
                "give; actor_critic estimates its own"
            )
        self.config = config
        self.source = source
        self.own_network = network is not None
        self.device = generator.device
        self.dtype = dtype
        self.group = group
        self._moments = self._no_moments() if config.environment.normalize_observations else None
        self.memory: Memory | None
        recent = -(-RECENT_EPISODES // group.size)
        self.episodes = EpisodeLog(config.experience.num_envs, recent)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.env = self._make_env(config.experience.num_envs)
        try:
            agent = self._make_agent(rule, network)
            learner = config.learning.learner(agent, rule, updates, group)
            self.mind = Mind(
                learner,
                learner.init(generator, dtype),
                config.experience.replay,
                generator,
                config.experience.burn_in,
                learner.compiled_step() if compiled else None,
            )
            self.time_step = self.env.reset(seed)
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def work(self) -> int:
        """How large an update is: its transitions times the parameters of agent and rule, those of
        convolutions counted at every place."""
        experience, rule = self.config.experience, self.mind.learner.rule
        tensors = [*self.state.params.values(), *rule.params.values()]
        numbers = sum(t.numel() * (_PLACES if t.dim() == 4 else 1) for t in tensors)
        return numbers * sum(experience.shares) * (experience.rollout_length - 1)

    @property
    def state(self) -> LearnerState:
        """What the agent knows, and what its rule and optimiser remember."""
        return self.mind.state

    def act(self, length: int | None = None) -> Rollout:
        """Act in all copies and count the episodes; returns experience in the agent's type.

        Args:
          length: stored steps, by default those of a rollout.
        """
        return self.take_in(self.play(self.state.params, self.mind.generator, length))

    def play(
        self,
        params: Params,
        generator: torch.Generator,
        length: int | None = None,
        agent: Agent | None = None,
    ) -> tuple[Acted, float]:
        """Act in all copies, and the seconds it took; `take_in` must follow.

        Touches nothing but the environment, the generator and the agent's modules; so another
        thread may do it while this one learns, with a copy of the agent: modules that are called
        with other parameters hold them meanwhile.
        """
        started = time.perf_counter()
        acted = act(
            agent or self.mind.learner.agent,
            params,
            self.env,
            self.time_step,
            length or self.config.experience.rollout_length,
            generator,
            self.memory,
        )
        return acted, time.perf_counter() - started

    def take_in(self, played: tuple[Acted, float]) -> Rollout:
        """Count the episodes of what was played; returns experience in the agent's type."""
        started = time.perf_counter()
        acted, seconds = played
        if not bool(torch.isfinite(acted.rollout.rewards).all()):
            raise BadRewardError(
                f"environment '{self.source.name}' gave a reward that is not finite"
            )
        if self._moments is not None:
            self._moments.share()
        if self._backdrop is not None:
            # One step of a rollout is enough: its images hardly differ from those before.
            self._backdrop.take_in(tree_map(lambda t: t[-1], acted.rollout.observations))
            self.mind.state = self._backdrop.bring_up_to_date(self.state)
        self.episodes.update(acted)
        self.time_step, self.memory = acted.step, acted.memory
        rollout = self._shape_rewards(acted).to(self.dtype)
        self.seconds["environment"] += acted.env_seconds
        self._spent("acting", started + acted.env_seconds - seconds)
        return rollout

    def batch(self, rollout: Rollout, store: bool = True) -> Rollout | None:
        """Store a rollout, unless it is stored already; returns a batch that has its share of it.

        None until enough is stored.
        """
        started = time.perf_counter()
        if store:
            self.mind.store(rollout)
        batch = self.mind.batch(rollout)
        deviation = self.config.rewards.normalize_rewards
        if batch is not None and self._scaler is not None and deviation:
            # Only now: what was stored long ago is to have the scale of what is new.
            batch = replace(batch, rewards=self._scaler.normalize(batch.rewards, deviation))
        self._spent("replay", started)
        return batch

    def learn(self, batch: Rollout, measured: bool = True) -> Metrics:
        """One update; its metrics may be left out unless `measured`."""
        started = time.perf_counter()
        metrics = self.mind.learn(batch, measured)
        self._spent("learning", started)
        return metrics

    def be_born(self) -> None:
        """A new agent takes this one's place, where the environment is now."""
        self.mind.state = self.mind.learner.init(self.mind.generator, self.dtype)
        self.episodes.recent.clear()
        self._begin()

    def evaluate(
        self,
        greedy: bool,
        episodes: int,
        seed: int,
        max_steps: int | None = None,
        watch: Watch | None = None,
    ) -> Evaluation:
        """Play whole episodes on environments of their own; this life is not touched.

        See `evaluate_policy`.
        """
        # Copies of an environment from outside cost memory or processes: each plays many episodes.
        copies = episodes if self.source.cheap else self.config.experience.num_envs
        policy = AgentPolicy(self.mind.learner.agent, self.state.params, greedy)
        with closing(self._make_env(copies, frozen=True)) as env:
            return evaluate_policy(policy, env, seed, episodes, max_steps, watch)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here, in groups."""
        groups = self.mind.state_dict() | {
            "time_step": self.time_step,
            "env": self.env.state_dict(),
            "episodes": self.episodes.state_dict(),
        }
        if self.memory is not None:
            groups["memory"] = self.memory
        if self._scaler is not None:
            groups["rewards"] = self._scaler.state_dict()
        if self._backdrop is not None:
            groups["backdrop"] = self._backdrop.moments.state_dict()
        return groups

    def load_state_dict(self, groups: dict[str, dict[str, Tensor]]) -> None:
        """Resume from the groups that `state_dict` returned, each flattened.

        An environment that cannot be restored begins new episodes. Raises ValueError or KeyError,
        naming what does not fit.
        """
        self.mind.load_state_dict(groups)
        self.episodes.load_state_dict(groups["episodes"])
        if self._scaler is not None:
            self._scaler.load_state_dict(groups["rewards"])
        if self._backdrop is not None:
            self._backdrop.moments.load_state_dict(groups.get("backdrop", {}))
        if self.memory is not None:
            self.memory = unflatten(self.memory, groups["memory"])
        fresh_step = self.env.load_state_dict(groups["env"])
        if fresh_step is not None:
            self.time_step, self.memory = fresh_step, self._no_memory()
            self.episodes.begin()
            if self._scaler is not None:
                self._scaler.begin()
            return
        has_last = any(name.startswith("last") for name in groups["time_step"])
        last = self.time_step.observation if has_last else None
        self.time_step = unflatten(replace(self.time_step, last=last), groups["time_step"])

    def inherit(self, parts: Sequence[dict[str, dict[str, Tensor]]], seed: int) -> None:
        """Go on from the groups of another number of processes. What they stored is dealt out, and
        all copies of the environment begin new episodes.

        Args:
          seed: of all that is drawn from now on.
        """
        num_envs = self.config.experience.num_envs
        self.mind.inherit(parts, num_envs)
        self.episodes.inherit([part["episodes"] for part in parts], self.group)
        if self._scaler is not None:
            self._scaler.inherit(parts[0]["rewards"])
        if self._backdrop is not None:
            self._backdrop.moments.load_state_dict(parts[0].get("backdrop", {}))
        if self._moments is not None:
            moments = split_groups(parts[0]["env"]).get("normalizer", {})
            self._moments.load_state_dict(moments)
        self.mind.generator.manual_seed(seed)
        self.time_step, self.memory = self.env.reset(seed), self._no_memory()

    def close(self) -> None:
        """Free what the environment holds."""
        self.env.close()

    def _make_agent(self, rule: UpdateRule, network: nn.Module | None) -> Agent:
        heads, spec = rule.heads(self.env.num_actions), self.env.observation_spec
        if network is None:
            return Network.for_observations(spec, heads, self.config.network)
        return agent_from_module(network, spec, heads, self.config.network)

    def _begin(self) -> None:
        """What a newborn agent has: no memories, nothing stored, no idea of rewards."""
        num_envs = self.config.experience.num_envs
        self.memory = self._no_memory()
        self._backdrop = Backdrop.of(self.mind.learner.agent, self._no_moments())
        scales = self.config.rewards.scales
        self._scaler = RewardScaler(num_envs, self.device, self._no_moments()) if scales else None
        spec = ReplaySpec(
            self.env.observation_spec,
            self.env.num_actions,
            self.dtype,
            final=self.time_step.truncated is not None,
            memory={} if self.memory is None else {k: m.shape[1:] for k, m in self.memory.items()},
        )
        self.mind.make_room(spec, self.config.experience.rollout_length, num_envs)

    def _no_moments(self) -> RunningMoments:
        return RunningMoments() if self.group.size == 1 else SharedMoments(self.group)

    def _no_memory(self) -> Memory | None:
        num_envs = self.config.experience.num_envs
        memory = initial_memory(self.mind.learner.agent, num_envs, self.device)
        return memory and {name: tensor.to(self.dtype) for name, tensor in memory.items()}

    def _make_env(self, copies: int, frozen: bool = False) -> Environment:
        env = self.source.make(copies)
        return env if self._moments is None else NormalizedEnvironment(env, self._moments, frozen)

    def _shape_rewards(self, acted: Acted) -> Rollout:
        """What is learned from; returns were counted before."""
        config, rewards = self.config.rewards, acted.rollout.rewards
        if config.clip_rewards:
            rewards = rewards.clamp(-1, 1)
        if self._scaler is not None:
            self._scaler.observe(rewards, acted.ended)
            rewards = self._scaler.shrink(rewards) if config.shrink_rewards else rewards
        return replace(acted.rollout, rewards=config.reward_scale * rewards)

    def _spent(self, phase: str, since: float) -> None:
        """Add the time since then to a phase."""
        self.seconds[phase] += time.perf_counter() - since


def upgraded(groups: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """What version 0.1 saved of a life, as this version saves it; anything else unchanged."""
    if "tracker" not in groups:
        return groups
    groups = dict(groups)
    recent = groups.pop("recent")
    groups["episodes"] = groups.pop("tracker") | {
        "recent_returns": recent["returns"],
        "recent_lengths": recent["lengths"],
        "count": recent.get("count", torch.tensor(len(recent["returns"]))),
    }
    step = dict(groups["time_step"])
    step["terminated"] = step.pop("discount") == 0
    groups["time_step"] = step
    if "state" in groups:
        groups["learner"] = groups.pop("state")
    return groups
