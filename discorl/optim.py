"""Functional clipped Adam: explicit state, differentiable, one step at a time.

Adam (Kingma & Ba, 2015), then each element of the scaled step is clipped, then multiplied by
the learning rate. When gradients of an update are taken, the second-moment denominator counts
as a constant: its derivative is large and noisy where the moment is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from discorl.layers import Params


@dataclass(frozen=True)
class AdamState:
    """Moments of the gradients, by parameter name, and how many there were."""

    count: Tensor
    """[] int64."""
    first: dict[str, Tensor]
    second: dict[str, Tensor]


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a function of the step."""

    learning_rate: float
    fall_steps: int | None = None
    """Fall to `final_fraction` of the learning rate over this many steps; None never falls."""
    final_fraction: float = 0.0
    shape: Literal["cosine", "linear"] = "cosine"
    """Along which curve it falls."""
    warmup_steps: int = 0
    """Rise to the learning rate over this many steps first, in a straight line."""

    def __call__(self, count: Tensor) -> Tensor | float:
        """The learning rate after `count` [] earlier updates."""
        rate: Tensor | float = self.learning_rate
        if self.fall_steps is not None:
            progress = (count / self.fall_steps).clamp(max=1)
            fraction = 1 - progress
            if self.shape == "cosine":
                fraction = 0.5 * (1 + torch.cos(math.pi * progress))
            rate = rate * (self.final_fraction + (1 - self.final_fraction) * fraction)
        if self.warmup_steps:
            rate = rate * ((count + 1) / self.warmup_steps).clamp(max=1)
        return rate


@dataclass(frozen=True)
class ClippedAdam:
    """Adam whose scaled step is clipped element by element."""

    schedule: Schedule
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    max_step: float = 1.0
    """No element of the step exceeds this, before the learning rate."""
    weight_decay: float = 0.0
    """Decoupled (Loshchilov & Hutter, 2019): of every parameter, times the learning rate."""

    def init(self, params: Params) -> AdamState:
        """No moments yet."""
        return AdamState(
            count=torch.zeros((), dtype=torch.int64, device=next(iter(params.values())).device),
            first={name: torch.zeros_like(p) for name, p in params.items()},
            second={name: torch.zeros_like(p) for name, p in params.items()},
        )

    def update(
        self, grads: Params, state: AdamState, params: Params
    ) -> tuple[dict[str, Tensor], AdamState]:
        """What to add to each parameter, and the new state."""
        count = state.count + 1
        learning_rate = self.schedule(state.count)
        dtype = next(iter(grads.values())).dtype
        # Both moments start at zero; their corrections meet in the denominator.
        first_correction = 1 - self.beta1 ** count.to(dtype)
        scale = first_correction * torch.rsqrt(1 - self.beta2 ** count.to(dtype))
        eps = first_correction * self.eps
        gradients = list(grads.values())
        first = for_each("lerp", gradients, [state.first[name] for name in grads], self.beta1)
        with torch.no_grad():
            second = for_each("mul", [state.second[name] for name in grads], self.beta2)
            second = for_each("addcmul", second, gradients, gradients, value=1 - self.beta2)
            denominators = for_each("mul", for_each("sqrt", second), scale)
            denominators = for_each("add", denominators, eps)
        steps = for_each("clamp_min", for_each("div", first, denominators), -self.max_step)
        steps = for_each("clamp_max", steps, self.max_step)
        updates = for_each("mul", steps, -learning_rate)
        if self.weight_decay:
            decays = for_each(
                "mul", [params[name] for name in grads], learning_rate * self.weight_decay
            )
            updates = for_each("sub", updates, decays)
        return _named(grads, updates), AdamState(count, _named(grads, first), _named(grads, second))


def apply_updates(params: Params, updates: Params) -> dict[str, Tensor]:
    """Parameters plus updates."""
    added = for_each("add", list(params.values()), [updates[name] for name in params])
    return _named(params, added)


def global_norm(tensors: Params) -> Tensor:
    """The Euclidean norm of all elements together: []."""
    every = list(tensors.values())
    if _one_by_one(every):
        norms = [torch.linalg.vector_norm(tensor) for tensor in every]
    else:
        norms = list(torch._foreach_norm(every))
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def for_each(operation: str, tensors: list[Tensor], *others: Any, **options: Any) -> list[Tensor]:
    """`torch.<operation>` of every tensor, in one call where there can be one.

    Args:
      others: further operands: a list with one for every tensor, or one for all.
    """
    if not _one_by_one(tensors):
        # A single tensor would be read back from its device; the same one in a list is not.
        rows = [[x] * len(tensors) if isinstance(x, Tensor) else x for x in others]
        return list(getattr(torch, f"_foreach_{operation}")(tensors, *rows, **options))
    function = getattr(torch, operation)
    columns = [other if isinstance(other, list) else [other] * len(tensors) for other in others]
    return [function(*row, **options) for row in zip(tensors, *columns, strict=True)]


def _one_by_one(tensors: list[Tensor]) -> bool:
    """Whether operations on lists do not exist (under `vmap`) or gain nothing (compiled)."""
    return torch.compiler.is_compiling() or is_batchedtensor(tensors[0])


def _named(names: Params, tensors: list[Tensor]) -> dict[str, Tensor]:
    return dict(zip(names, tensors, strict=True))
