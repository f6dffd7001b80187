"""A ring of trajectories in preallocated tensors.

Only what a learner needs is kept: observations in their own type, every frame of a stack once,
actions, rewards, discounts and the behaviour's logits. A discovered rule's other outputs are
recomputed, never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from discorl.frames import FrameRing
from discorl.group import Group
from discorl.observations import (
    ArraySpec,
    Observation,
    ObservationSpec,
    observation_leaves,
    spec_entries,
)
from discorl.rollout import Rollout
from discorl.tree import flatten, stack, tree_map, unflatten

_FRAMES = "frames/"


@dataclass(frozen=True)
class ReplaySpec:
    """What one stored step looks like."""

    observation: ObservationSpec
    num_actions: int
    reward_dtype: torch.dtype = torch.float32
    final: bool = False
    """Whether steps are marked as an episode's last: see `Rollout.final`."""
    memory: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """What the agent remembers before a trajectory: name -> shape."""

    @classmethod
    def of(cls, rollout: Rollout, reward_dtype: torch.dtype) -> ReplaySpec:
        """What a rollout's steps look like."""

        def spec(leaf: Tensor) -> ArraySpec:
            return ArraySpec(tuple(leaf.shape[2:]), leaf.dtype)

        leaves = {k: spec(v) for k, v in observation_leaves(rollout.observations).items()}
        plain = isinstance(rollout.observations, Tensor)
        observation = leaves["observations"] if plain else leaves
        return cls(observation, rollout.num_actions, reward_dtype, rollout.final is not None)

    def for_rollouts(self, length: int) -> ReplaySpec:
        """The same without stacks of frames that reach back further than one rollout."""

        def whole(entry: ArraySpec) -> ArraySpec:
            return entry if entry.stack <= length + 1 else replace(entry, stack=1)

        if isinstance(self.observation, ArraySpec):
            return replace(self, observation=whole(self.observation))
        return replace(self, observation={k: whole(v) for k, v in self.observation.items()})

    def bytes_per_step(self) -> int:
        """Memory of one step of one trajectory, apart from the agent's memory."""
        specs = spec_entries(self.observation).values()
        observation = sum(spec.bytes() // spec.stack + spec.stack - 1 for spec in specs)
        floats = (2 + self.num_actions) * self.reward_dtype.itemsize
        return observation + floats + torch.int64.itemsize + self.final

    def bytes_per_trajectory(self, length: int) -> int:
        """Memory of a trajectory."""
        memory = sum(torch.Size(shape).numel() for shape in self.memory.values())
        return length * self.bytes_per_step() + memory * self.reward_dtype.itemsize


class Replay:
    """First in, first out; sampled uniformly with replacement."""

    def __init__(
        self,
        capacity: int,
        length: int,
        spec: ReplaySpec,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate the memory for `capacity` trajectories of `length` steps at once."""
        if capacity < 1 or length < 2:
            raise ValueError(
                f"replay: expected capacity >= 1 and length >= 2, got {capacity} and {length}"
            )
        self.capacity = capacity
        self.length = length
        self.spec = spec = spec.for_rollouts(length)
        self.size = 0
        self._next = 0
        self._data = _allocate(capacity, length, spec, device)
        self._frames = {
            name: FrameRing(observation_leaves(self._data.observations)[name], entry.stack)
            for name, entry in spec_entries(spec.observation).items()
            if entry.stack > 1
        }
        """Of the observations, or the entries of them, that are stacks."""

    def memory(self) -> int:
        """Bytes that it takes."""
        return self.capacity * self.spec.bytes_per_trajectory(self.length)

    def add(self, rollout: Rollout) -> None:
        """Store the B trajectories of a rollout over the oldest ones."""
        stored = flatten(self._data)
        batch = rollout.actions.shape[1]
        if rollout.actions.shape[0] != self.length or batch > self.capacity:
            raise ValueError(
                f"rollout: expected {self.length} steps of at most {self.capacity} trajectories, "
                f"got {list(rollout.actions.shape)}"
            )
        slots = (torch.arange(batch, device=rollout.actions.device) + self._next) % self.capacity
        given = flatten(self._unstacked(rollout))
        for name in sorted({*stored, *given}):
            _check_stored(name, stored.get(name), given.get(name))
        for name, tensor in given.items():
            stored[name].index_copy_(1, slots, tensor.to(stored[name].dtype))
        self._next = (self._next + batch) % self.capacity
        self.size = min(self.size + batch, self.capacity)

    def sample(self, batch: int, generator: torch.Generator) -> Rollout:
        """`batch` stored trajectories, each drawn from all: [L, batch, ...]."""
        if self.size == 0:
            raise ValueError("replay: nothing is stored yet")
        index = torch.randint(self.size, (batch,), generator=generator, device=generator.device).to(
            self._data.actions.device
        )
        return self.read(index)

    def oldest_first(self) -> Tensor:
        """The places [N] of all stored trajectories, in the order in which they came."""
        start = self._next if self.size == self.capacity else 0
        return (torch.arange(self.size, device=self._data.actions.device) + start) % self.capacity

    def read(self, index: Tensor) -> Rollout:
        """The trajectories at these places [N]: [L, N, ...]."""
        if not self._frames:
            return tree_map(lambda stored: stored.index_select(1, index), self._data)
        observations = {
            name: self._frames[name].stacks(index)
            if name in self._frames
            else stored.index_select(1, index)
            for name, stored in observation_leaves(self._data.observations).items()
        }
        rest = tree_map(
            lambda stored: stored.index_select(1, index), replace(self._data, observations={})
        )
        return replace(rest, observations=self._as_observation(observations))

    def state_dict(self) -> dict[str, Tensor]:
        """The stored trajectories and the ring's position."""
        filled = tree_map(
            lambda stored: stored[:, : self.size].clone(memory_format=torch.contiguous_format),
            self._data,
        )
        frames = {
            f"{_FRAMES}{name}/{key}": tensor
            for name, ring in self._frames.items()
            for key, tensor in ring.state_dict().items()
        }
        return {**flatten(filled), **frames, "position": torch.tensor([self.size, self._next])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from what `state_dict` returned."""
        state = dict(state)
        self.size, self._next = (int(n) for n in state.pop("position"))
        for name, ring in self._frames.items():
            prefix = f"{_FRAMES}{name}/"
            own = [key for key in state if key.startswith(prefix)]
            ring.load_state_dict({key.removeprefix(prefix): state.pop(key) for key in own})
        filled = unflatten(tree_map(lambda stored: stored[:, : self.size], self._data), state)
        stored = flatten(self._data)
        for name, tensor in flatten(filled).items():
            stored[name][:, : self.size] = tensor

    def _unstacked(self, rollout: Rollout) -> Rollout:
        """The rollout with the newest frames alone, where observations are stacks."""
        if not self._frames:
            return rollout
        leaves = {
            name: self._frames[name].add(leaf) if name in self._frames else leaf
            for name, leaf in observation_leaves(rollout.observations).items()
        }
        return replace(rollout, observations=self._as_observation(leaves))

    def _as_observation(self, leaves: dict[str, Tensor]) -> Observation:
        plain = isinstance(self.spec.observation, ArraySpec)
        return leaves["observations"] if plain else leaves


def first_trajectories(rollout: Rollout, count: int) -> Rollout:
    """The first `count` trajectories of a rollout."""
    return tree_map(lambda t: t[:, :count], rollout)


def concatenate(rollouts: list[Rollout]) -> Rollout:
    """Trajectories of equally long rollouts side by side: [L, B1 + B2 + ..., ...]."""
    return stack(rollouts, lambda parts: torch.cat(parts, dim=1))


def deal_out(old: Sequence[Replay], new: Replay, group: Group, batch: int) -> None:
    """Store what several replays hold in others, one in each process of a group, oldest first.

    Each process gets equally many; a few of the oldest are left out if the numbers do not fit.

    Args:
      new: this process's, which is empty.
      batch: trajectories in each of its rollouts.
    """
    orders = [replay.oldest_first() for replay in old]
    count = len(old) * min(len(order) for order in orders)
    own = range(group.rank, count, group.size)
    kept = count // group.size // batch * batch
    own = own[len(own) - kept :]
    for start in range(0, kept, batch):
        parts = [
            old[n % len(old)].read(orders[n % len(old)][n // len(old)].unsqueeze(0))
            for n in own[start : start + batch]
        ]
        new.add(concatenate(parts))


def _allocate(capacity: int, length: int, spec: ReplaySpec, device: torch.device | str) -> Rollout:
    def zeros(shape: tuple[int, ...], dtype: torch.dtype, steps: int = length) -> Tensor:
        return torch.zeros(steps, capacity, *shape, dtype=dtype, device=device)

    def frames(entry: ArraySpec) -> Tensor:
        return zeros(entry.shape[1:] if entry.stack > 1 else entry.shape, entry.dtype)

    observations: Observation
    if isinstance(spec.observation, ArraySpec):
        observations = frames(spec.observation)
    else:
        observations = {name: frames(entry) for name, entry in spec.observation.items()}
    memory = {k: zeros(shape, spec.reward_dtype, steps=1) for k, shape in spec.memory.items()}
    return Rollout(
        observations=observations,
        actions=zeros((), torch.int64),
        rewards=zeros((), spec.reward_dtype),
        discounts=zeros((), spec.reward_dtype),
        logits=zeros((spec.num_actions,), spec.reward_dtype),
        final=zeros((), torch.bool) if spec.final else None,
        memory=memory or None,
    )


def _check_stored(name: str, stored: Tensor | None, given: Tensor | None) -> None:
    if stored is None or given is None:
        raise ValueError(f"{name}: " + ("missing" if given is None else "no room was made for it"))
    if given.shape[2:] != stored.shape[2:]:
        raise ValueError(
            f"{name}: expected steps of shape {list(stored.shape[2:])}, got {list(given.shape[2:])}"
        )
