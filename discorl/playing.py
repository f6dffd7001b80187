"""Playing and evaluating: a trained agent, a module of your own, or any function, anywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discorl.agents.masks import keep_legal
from discorl.agents.module import as_heads, module_step
from discorl.envs.base import MAX_STEPS, Environment
from discorl.envs.sources import AnyEnvironment, EnvironmentSource, find_environment
from discorl.errors import DiscorlError
from discorl.life.acting import choose
from discorl.life.playing import AgentPolicy, Evaluation, Policy, evaluate_policy
from discorl.observations import Observation
from discorl.rollout import TimeStep
from discorl.settings import Count, Seed, check_value
from discorl.training.agent import TrainedAgent

AnyPolicy = TrainedAgent | nn.Module | Callable[[Any], Any]
"""A trained agent; a module that gives `logits` [B, A], alone or in a dictionary of heads; or a
function from B observations, as arrays, to B actions, as integers below A."""

_COPIES = 8


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode, step by step."""

    observations: list[Any]
    """What was acted on, as agents read it: an array or a dictionary of arrays for each step."""
    actions: list[int]
    rewards: list[float]
    truncated: bool
    """Whether it was cut off, by its time limit or by `max_steps`."""

    @property
    def total_reward(self) -> float:
        """The return."""
        return float(np.sum(self.rewards))

    def __len__(self) -> int:
        return len(self.actions)


def evaluate(
    policy: AnyPolicy,
    env: AnyEnvironment,
    episodes: int = 100,
    *,
    seed: int = 0,
    deterministic: bool = False,
    num_envs: int | None = None,
    max_steps: int | None = None,
) -> Evaluation:
    """How good a policy is: mean return and length of whole episodes.

    Args:
      policy: see `AnyPolicy`.
      env: an environment, as `discorl.train` takes it.
      seed: fixes the episodes and the draws of actions.
      deterministic: always take the likeliest action, if the policy gives logits.
      num_envs: copies that play at once.
      max_steps: of an episode; one that is still running then counts with what it has. By default
        the environment's own limit, or 3,000.
    """
    episodes, seed = check_value("episodes", Count, episodes), check_value("seed", Seed, seed)
    max_steps = check_value("max_steps", Count | None, max_steps)
    num_envs = check_value("num_envs", Count | None, num_envs)
    source = _source_for(policy, env)
    copies = num_envs or source.num_envs or (episodes if source.cheap else min(_COPIES, episodes))
    with closing(_seen_by(policy, source.make(copies))) as environment:
        return evaluate_policy(
            _as_policy(policy, environment, deterministic), environment, seed, episodes, max_steps
        )


def play(
    policy: AnyPolicy,
    env: AnyEnvironment,
    episodes: int = 1,
    *,
    seed: int = 0,
    deterministic: bool = False,
    max_steps: int | None = None,
) -> list[PlayedEpisode]:
    """Play episodes one after another, step by step; arguments as for `evaluate`."""
    episodes, seed = check_value("episodes", Count, episodes), check_value("seed", Seed, seed)
    max_steps = check_value("max_steps", Count | None, max_steps)
    source = _source_for(policy, env)
    with closing(_seen_by(policy, source.make(1))) as environment:
        player = _as_policy(policy, environment, deterministic)
        max_steps = max_steps or getattr(environment, "max_episode_steps", None) or MAX_STEPS
        return [_play(player, environment, seed + number, max_steps) for number in range(episodes)]


@torch.no_grad()
def _play(policy: Policy, env: Environment, seed: int, max_steps: int) -> PlayedEpisode:
    step, carried = env.reset(seed), policy.begin(env, seed)
    observations: list[Any] = []
    actions: list[int] = []
    rewards: list[float] = []
    ended = False
    while not ended and len(actions) < max_steps:
        observations.append(_arrays(step.observation, row=0))
        action, carried = policy.act(step, carried)
        step = env.step(action)
        actions.append(int(action))
        rewards.append(float(step.reward))
        ended = bool(step.ended)
    cut = step.truncated is not None and bool(step.truncated)
    return PlayedEpisode(observations, actions, rewards, truncated=cut or not ended)


def _source_for(policy: AnyPolicy, env: AnyEnvironment) -> EnvironmentSource:
    """The environment, run as a trained agent knows it."""
    config = policy.config_for(env) if isinstance(policy, TrainedAgent) else None
    return find_environment(env, _device_of(policy), config)


def _seen_by(policy: AnyPolicy, env: Environment) -> Environment:
    return policy.watching(env) if isinstance(policy, TrainedAgent) else env


def _device_of(policy: AnyPolicy) -> torch.device:
    """Where environments are to show their observations."""
    if isinstance(policy, TrainedAgent):
        return policy.device
    parameters = policy.parameters() if isinstance(policy, nn.Module) else iter(())
    return next(parameters, torch.empty(0)).device


def _as_policy(policy: AnyPolicy, env: Environment, deterministic: bool) -> Policy:
    if isinstance(policy, TrainedAgent):
        policy.check_fits(env)
        return AgentPolicy(policy.agent, policy.params, deterministic)
    if isinstance(policy, nn.Module):
        return _ModulePolicy(policy, deterministic)
    if callable(policy):
        return _FunctionPolicy(policy)
    raise DiscorlError(
        "policy: expected an agent, a module or a function from observations to actions, got "
        f"{type(policy).__name__}"
    )


class _ModulePolicy:
    """A module's logits; one with `forward_step` carries its own state along."""

    def __init__(self, module: nn.Module, greedy: bool) -> None:
        self.module, self.greedy = module, greedy

    def begin(self, env: Environment, seed: int) -> Any:
        """See `Policy.begin`."""
        parameter = next(self.module.parameters(), torch.empty(0))
        generator = torch.Generator(parameter.device).manual_seed(seed)
        start = getattr(self.module, "init_lstm_state", None)
        return generator, start(env.num_envs, parameter.device) if callable(start) else None

    def act(self, step: TimeStep, carried: Any) -> tuple[Tensor, Any]:
        """See `Policy.act`."""
        generator, state = carried
        outputs, state = module_step(self.module, step.observation, state)
        logits = outputs if isinstance(outputs, Tensor) else as_heads(outputs).get("logits")
        if logits is None:
            raise DiscorlError("policy: the module gives no 'logits'")
        logits = keep_legal(logits, step.observation)
        return choose(logits, generator, self.greedy), (generator, state)


class _FunctionPolicy:
    """A function of B observations."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def begin(self, env: Environment, seed: int) -> Environment:
        """See `Policy.begin`: carries only what is needed to check answers."""
        return env

    def act(self, step: TimeStep, carried: Environment) -> tuple[Tensor, Environment]:
        """See `Policy.act`."""
        actions = torch.as_tensor(np.asarray(self.function(_arrays(step.observation))))
        if actions.shape != (carried.num_envs,) or actions.is_floating_point():
            raise DiscorlError(
                f"policy: expected {carried.num_envs} integers, one for each observation, got "
                f"{actions.dtype} {list(actions.shape)}"
            )
        if ((actions < 0) | (actions >= carried.num_actions)).any():
            raise DiscorlError(f"policy: actions go from 0 to {carried.num_actions - 1}")
        return actions.long().to(step.reward.device), carried


def _arrays(observation: Observation, row: int | None = None) -> Any:
    """NumPy arrays of an observation [B, ...], or of one row of it."""

    def array(leaf: Tensor) -> Any:
        return (leaf if row is None else leaf[row]).cpu().numpy()

    if isinstance(observation, Tensor):
        return array(observation)
    return {name: array(leaf) for name, leaf in observation.items()}
