"""Normalised observations: running means and variances, which travel with the checkpoint."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from discorl.envs.base import Environment
from discorl.envs.outcomes import Outcomes, Telling
from discorl.group import Group
from discorl.observations import (
    ACTION_MASK,
    ArraySpec,
    Observation,
    ObservationSpec,
    observation_leaves,
)
from discorl.rollout import TimeStep
from discorl.tree import unflatten

_EPSILON = 1e-8
_LARGEST = 10.0
_PREFIX = "normalizer/"


class RunningMoments:
    """Mean and variance of every number in the float observations seen so far, in float64."""

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}
        """`entry/count`, `entry/mean` and `entry/squares`, the sum of squared deviations."""

    def update(self, observation: Observation) -> None:
        """Take in a batch [B, ...]."""
        for name, leaf in observation_leaves(observation).items():
            if _is_scaled(name, leaf.dtype):
                self._update(name, leaf.double())

    def normalize(self, observation: Observation) -> Observation:
        """Float entries [B, ...] with mean 0 and variance 1, as float32; others as they are."""
        if isinstance(observation, Tensor):
            (leaf,) = observation_leaves(observation).items()
            return self._normalize(*leaf)
        return {name: self._normalize(name, leaf) for name, leaf in observation.items()}

    def mean(self, name: str = "observations") -> Tensor:
        """The mean of an entry, in float64."""
        return self._state[f"{name}/mean"]

    def deviation(self, name: str = "observations") -> Tensor:
        """The standard deviation of an entry, in float64."""
        count, squares = self._state[f"{name}/count"], self._state[f"{name}/squares"]
        return (squares / count).sqrt()

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of everything it knows."""
        return {name: tensor.clone() for name, tensor in self._state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned."""
        state = unflatten(self._state, state) if self._state else state
        self._state = {name: tensor.clone() for name, tensor in state.items()}

    def share(self) -> None:
        """Hear what other processes have seen: here there are none."""

    def _update(self, name: str, batch: Tensor) -> None:
        center = batch.mean(0)
        self._merge(name, len(batch), center, (batch - center).square().sum(0))

    def _merge(self, name: str, number: Tensor | int, center: Tensor, within: Tensor) -> None:
        """Take in the count, mean and squares of others."""
        count, mean, squares = self._moments(name, center)
        total = count + number
        shift = center - mean
        between = shift.square() * (count * number / total)
        self._state[f"{name}/count"] = total
        self._state[f"{name}/mean"] = mean + shift * (number / total)
        self._state[f"{name}/squares"] = squares + within + between

    def _moments(self, name: str, leaf: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Count, mean and squares on the leaf's device; zeros if nothing was seen yet."""
        if f"{name}/count" not in self._state:
            zeros = torch.zeros(leaf.shape, dtype=torch.float64, device=leaf.device)
            return zeros.new_zeros(()), zeros, zeros
        parts = (self._state[f"{name}/{part}"] for part in ("count", "mean", "squares"))
        count, mean, squares = (part.to(leaf.device) for part in parts)
        return count, mean, squares

    def _normalize(self, name: str, leaf: Tensor) -> Tensor:
        if not _is_scaled(name, leaf.dtype):
            return leaf
        count, mean, squares = self._moments(name, leaf[0])
        # Before anything is seen, the variance counts as one.
        variance = torch.where(count > 0, squares / count.clamp(min=1), 1.0)
        scaled = (leaf.double() - mean) / (variance + _EPSILON).sqrt()
        return scaled.clamp(-_LARGEST, _LARGEST).float()


class SharedMoments(RunningMoments):
    """Of what all processes of a group have seen. Each takes in its own at once, and what the
    others have seen when all call `share`."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group
        self._common: dict[str, Tensor] = {}
        """The state when it was shared last."""
        self._news = RunningMoments()
        """What this process has seen since then."""

    def update(self, observation: Observation) -> None:
        """See `RunningMoments.update`."""
        super().update(observation)
        self._news.update(observation)

    def share(self) -> None:
        """See `RunningMoments.share`."""
        news = self._news.state_dict()
        every = self._group.exchange({name: tensor.cpu() for name, tensor in news.items()})
        self._state = dict(self._common)
        for part in every:
            for name in sorted({name.rpartition("/")[0] for name in part}):
                device = news[f"{name}/mean"].device
                own = (part[f"{name}/{key}"].to(device) for key in ("count", "mean", "squares"))
                self._merge(name, *own)
        self._settle()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `RunningMoments.load_state_dict`: all processes load the same."""
        super().load_state_dict(state)
        self._settle()

    def _settle(self) -> None:
        self._common, self._news = dict(self._state), RunningMoments()


class NormalizedEnvironment:
    """An environment whose float observations are shifted and scaled by what was seen so far.

    Bytes, such as images, are left alone. With the moments of another environment and
    `frozen=True` it shows what an agent trained there would see, and counts nothing, as
    evaluations need.
    """

    def __init__(
        self, env: Environment, moments: RunningMoments | None = None, frozen: bool = False
    ) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.num_actions = env.num_actions
        self.max_episode_steps: int | None = getattr(env, "max_episode_steps", None)
        self.frozen = frozen
        self.observation_spec: ObservationSpec = _normalized_spec(env.observation_spec)
        self.moments = RunningMoments() if moments is None else moments

    @property
    def outcomes(self) -> Outcomes:
        """What its episodes came to, where the environment tells it."""
        return self.env.outcomes if isinstance(self.env, Telling) else Outcomes(self.num_envs)

    @property
    def offers_masks(self) -> bool:
        """Whether legal actions are told, but not in what agents see."""
        return bool(getattr(self.env, "offers_masks", False))

    def reset(self, seed: int) -> TimeStep:
        """See `Environment.reset`."""
        return self._normalize(self.env.reset(seed))

    def step(self, actions: Tensor) -> TimeStep:
        """See `Environment.step`."""
        return self._normalize(self.env.step(actions))

    def state_dict(self) -> dict[str, Tensor]:
        """See `Environment.state_dict`: the environment's own, and `normalizer/...`."""
        moments = {f"{_PREFIX}{k}": tensor for k, tensor in self.moments.state_dict().items()}
        return {**self.env.state_dict(), **moments}

    def load_state_dict(self, state: dict[str, Tensor]) -> TimeStep | None:
        """See `Environment.load_state_dict`."""
        moments = {k.removeprefix(_PREFIX): v for k, v in state.items() if k.startswith(_PREFIX)}
        self.moments.load_state_dict(moments)
        rest = {k: v for k, v in state.items() if not k.startswith(_PREFIX)}
        step = self.env.load_state_dict(rest)
        return None if step is None else self._normalize(step)

    def close(self) -> None:
        """See `Environment.close`."""
        self.env.close()

    def _normalize(self, step: TimeStep) -> TimeStep:
        if not self.frozen:
            self.moments.update(step.observation)
        last = None if step.last is None else self.moments.normalize(step.last)
        return replace(step, observation=self.moments.normalize(step.observation), last=last)


def _is_scaled(name: str, dtype: torch.dtype) -> bool:
    """Whether an entry is normalised: floats are, but not those that say what is legal."""
    return dtype.is_floating_point and name != ACTION_MASK


def _normalized_spec(spec: ObservationSpec) -> ObservationSpec:
    if isinstance(spec, ArraySpec):
        return _normalized_array("", spec)
    return {name: _normalized_array(name, entry) for name, entry in spec.items()}


def _normalized_array(name: str, spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape) if _is_scaled(name, spec.dtype) else spec
