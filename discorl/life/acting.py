"""Acting: an agent in its environments, one rollout at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from discorl.agents.base import Agent, RecurrentAgent
from discorl.envs.base import Environment
from discorl.layers import Params
from discorl.rollout import Memory, Rollout, TimeStep, Window
from discorl.tree import tree_map


@dataclass(frozen=True)
class Acted:
    """The outcome of acting for L steps."""

    rollout: Rollout
    """To learn from."""
    step: TimeStep
    """What the next rollout begins with."""
    memory: Memory | None
    """What the agent remembers now, if it has memory."""
    ended: Tensor
    """[L, B] booleans: an episode's last reward came with this step."""
    idle: Tensor
    """[L, B] booleans: this step was nothing but a reset."""
    env_seconds: float
    """Time spent in the environment."""


@torch.no_grad()
def act(
    agent: Agent,
    params: Params,
    env: Environment,
    step: TimeStep,
    length: int,
    generator: torch.Generator,
    memory: Memory | None = None,
) -> Acted:
    """Act `length` times in all copies.

    Args:
      step: the environment's latest step; the rollout begins with it.
      generator: draws the actions.
      memory: what the agent remembers of the steps before, if it has memory.
    """
    before = memory
    steps, actions, logits = [], [], []
    env_seconds = 0.0
    for _ in range(length):
        step_logits, memory = policy_step(agent, params, step, memory)
        action = choose(step_logits, generator)
        steps.append(step)
        actions.append(action)
        logits.append(step_logits)
        started = time.perf_counter()
        step = env.step(action)
        env_seconds += time.perf_counter() - started
    rollout = Rollout.from_steps(steps, actions, logits, before)
    ended, idle = (torch.stack([getattr(s, name) for s in steps]) for name in ("ended", "idle"))
    return Acted(rollout, step, memory, ended, idle, env_seconds)


@torch.no_grad()
def burn_in(agent: Agent, params: Params, rollout: Rollout, steps: int) -> Rollout:
    """The rollout without its first `steps`, and the memory of them with these parameters.

    The memory stored with the rollout is out of date: the network has changed since.
    """
    assert isinstance(agent, RecurrentAgent)
    window = rollout.inputs()
    assert isinstance(window, Window)
    observations = tree_map(lambda t: t[:steps], window.observations)
    start = Window(observations, window.firsts[:steps], window.memory)
    memory = {k: m.unsqueeze(0) for k, m in agent.remember(params, start).items()}
    rest = tree_map(lambda t: t[steps:], replace(rollout, memory=None))
    return replace(rest, memory=memory)


def policy_step(
    agent: Agent, params: Params, step: TimeStep, memory: Memory | None
) -> tuple[Tensor, Memory | None]:
    """The policy's logits [B, A], and what an agent with memory remembers afterwards."""
    if memory is None:
        return agent.policy(params, step.observation), None
    assert isinstance(agent, RecurrentAgent)
    return agent.policy_step(params, step.observation, step.first, memory)


def choose(logits: Tensor, generator: torch.Generator | None, greedy: bool = False) -> Tensor:
    """Actions [B] from logits [B, A]: sampled, or the likeliest."""
    if greedy:
        return logits.argmax(dim=-1)
    # What `multinomial` does for one draw, without its check: a broken policy is reported by
    # the metric that broke it, and on a GPU the check would abort the process.
    probs = torch.softmax(logits, dim=-1)
    return (probs / torch.empty_like(probs).exponential_(generator=generator)).argmax(dim=-1)
