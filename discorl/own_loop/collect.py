"""Acting with a module of your own, in an environment of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from discorl.agents.check import require_module
from discorl.agents.masks import keep_legal
from discorl.agents.module import ModuleAgent, as_heads, has_forward_step, module_step
from discorl.envs.base import Environment
from discorl.errors import DiscorlError
from discorl.layers import Params
from discorl.life.acting import act
from discorl.observations import Observation, batch_size
from discorl.outputs import HeadSpec
from discorl.rollout import Rollout, TimeStep
from discorl.tree import tree_map

StepFunction = Callable[[Any], tuple[Any, Any, Any]]
State = TypeVar("State")


def collect_rollout(
    agent: nn.Module,
    step_fn: StepFunction | Environment,
    obs: Any,
    state: State,
    *,
    rollout_length: int,
    device: torch.device | str | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Rollout, Any, State]:
    """Store `rollout_length` steps of B environments, with actions drawn from the policy.

    The last one holds the observation to bootstrap from; the action stored with it is not taken,
    and the next rollout begins with that observation. So `rollout_length - 1` steps are taken, and
    as many transitions are stored.

    Args:
      agent: a module as `DiscoTrainer` takes it.
      step_fn: `step_fn(actions [B]) -> (obs [B, ...], rewards [B], dones [B])`, arrays or tensors.
        Where an episode is done, `obs` is the first observation of the next one. Actions come as
        a tensor if `obs` is one, else as an array. Or a discorl environment, which also reports
        episodes that were cut off by a time limit. Wrap a Gymnasium vector environment once:
        `GymnasiumEnvironment(vector_env, "name")`.
      obs: what to act on first: the `obs` of the last call, or of your environment's reset; for a
        discorl environment the time step of its `reset`.
      state: what a module with `forward_step` carries along, zeroed where episodes end; None for
        other modules.
      device: of the rollout; by default the agent's.
      generator: draws the actions; by default PyTorch's own.

    Returns:
      The rollout, and `obs` and `state` for the next call.
    """
    module = require_module(agent)
    parameter = next(module.parameters(), torch.empty(0))
    reader = _Reader(
        device=torch.device(device or parameter.device),
        dtype=parameter.dtype,
        flat=has_forward_step(module),
    )
    if rollout_length < 2:
        raise DiscorlError(f"rollout_length: expected at least 2, got {rollout_length}")
    actor = _Actor(module, state, getattr(step_fn, "num_actions", None))
    steps = _Steps(_stepper(step_fn, obs, reader), obs, reader, actor, rollout_length - 1)
    # `act` needs nothing from an environment but its step.
    env = cast(Environment, steps)
    rollout = act(actor, {}, env, steps.step_now, rollout_length, cast(Any, generator)).rollout
    return rollout.to(parameter.dtype), steps.obs, steps.state


class _Reader:
    """From what an environment returns to what is stored."""

    def __init__(self, device: torch.device, dtype: torch.dtype, flat: bool) -> None:
        self.device = device
        self.dtype = dtype
        self.flat = flat
        """Modules in disco-torch's style read observations as [B, N] floats."""

    def observation(self, given: Any) -> Observation:
        """A copy: environments may overwrite this observation with the next."""
        if isinstance(given, Mapping):
            return {str(name): self._leaf(leaf) for name, leaf in given.items()}
        return self._leaf(given)

    def _leaf(self, given: Any) -> Tensor:
        leaf = given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
        if self.flat:
            leaf = leaf.reshape(len(leaf), -1)
        dtype = self.dtype if self.flat or leaf.is_floating_point() else leaf.dtype
        return leaf.to(self.device, dtype, copy=True)

    def vector(self, name: str, given: Any, batch: int) -> Tensor:
        """[B] floats."""
        vector = torch.as_tensor(given).to(self.device, self.dtype, copy=True)
        if tuple(vector.shape) != (batch,):
            raise DiscorlError(
                f"step_fn: expected {name} of shape [{batch}], one for each observation, got "
                f"{list(vector.shape)}"
            )
        return vector

    def time_step(self, step: TimeStep) -> TimeStep:
        truncated, reset = (
            None if flags is None else flags.to(self.device)
            for flags in (step.truncated, step.reset)
        )
        return TimeStep(
            self.observation(step.observation),
            step.reward.to(self.device),
            step.terminated.to(self.device),
            truncated,
            reset,
            last=None if step.last is None else self.observation(step.last),
        )

    def first(self, obs: Any) -> TimeStep:
        """The time step of an observation that comes with nothing else."""
        observation = self.observation(obs)
        reward = torch.zeros(batch_size(observation), dtype=self.dtype, device=self.device)
        return TimeStep(observation, reward, torch.zeros_like(reward, dtype=torch.bool))


