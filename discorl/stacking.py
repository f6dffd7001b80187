"""Many agents as one computation: what is written for one agent, done for all of a stack at once.

Agents whose networks agree in shape can be stacked: their parameters, and all else that each has
of its own, are [P, ...]; their experience is one rollout of P x B trajectories. A function of one
agent, mapped over the stack, runs each operation once for all of them, where a loop over the agents
would run it P times: with small networks the calls cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from discorl.layers import Params
from discorl.rollout import Rollout
from discorl.tree import flatten, refill

T = TypeVar("T")


@dataclass(frozen=True)
class Each:
    """Calls functions of one agent, for one agent or for all of a stack.

    Gradients pass through; but what is called must not take gradients itself.
    """

    agents: int | None = None
    """P; None is an agent alone, whose tensors have no dimension for agents."""

    def __call__(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function of one agent's trees of tensors, mapped over the stack.

        Tensors of its arguments are [P, ...], except those of rollouts, which are [L, P x B, ...];
        those of the result are [P, ...].
        """
        return function if self.agents is None else self._mapped(function)

    def _mapped(self, function: Callable[..., T]) -> Callable[..., T]:
        def call(*trees: Any) -> T:
            leaves = [self._leaves(tree) for tree in trees]
            # Flat, because what `vmap` spends on trees would be most of the time of acting.
            dims = [_agents_dim(tree) for own, tree in zip(leaves, trees, strict=True) for _ in own]
            result: list[T] = []

            def one(*tensors: Tensor) -> tuple[Tensor, ...]:
                rest = iter(tensors)
                own = [{name: next(rest) for name in names} for names in leaves]
                result[:] = [function(*map(refill, trees, own))]
                return tuple(flatten(result[0]).values())

            flat = [tensor for own in leaves for tensor in own.values()]
            joined = torch.vmap(one, in_dims=tuple(dims))(*flat)
            names = flatten(result[0])
            return refill(result[0], dict(zip(names, joined, strict=True)))

        return call

    def _leaves(self, tree: Any) -> dict[str, Tensor]:
        leaves = flatten(tree)
        if not isinstance(tree, Rollout):
            return leaves
        agents = self.agents
        return {name: leaf.unflatten(1, (agents, -1)) for name, leaf in leaves.items()}

    def copies(self, tensors: Params) -> Params:
        """What agents share, as each agent's own: [P, ...]. An agent alone has it as it is."""
        if self.agents is None:
            return tensors
        return {name: t.expand(self.agents, *t.shape).clone() for name, t in tensors.items()}


def _agents_dim(tree: Any) -> int:
    return 1 if isinstance(tree, Rollout) else 0


ALONE = Each()
"""One agent, and no stack."""
