"""Acting: an agent in its environments, one rollout at a time, and exact episode statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discorl.agents.base import Agent
from discorl.envs.base import Environment, TimeStep
from discorl.layers import Params
from discorl.rollout import Rollout


@torch.no_grad()
def act(
    agent: Agent,
    params: Params,
    env: Environment,
    step: TimeStep,
    length: int,
    generator: torch.Generator,
    greedy: bool = False,
) -> tuple[Rollout, TimeStep]:
    """Act `length` times in all copies.

    Args:
      step: what the environment handed out last; the rollout begins with it.
      generator: draws the actions, unless `greedy` takes the likeliest.

    Returns:
      `length` stored steps, and the time step that the next rollout begins with.
    """
    steps, actions, logits = [], [], []
    for _ in range(length):
        step_logits = agent.policy(params, step.observation)
        action = choose(step_logits, generator, greedy)
        steps.append(step)
        actions.append(action)
        logits.append(step_logits)
        step = env.step(action)
    rollout = Rollout(
        observations=torch.stack([s.observation for s in steps]),
        actions=torch.stack(actions),
        rewards=torch.stack([s.reward for s in steps]),
        discounts=torch.stack([s.discount for s in steps]),
        logits=torch.stack(logits),
    )
    return rollout, step


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

    def update(self, rewards: Tensor, discounts: Tensor) -> list[Episode]:
        """Episodes that ended within [L, B] stored steps, in order of time."""
        episodes = []
        ended = (discounts == 0).cpu().numpy()
        for reward, end in zip(rewards.double().cpu().numpy(), ended, strict=True):
            # The very first observation came before any action: no step of an episode.
            self._lengths += self._started
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
