"""A ring of trajectories in preallocated tensors.

Only what a learner needs is kept: observations in their own type, actions, rewards, discounts
and the behaviour's logits. A discovered rule's other outputs are recomputed, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.rollout import Observation, Rollout
from discorl.tree import flatten, tree_map, unflatten


@dataclass(frozen=True)
class ReplaySpec:
    """What one stored step looks like."""

    observation_shape: tuple[int, ...]
    observation_dtype: torch.dtype
    num_actions: int
    reward_dtype: torch.dtype = torch.float32

    def bytes_per_step(self) -> int:
        """Memory of one step of one trajectory."""
        observation = torch.Size(self.observation_shape).numel() * self.observation_dtype.itemsize
        floats = (2 + self.num_actions) * self.reward_dtype.itemsize
        return observation + floats + torch.int64.itemsize


class Replay:
    """First in, first out; sampled uniformly with replacement."""

    def __init__(
        self,
        capacity: int,
        length: int,
        spec: ReplaySpec,
        device: torch.device | str = "cpu",
    ) -> None:
        """Take the memory for `capacity` trajectories of `length` steps at once."""
        if capacity < 1 or length < 2:
            raise ValueError(
                f"replay: expected capacity >= 1 and length >= 2, got {capacity} and {length}"
            )
        self.capacity = capacity
        self.length = length
        self.spec = spec
        self.size = 0
        self._next = 0
        prefix = (length, capacity)

        def floats(*shape: int) -> Tensor:
            return torch.zeros(*prefix, *shape, dtype=spec.reward_dtype, device=device)

        self._data = Rollout(
            observations=torch.zeros(
                *prefix, *spec.observation_shape, dtype=spec.observation_dtype, device=device
            ),
            actions=torch.zeros(*prefix, dtype=torch.int64, device=device),
            rewards=floats(),
            discounts=floats(),
            logits=floats(spec.num_actions),
        )

    @staticmethod
    def memory(capacity: int, length: int, spec: ReplaySpec) -> int:
        """Bytes that such a replay takes."""
        return capacity * length * spec.bytes_per_step()

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
        given = flatten(rollout)
        for name, tensor in given.items():
            if tensor.shape[2:] != stored[name].shape[2:]:
                raise ValueError(
                    f"{name}: expected steps of shape {list(stored[name].shape[2:])}, "
                    f"got {list(tensor.shape[2:])}"
                )
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
        return tree_map(lambda stored: stored.index_select(1, index), self._data)

    def state_dict(self) -> dict[str, Tensor]:
        """The stored trajectories and the ring's position."""
        filled = tree_map(
            lambda stored: stored[:, : self.size].clone(memory_format=torch.contiguous_format),
            self._data,
        )
        return {**flatten(filled), "position": torch.tensor([self.size, self._next])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state_dict` gave."""
        state = dict(state)
        self.size, self._next = (int(n) for n in state.pop("position"))
        filled = unflatten(tree_map(lambda stored: stored[:, : self.size], self._data), state)
        stored = flatten(self._data)
        for name, tensor in flatten(filled).items():
            stored[name][:, : self.size] = tensor


def first_trajectories(rollout: Rollout, count: int) -> Rollout:
    """The first `count` trajectories of a rollout."""
    return tree_map(lambda t: t[:, :count], rollout)


def concatenate(rollouts: list[Rollout]) -> Rollout:
    """Trajectories of equally long rollouts side by side: [L, B1 + B2 + ..., ...]."""

    def join(name: str) -> Tensor:
        return torch.cat([getattr(r, name) for r in rollouts], dim=1)

    observations: Observation
    if isinstance(rollouts[0].observations, Tensor):
        observations = join("observations")
    else:
        observations = {
            key: torch.cat([r.observations[key] for r in rollouts], dim=1)  # type: ignore[index]
            for key in rollouts[0].observations
        }
    return Rollout(
        observations=observations,
        actions=join("actions"),
        rewards=join("rewards"),
        discounts=join("discounts"),
        logits=join("logits"),
    )
