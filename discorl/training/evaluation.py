"""How good an agent is: whole episodes in environments of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from discorl.agents.base import Agent
from discorl.envs.base import Environment
from discorl.layers import Params
from discorl.training.actor import choose

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
    max_steps: int = _MAX_STEPS,
) -> Evaluation:
    """Play one episode in each copy of the environment.

    The first episode of every copy counts and no other, so short ones are not favoured.
    """
    step = env.reset(seed)
    generator = torch.Generator(step.reward.device).manual_seed(seed)
    total = torch.zeros_like(step.reward, dtype=torch.float64)
    length = torch.zeros_like(total)
    running = torch.ones_like(step.reward, dtype=torch.bool)
    for _ in range(max_steps):
        action = choose(agent.policy(params, step.observation), generator, greedy)
        step = env.step(action)
        total += torch.where(running, step.reward.double(), 0)
        length += running
        running &= step.discount != 0
        if not running.any():
            break
    return Evaluation(
        mean_return=float(total.mean()),
        std_return=float(total.std(correction=0)),
        mean_length=float(length.mean()),
        episodes=env.num_envs,
        unfinished=int(running.sum()),
    )
