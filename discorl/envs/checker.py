"""Is an environment fit to be trained in? Tried out, with advice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from discorl.agents.masks import keep_legal
from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.sources import AnyEnvironment, find_environment
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec, observation_leaves, spec_entries
from discorl.rollout import TimeStep
from discorl.tree import flatten

_COPIES = 4
_STEPS = 500
_REPEATED = 50
"""Steps that are played twice, to see whether a seed fixes them."""
_SECONDS = 4.0
"""Slow environments are played for so long, and no longer."""
_SLOW = 1e-3
"""Seconds a copy's step may take before processes of their own are worth it."""
_LARGE = 10.0
"""Observations or returns beyond this learn better when they are scaled."""
_MASKS = "it tells which actions are legal: --mask-actions keeps to them"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "advice", "problem"]
    text: str


def check_environment(
    env: AnyEnvironment,
    config: EnvironmentConfig | None = None,
    tell: Callable[[Finding], None] | None = None,
) -> list[Finding]:
    """Play random actions in a few copies and say what was found; problems first met end it.

    Args:
      tell: called with each finding as soon as it is made: slow environments take a while.
    """
    findings: list[Finding] = []
    for finding in _look(env, config):
        findings.append(finding)
        if tell is not None:
            tell(finding)
    return findings


def _look(env: AnyEnvironment, config: EnvironmentConfig | None) -> Iterator[Finding]:
    try:
        source = find_environment(env, config=config)
        with closing(source.make(source.num_envs or _COPIES)) as environment:
            yield from _spaces(environment)
            environment.reset(0)
            if getattr(environment, "offers_masks", False):
                yield Finding("advice", _MASKS)
            yield from _seeds(environment)
            yield from _episodes(environment, source.cheap)
    except DiscorlError as error:
        yield Finding("problem", " ".join(str(error).split()))


def _spaces(env: Environment) -> list[Finding]:
    entries = ", ".join(
        f"{name}: {_describe(entry)}" for name, entry in spec_entries(env.observation_spec).items()
    )
    return [Finding("ok", f"{env.num_actions} actions; {entries}")]


def _describe(spec: ArraySpec) -> str:
    kind = "image" if spec.is_image else "array"
    return f"{kind} of {spec}"


def _seeds(env: Environment) -> list[Finding]:
    """The same seed must give the same episodes, another seed others."""
    first = _play(env, 0, _REPEATED, _SECONDS)
    again, other = (_play(env, seed, len(first) - 1) for seed in (0, 1))
    if not _same(first, again):
        return [
            Finding(
                "problem",
                "the same seed gives different episodes: draw every random number from "
                "self.np_random, which reset(seed=...) seeds",
            )
        ]
    if _same(first, other):
        return [Finding("ok", "every seed gives the same episodes: it is deterministic")]
    return [Finding("ok", "a seed fixes the episodes, and other seeds give others")]


def _episodes(env: Environment, cheap: bool) -> list[Finding]:
    started = time.perf_counter()
    steps = _play(env, 2, _STEPS, _SECONDS)
    total = (len(steps) - 1) * env.num_envs
    seconds = (time.perf_counter() - started) / total
    ended = int(sum(step.ended.sum() for step in steps))
    cut = int(sum(s.truncated.sum() for s in steps if s.truncated is not None))
    findings = [_endings(env, ended, cut, total), *_scales(steps)]
    speed = f"{1 / max(seconds, 1e-9):,.0f} steps per second in each copy"
    if seconds > _SLOW and not cheap:
        findings.append(Finding("advice", f"{speed}: give each copy a process, --env-workers"))
    else:
        findings.append(Finding("ok", speed))
    return findings


def _endings(env: Environment, ended: int, cut: int, total: int) -> Finding:
    limit = getattr(env, "max_episode_steps", None)
    if ended:
        return Finding(
            "ok", f"{ended} episodes ended in {total:,} random steps, {cut} of them cut off"
        )
    if limit is None:
        return Finding(
            "advice",
            f"no episode ended in {total:,} random steps, and there is no time limit: register it "
            "with max_episode_steps, or wrap it in gymnasium.wrappers.TimeLimit",
        )
    return Finding("ok", f"no episode ended in {total:,} random steps; the limit is {limit:,}")


def _scales(steps: list[TimeStep]) -> list[Finding]:
    findings = []
    rewards = torch.stack([step.reward for step in steps[1:]]).double()
    if not rewards.any():
        findings.append(
            Finding("advice", "random play earned no reward at all: they will be hard to find")
        )
    elif rewards.abs().max() > _LARGE:
        findings.append(
            Finding("advice", f"rewards up to {rewards.abs().max():.3g}: try --shrink-rewards")
        )
    else:
        findings.append(Finding("ok", f"rewards from {rewards.min():.3g} to {rewards.max():.3g}"))
    for name in observation_leaves(steps[0].observation):
        leaves = [observation_leaves(step.observation)[name] for step in steps]
        if leaves[0].is_floating_point():
            largest = float(torch.stack(leaves).abs().max())
            if largest > _LARGE:
                findings.append(
                    Finding("advice", f"{name} up to {largest:.3g}: try --normalize-observations")
                )
    return findings


@torch.no_grad()
def _play(env: Environment, seed: int, count: int, seconds: float = math.inf) -> list[TimeStep]:
    """So many steps of random legal actions, the same for a seed; fewer when the time is up."""
    end = time.perf_counter() + seconds
    generator = torch.Generator().manual_seed(seed + 1)
    uniform = torch.zeros(env.num_envs, env.num_actions)
    step = env.reset(seed)
    steps = [step]
    for _ in range(count):
        policy: Tensor = keep_legal(uniform, step.observation).softmax(dim=-1)
        step = env.step(policy.multinomial(1, generator=generator)[:, 0])
        steps.append(step)
        if time.perf_counter() > end:
            break
    return steps


def _same(first: list[TimeStep], second: list[TimeStep]) -> bool:
    return all(
        torch.equal(leaf, flatten(b)[name])
        for a, b in zip(first, second, strict=True)
        for name, leaf in flatten(a).items()
        if name in flatten(b)
    )
