"""Many lives at once: agents whose shapes agree act and learn as one computation.

Each life keeps all that is its own: experience, replay, episodes, random numbers. What comes out is
what each would do alone, but for rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from discorl.agents.network import Network
from discorl.envs.base import Environment
from discorl.envs.seats import Seat
from discorl.layers import Params
from discorl.life.acting import Acted, policy_step
from discorl.life.life import Life
from discorl.replay import concatenate
from discorl.rollout import Memory, Rollout, TimeStep
from discorl.rules.base import Metrics
from discorl.stacking import Each
from discorl.tree import stack, tree_map, unstack

T = TypeVar("T")


def by_shape(owners: Sequence[T], life: Callable[[T], Life]) -> list[list[T]]:
    """Those whose lives can be stacked, each group in the order given."""
    groups: dict[str, list[T]] = {}
    for owner in owners:
        groups.setdefault(_shape(life(owner)), []).append(owner)
    return list(groups.values())


def _shape(life: Life) -> str:
    """Lives with the same answer can be stacked."""
    step = life.time_step
    told = (step.truncated is None, step.reset is None, step.last is None)
    return repr((life.config, life.env.observation_spec, life.env.num_actions, *told))


def act_together(lives: Sequence[Life], length: int | None = None) -> list[Rollout]:
    """`Life.act` of each."""
    length = length or lives[0].config.experience.rollout_length
    started = time.perf_counter()
    acted = _play(lives, length)
    seconds = (time.perf_counter() - started) / len(lives)
    return [life.take_in((one, seconds)) for life, one in zip(lives, acted, strict=True)]


def learn_together(
    lives: Sequence[Life], batches: Sequence[Rollout], rule_params: Params | None = None
) -> list[Metrics]:
    """`Life.learn` of each, all by the first one's rule.

    Args:
      rule_params: each life's own in place of that rule's, [P, ...].
    """
    started = time.perf_counter()
    learner = replace(lives[0].mind.learner, each=Each(len(lives)))
    ready = [life.mind.remember(batch) for life, batch in zip(lives, batches, strict=True)]
    before = stack([life.state for life in lives])
    update = learner.update(before, concatenate(ready), rule_params=rule_params)
    for life, state in zip(lives, unstack(update.state, len(lives)), strict=True):
        life.mind.state = state
        life.seconds["learning"] += (time.perf_counter() - started) / len(lives)
    return unstack(update.metrics, len(lives))


@torch.no_grad()
def _play(lives: Sequence[Life], length: int) -> list[Acted]:
    agent = lives[0].mind.learner.agent
    look = Each(len(lives))(partial(policy_step, agent))
    needed = agent.policy_params if isinstance(agent, Network) else dict
    params = stack([needed(life.state.params) for life in lives])
    before = memory = _join_memories(lives)
    step = _join([life.time_step for life in lives])
    steps, actions, logits = [], [], []
    env_seconds = 0.0
    for _ in range(length):
        step_logits, memory = look(params, _split(step, len(lives)), memory)
        action = _choose(step_logits, lives)
        steps.append(step)
        actions.append(action.flatten())
        logits.append(step_logits.flatten(0, 1))
        started = time.perf_counter()
        step = _step(lives, action)
        env_seconds += time.perf_counter() - started
    joint = before and {name: tensor.flatten(0, 1) for name, tensor in before.items()}
    rollout = Rollout.from_steps(steps, actions, logits, joint)
    ended, idle = (torch.stack([getattr(s, name) for s in steps]) for name in ("ended", "idle"))
    whole = Acted(rollout, step, None, ended, idle, env_seconds / len(lives))
    return [
        replace(_share(whole, lives[0].env.num_envs, index), memory=own)
        for index, own in enumerate(unstack(memory, len(lives)))
    ]


def _share(acted: Acted, copies: int, index: int) -> Acted:
    """One life's part of what all did, without its memory."""
    own = slice(index * copies, (index + 1) * copies)
    return Acted(
        rollout=tree_map(lambda tensor: tensor[:, own], acted.rollout),
        step=tree_map(lambda tensor: tensor[own], acted.step),
        memory=None,
        ended=acted.ended[:, own],
        idle=acted.idle[:, own],
        env_seconds=acted.env_seconds,
    )


def _choose(logits: Tensor, lives: Sequence[Life]) -> Tensor:
    """`choose` for logits [P, B, A], each life with its own generator: [P, B]."""
    probs = torch.softmax(logits, dim=-1)
    noise = torch.empty_like(probs)
    for own, life in zip(noise, lives, strict=True):
        own.exponential_(generator=life.mind.generator)
    return (probs / noise).argmax(dim=-1)


def _step(lives: Sequence[Life], actions: Tensor) -> TimeStep:
    """Act in every environment: actions [P, B]; the joint step [P x B]."""
    pairs = zip(lives, actions, strict=True)
    steps = []
    for table, group in groupby(pairs, lambda pair: _table(pair[0])):
        own = [action for _, action in group]
        steps.append(table.step(torch.cat(own)))
    return steps[0] if len(steps) == 1 else _join(steps)


def _table(life: Life) -> Environment:
    """What steps for a life: its environment, or the one that it has a seat at."""
    return life.env.table if isinstance(life.env, Seat) else life.env


def _join(steps: Sequence[TimeStep]) -> TimeStep:
    return stack(steps, torch.cat)


def _split(step: TimeStep, agents: int) -> TimeStep:
    """[P x B, ...] -> [P, B, ...]."""
    return tree_map(lambda tensor: tensor.unflatten(0, (agents, -1)), step)


def _join_memories(lives: Sequence[Life]) -> Memory | None:
    """[P, B, ...] for each part, if these agents have memory."""
    memories = [life.memory for life in lives if life.memory is not None]
    return stack(memories) if memories else None