class _Actor(ModuleAgent):
    """The module as it acts: with its own parameters and what it carries along."""

    def __init__(self, module: nn.Module, state: Any, num_actions: int | None) -> None:
        super().__init__(module, HeadSpec({}))
        self.state = state
        self.num_actions = num_actions

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """[B, A]."""
        outputs, self.state = module_step(self.module, observations, self.state)
        heads = as_heads(outputs, next(self.module.parameters()).dtype)
        if "logits" not in heads:
            raise DiscorlError(
                f"agent: the head 'logits' is missing, it gave {sorted(heads)}; return the "
                "policy's logits [..., A] under this name"
            )
        logits = heads["logits"]
        if self.num_actions not in (None, logits.shape[-1]):
            raise DiscorlError(
                f"agent: it has {logits.shape[-1]} actions, the environment {self.num_actions}; "
                f"build its heads for {self.num_actions}"
            )
        return keep_legal(logits, observations)

    def forget(self, firsts: Tensor) -> None:
        """Zero what is carried along [..., B, N] where an episode begins [B]."""
        if has_forward_step(self.module):
            ends = firsts.unsqueeze(-1)
            self.state = tree_map(lambda t: t.masked_fill(ends, 0), self.state)


class _Steps:
    """An environment for `act` that takes one step fewer than it is asked for.

    `act` takes a step after every stored observation. After the last one nothing is done, so that
    the next rollout can begin with it.
    """

    def __init__(
        self,
        take: Callable[[Tensor], tuple[Any, TimeStep]],
        obs: Any,
        reader: _Reader,
        actor: _Actor,
        count: int,
    ) -> None:
        self.obs, self.state = obs, actor.state
        is_step = isinstance(obs, TimeStep)
        self.step_now = reader.time_step(obs) if is_step else reader.first(obs)
        self._take, self._actor, self._left = take, actor, count

    def step(self, actions: Tensor) -> TimeStep:
        if self._left:
            self._left -= 1
            self.obs, self.step_now = self._take(actions)
            self._actor.forget(self.step_now.first)
            self.state = self._actor.state
        return self.step_now


def _stepper(
    step_fn: StepFunction | Environment, obs: Any, reader: _Reader
) -> Callable[[Tensor], tuple[Any, TimeStep]]:
    """Actions [B] to what the environment returned, and the same as it is stored."""
    if hasattr(step_fn, "single_action_space"):
        raise DiscorlError(
            "step_fn: wrap a Gymnasium vector environment once, before the loop: "
            'env = discorl.envs.gymnasium.GymnasiumEnvironment(vector_env, "name"), '
            "obs = env.reset(seed)"
        )
    if hasattr(step_fn, "observation_spec"):
        env = cast(Environment, step_fn)
        if not isinstance(obs, TimeStep):
            raise DiscorlError("obs: begin with the time step of the environment: env.reset(seed)")

        def from_environment(actions: Tensor) -> tuple[Any, TimeStep]:
            step = env.step(actions)
            return step, reader.time_step(step)

        return from_environment
    if not callable(step_fn):
        raise DiscorlError(
            f"step_fn: expected a function of the actions, got {type(step_fn).__name__}"
        )
    as_tensors = any(isinstance(leaf, Tensor) for leaf in _leaves(obs))

    def from_function(actions: Tensor) -> tuple[Any, TimeStep]:
        given = step_fn(actions if as_tensors else actions.cpu().numpy())
        if not isinstance(given, tuple) or len(given) != 3:
            raise DiscorlError("step_fn: return three things: observations, rewards and dones")
        new_obs, rewards, dones = given
        observation = reader.observation(new_obs)
        batch = len(actions)
        reward = reader.vector("rewards", rewards, batch)
        done = reader.vector("dones", dones, batch) != 0
        return new_obs, TimeStep(observation, reward, done)

    return from_function


def _leaves(obs: Any) -> list[Any]:
    return list(obs.values()) if isinstance(obs, Mapping) else [obs]
