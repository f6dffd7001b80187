"""Whole episodes: how good a policy is, in separate environments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from discorl.agents.base import Agent, initial_memory
from discorl.envs.base import MAX_STEPS, Environment
from discorl.envs.outcomes import Telling
from discorl.layers import Params
from discorl.life.acting import choose, policy_step
from discorl.rollout import TimeStep

Watch = Callable[[int, int], bool]
"""Called after each step with the number of finished episodes and the total; True ends it all."""


class EvaluationStopped(Exception):
    """Whoever watched an evaluation ended it."""


class Policy(Protocol):
    """Chooses actions in B copies of an environment."""

    def begin(self, env: Environment, seed: int) -> Any:
        """What to carry along from the first step on; the seed fixes every random choice."""
        ...

    def act(self, step: TimeStep, carried: Any) -> tuple[Tensor, Any]:
        """Actions [B], and what to carry along to the next step."""
        ...


class AgentPolicy:
    """An agent with fixed parameters: sampled actions, or always the likeliest."""

    def __init__(self, agent: Agent, params: Params, greedy: bool) -> None:
        self.agent, self.params, self.greedy = agent, params, greedy

    def begin(self, env: Environment, seed: int) -> Any:
        """See `Policy.begin`."""
        device = next(iter(self.params.values())).device
        generator = torch.Generator(device).manual_seed(seed)
        return generator, initial_memory(self.agent, env.num_envs, device)

    def act(self, step: TimeStep, carried: Any) -> tuple[Tensor, Any]:
        """See `Policy.act`."""
        generator, memory = carried
        logits, memory = policy_step(self.agent, self.params, step, memory)
        return choose(logits, generator, self.greedy), (generator, memory)


@dataclass(frozen=True)
class Evaluation:
    """Statistics over episodes."""

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    unfinished: int
    """Episodes still running at the limit, counted with what they had so far."""
    outcomes: dict[str, float] = field(default_factory=dict)
    """What finished episodes came to on average besides their return, where an environment tells
    it: achievements, for example."""
    returns: tuple[float, ...] = ()
    """Of each episode."""
    lengths: tuple[int, ...] = ()
    """Of each episode, in steps."""


@torch.no_grad()
def evaluate_policy(
    policy: Policy,
    env: Environment,
    seed: int,
    episodes: int | None = None,
    max_steps: int | None = None,
    watch: Watch | None = None,
) -> Evaluation:
    """Play whole episodes: one in each copy of the environment, and again until there are enough.

    In every round only the first episode of each copy counts, so that short ones are not favoured.

    Args:
      episodes: how many; by default one for each copy.
      max_steps: of an episode; by default the environment's own limit, or 3,000.
      watch: called after each step; see `Watch`.
    """
    episodes = episodes or env.num_envs
    max_steps = max_steps or getattr(env, "max_episode_steps", None) or MAX_STEPS
    rounds, told = [], _Told()
    for number in range(-(-episodes // env.num_envs)):
        before = number * env.num_envs

        def goes_on(running: Tensor, before: int = before) -> None:
            ended = min(before + int((~running).sum()), episodes)
            if watch is not None and watch(ended, episodes):
                raise EvaluationStopped

        # Vector environments give their copies the seeds that follow: rounds must not share any.
        left = episodes - before
        rounds.append(_play_round(policy, env, seed + before, max_steps, goes_on, told, left))
    total, length, running = (torch.cat(parts)[:episodes] for parts in zip(*rounds, strict=True))
    return Evaluation(
        mean_return=float(total.mean()),
        std_return=float(total.std(correction=0)),
        mean_length=float(length.mean()),
        episodes=episodes,
        unfinished=int(running.sum()),
        outcomes=told.means(),
        returns=tuple(total.tolist()),
        lengths=tuple(map(int, length.tolist())),
    )


class _Told:
    """What an environment tells of the episodes that count."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, env: Environment, ended: Tensor) -> None:
        """Episodes ended in these copies [B]."""
        last = env.outcomes.last if isinstance(env, Telling) else {}
        if last and ended.any():
            rows = ended.nonzero()[:, 0].cpu().numpy()
            for name, values in last.items():
                self._values.setdefault(name, []).extend(values[rows].tolist())

    def means(self) -> dict[str, float]:
        return {name: sum(values) / len(values) for name, values in self._values.items()}


def _play_round(
    policy: Policy,
    env: Environment,
    seed: int,
    max_steps: int,
    goes_on: Callable[[Tensor], None],
    told: _Told,
    counted: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns, lengths and whether it is still running [B], of the first episode of each copy."""
    step, carried = env.reset(seed), policy.begin(env, seed)
    total = torch.zeros_like(step.reward, dtype=torch.float64)
    length = torch.zeros_like(total)
    running = torch.ones_like(step.terminated)
    for _ in range(max_steps):
        actions, carried = policy.act(step, carried)
        step = env.step(actions)
        total += torch.where(running, step.reward.double(), 0)
        length += running
        told.add(env, (running & step.ended)[:counted])
        running &= ~step.ended
        goes_on(running)
        if not running.any():
            break
    return total, length, running
