"""Acting: an agent in its environments, one rollout at a time, and exact episode statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discorl.agents.base import Agent, RecurrentAgent
from discorl.envs.base import Environment, TimeStep
from discorl.layers import Params
from discorl.rollout import Memory, Rollout, Window
from discorl.tree import stack, tree_map


@dataclass(frozen=True)
class Acted:
    """What acting for L steps brought."""

    rollout: Rollout
    """To learn from."""
    step: TimeStep
    """What the next rollout begins with."""
    memory: Memory | None
    """What the agent remembers now, if it does."""
    rewards: Tensor
    """[L, B]: as they were received, to count."""
    ended: Tensor
    """[L, B] booleans: an episode's last reward came with this step."""
    idle: Tensor
    """[L, B] booleans: this step was a reset and nothing else."""
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
      step: what the environment handed out last; the rollout begins with it.
      generator: draws the actions.
      memory: what the agent remembers of the steps before, if it remembers at all.
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
    rollout = Rollout(
        **_records(steps, keep_first=memory is not None),
        actions=torch.stack(actions),
        rewards=torch.stack([s.reward for s in steps]),
        logits=torch.stack(logits),
        memory=None if before is None else {k: m.unsqueeze(0) for k, m in before.items()},
    )
    ended, idle = (torch.stack([getattr(s, name) for s in steps]) for name in ("ended", "idle"))
    return Acted(rollout, step, memory, rollout.rewards, ended, idle, env_seconds)


@torch.no_grad()
def burn_in(agent: Agent, params: Params, rollout: Rollout, steps: int) -> Rollout:
    """The rollout without its first `steps`, remembered as the agent would with these parameters.

    What was remembered when the rollout was stored is out of date: the network has changed since.
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
    """The policy's logits [B, A], and what an agent with memory remembers then."""
    if memory is None:
        return agent.policy(params, step.observation), None
    assert isinstance(agent, RecurrentAgent)
    return agent.policy_step(params, step.observation, step.first, memory)


def _records(steps: list[TimeStep], keep_first: bool) -> dict[str, Any]:
    """What is stored of the environment: observations, discounts and final flags.

    Where an episode was cut off and the next one began in the same step, there are two
    observations and room for one. The old episode's last one is stored, to bootstrap from; so
    the new one's first step is not learned from. But an agent with memory must have read it
    (`keep_first`). Then the episode counts as cut off one step earlier, where its value is as
    good.
    """
    observations, discounts = [s.observation for s in steps], [s.discount for s in steps]
    if steps[0].boundary is None:
        return {"observations": stack(observations), "discounts": torch.stack(discounts)}
    final = [torch.zeros_like(s.ended) for s in steps]
    for t, step in enumerate(steps):
        assert step.boundary is not None
        if step.boundary.stored is None:
            final[t] |= step.boundary.final
        elif keep_first:
            discounts[t] = discounts[t].masked_fill(step.boundary.final, 0)
            final[max(t - 1, 0)] |= step.boundary.final & (t > 0)
        else:
            observations[t] = step.boundary.stored
            final[t] |= step.boundary.final
    return {
        "observations": stack(observations),
        "discounts": torch.stack(discounts),
        "final": torch.stack(final),
    }


def choose(logits: Tensor, generator: torch.Generator, greedy: bool = False) -> Tensor:
    """Actions [B] from logits [B, A]: sampled, or the likeliest."""
    if greedy:
        return logits.argmax(dim=-1)
    # What `multinomial` does for one draw, without its check: a broken policy is reported by
    # the metric that broke it, and on a GPU the check would abort the process.
    probs = torch.softmax(logits, dim=-1)
    return (probs / torch.empty_like(probs).exponential_(generator=generator)).argmax(dim=-1)


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    total_reward: float
    length: int


class EpisodeTracker:
    """Adds up rewards over rollout boundaries and gives each episode once, when it ends."""

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._started = np.zeros(num_envs, dtype=np.bool_)

    def update(self, acted: Acted) -> list[Episode]:
        """Episodes that ended within these steps, in order of time."""
        episodes = []
        rewards, ended = acted.rewards.double().cpu().numpy(), acted.ended.cpu().numpy()
        for reward, end, idle in zip(rewards, ended, acted.idle.cpu().numpy(), strict=True):
            # The very first observation came before any action: no step of an episode.
            self._lengths += self._started & ~idle
            self._started[:] = True
            self._returns += reward
            for index in np.flatnonzero(end):
                episodes.append(Episode(float(self._returns[index]), int(self._lengths[index])))
                self._returns[index] = 0
                self._lengths[index] = 0
        return episodes

    def state_dict(self) -> dict[str, Tensor]:
        """The unfinished episodes."""
        return {
            "returns": torch.tensor(self._returns),
            "lengths": torch.tensor(self._lengths),
            "started": torch.tensor(self._started),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` gave."""
        self._returns = state["returns"].cpu().numpy().copy()
        self._lengths = state["lengths"].cpu().numpy().copy()
        self._started = state["started"].cpu().numpy().copy()
