"""Layers as functions of a dictionary of tensors, differentiable any number of times.

A layer called `name` owns `name.w` [in, out] and `name.b` [out].
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Params = Mapping[str, Tensor]


def linear(params: Params, name: str, x: Tensor) -> Tensor:
    """[..., in] -> [..., out]."""
    return affine(x, params[f"{name}.w"].t(), params[f"{name}.b"])


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[..., in] -> [..., out], with weights [out, in] as in `nn.Linear`.

    As one product of two matrices: mapped over a stack of agents with weights of their own, it is
    one product for each agent, where more dimensions would make it one for each step.
    """
    if x.dim() <= 2:
        return torch.nn.functional.linear(x, weight, bias)
    flat = torch.nn.functional.linear(x.flatten(0, -2), weight, bias)
    result: Tensor = flat.unflatten(0, x.shape[:-1])
    return result


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell state.

    Written out because the fused cell has no second derivative.

    Args:
      gates: [..., 4 H], the pre-activations of input, candidate, forget and output, in that
        order. The forget gate has a bias of one on top of the learned one.
      cell: [..., H].
    """
    i, g, f, o = gates.chunk(4, dim=-1)
    new_cell = torch.sigmoid(f + 1) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(new_cell), new_cell


def truncated_normal(shape: tuple[int, ...], std: float, generator: torch.Generator) -> Tensor:
    """Normal numbers times `std`, redrawn outside two standard deviations."""
    tensor = torch.empty(shape, device=generator.device)
    return torch.nn.init.trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std, generator=generator)


def initial_linear(
    fan_in: int, fan_out: int, generator: torch.Generator, std: float | None = None
) -> tuple[Tensor, Tensor]:
    """Weights [in, out] with deviation `std`, by default 1 / sqrt(fan_in), and zero biases."""
    weights = truncated_normal((fan_in, fan_out), std or fan_in**-0.5, generator)
    return weights, torch.zeros(fan_out, device=generator.device)
