"""How good an agent is: whole episodes in environments of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.agents.base import Agent, initial_memory
from discorl.envs.base import Environment
from discorl.layers import Params
from discorl.training.actor import choose, policy_step

_MAX_STEPS = 100_000


@dataclass(frozen=True)
class Evaluation:
    """Statistics over episodes, one from each copy of the environment."""

    mean_return: float
    std_return: float
    mean_length: float
    episodes: int
    unfinished: int
    """Episodes still running at the limit, counted with what they had."""


@torch.no_grad()
def evaluate(
    agent: Agent,
    params: Params,
    env: Environment,
    seed: int,
    greedy: bool,
    episodes: int | None = None,
    max_steps: int = _MAX_STEPS,
) -> Evaluation:
    """Play whole episodes: one in each copy of the environment, and again until there are enough.

    Of every round the first episode of every copy counts and no other, so short ones are not
    favoured.

    Args:
      episodes: how many; by default one for each copy.
      max_steps: of an episode.
    """
    episodes = episodes or env.num_envs
    rounds = [
        # Vector environments give their copies the seeds that follow: rounds must not share any.
        _play_round(agent, params, env, seed + number * env.num_envs, greedy, max_steps)
        for number in range(-(-episodes // env.num_envs))
    ]
    total, length, running = (torch.cat(parts)[:episodes] for parts in zip(*rounds, strict=True))
    return Evaluation(
        mean_return=float(total.mean()),
        std_return=float(total.std(correction=0)),
        mean_length=float(length.mean()),
        episodes=episodes,
        unfinished=int(running.sum()),
    )


def _play_round(
    agent: Agent, params: Params, env: Environment, seed: int, greedy: bool, max_steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns, lengths and whether it is still running [B], of the first episode of each copy."""
    step = env.reset(seed)
    generator = torch.Generator(step.reward.device).manual_seed(seed)
    total = torch.zeros_like(step.reward, dtype=torch.float64)
    length = torch.zeros_like(total)
    running = torch.ones_like(step.reward, dtype=torch.bool)
    memory = initial_memory(agent, env.num_envs, step.reward.device)
    for _ in range(max_steps):
        logits, memory = policy_step(agent, params, step, memory)
        step = env.step(choose(logits, generator, greedy))
        total += torch.where(running, step.reward.double(), 0)
        length += running
        running &= ~step.ended
        if not running.any():
            break
    return total, length, running
