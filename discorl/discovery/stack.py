"""A population as one computation: agents of equal shapes act, learn and are judged at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

from discorl.discovery.config import DiscoverConfig, PopulationConfig, deal_environments
from discorl.discovery.member import Member, SeatMaker, next_batch
from discorl.discovery.meta_gradient import meta_gradient
from discorl.discovery.meta_loss import MetaGradient
from discorl.envs.families import resolve_environment
from discorl.envs.registry import is_external
from discorl.envs.seats import Table, common_padding
from discorl.errors import DiscorlError
from discorl.life.together import act_together, by_shape
from discorl.replay import concatenate
from discorl.rules.disco import DiscoRule
from discorl.stacking import Each
from discorl.tree import stack, unstack


def is_stacked(config: PopulationConfig) -> TypeGuard[DiscoverConfig]:
    """Whether agents of equal shapes are computed as one."""
    return isinstance(config, DiscoverConfig) and config.stacked


def is_one_computation(config: PopulationConfig) -> TypeGuard[DiscoverConfig]:
    """Whether the population is stacked, its environments too. With evolution strategies only the
    lives at one place are: each needs the random numbers of its counterpart, and so an environment
    of its own."""
    return is_stacked(config) and config.meta.meta_optimiser != "es"


def seats(
    config: PopulationConfig, env_of: Sequence[str], seeds: Sequence[int], indices: Sequence[int]
) -> list[SeatMaker | None]:
    """Where each agent's environments come from, if agents in the same game or family share one.

    None for an agent that has an environment of its own.

    Args:
      env_of: each agent's environment, or family.
      seeds: each agent's own.
      indices: whose place in the population each takes; those of other widths are other stacks.
    """
    makers: list[SeatMaker | None] = [None] * len(env_of)
    if not is_one_computation(config):
        return makers
    padding = None
    if config.padded:
        outside = [env for env in env_of if is_external(env)]
        if outside:
            raise DiscorlError(f"--padded: only built-in games can be, and '{outside[0]}' is none")
        padding = common_padding(deal_environments(config.envs, config.agents))
    if config.life.environment.normalize_observations:
        return makers  # Each agent's own moments stand between it and its environment.
    groups = [(env, config.life_of(index)) for env, index in zip(env_of, indices, strict=True)]
    for env, life in dict.fromkeys(groups):
        if is_external(env):
            continue
        agents = [agent for agent, group in enumerate(groups) if group == (env, life)]
        specs = [resolve_environment(env, seeds[agent]) for agent in agents]
        copies, device = life.experience.num_envs, config.run.torch_device
        table = Table(env, specs, copies, seeds[agents[0]], padding, device)
        for place, agent in enumerate(agents):
            makers[agent] = partial(table.source, place)
    return makers


def stacks(members: Sequence[Any], config: PopulationConfig) -> list[list[Any]]:
    """The members that are computed together in the next meta-step."""
    if not is_one_computation(config):
        return [[member] for member in members]
    for member in members:
        member.live_on()  # A newborn may have other shapes.
    in_order = sorted(members, key=lambda member: (member.env_name, member.index))
    return by_shape(in_order, lambda member: member.life)


def meta_step_together(
    members: Sequence[Member], rule: DiscoRule, apart: bool = True
) -> MetaGradient:
    """`Member.meta_step` of each, once none is due to be born again; everything [P, ...].

    Args:
      apart: see `meta_gradient`; if the mean is not finite, they are told apart all the same.
    """
    first = members[0]
    lives = [member.life for member in members]
    config, each = first.config, Each(len(members))
    rollouts = [act_together(lives) for _ in range(config.inner_steps)]
    train = [concatenate(list(map(next_batch, lives, newest))) for newest in rollouts]
    valid = concatenate(act_together(lives, 2 * config.life.experience.rollout_length))
    compute = partial(
        meta_gradient,
        replace(first.life.mind.learner, rule=rule, each=each),
        stack([life.state for life in lives]),
        first.value_function,
        stack([member.value_state for member in members]),
        train,
        valid,
        config.meta_loss,
        config.mode,
    )
    result = compute(apart=apart)
    if not apart and not all(bool(grad[0].isfinite().all()) for grad in result.grads.values()):
        result = compute(apart=True)
    states = unstack(result.state, len(members))
    judges = unstack(result.value_state, len(members))
    for member, state, judge in zip(members, states, judges, strict=True):
        member.become(state, judge)
    return result
