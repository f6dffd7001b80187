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
    flat = torch.nn.functional.linear(x.reshape(-1, x.shape[-1]), weight, bias)
    return flat.reshape(*x.shape[:-1], flat.shape[-1])


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell state.

    Written out because the fused cell has no second derivative.

    Args:
      gates: [..., 4 H], the pre-activations of input, candidate, forget and output, in that
        order. The forget gate has a bias of one on top of the learned one.
      cell: [..., H].
    """
    i, g, f, o = gates.chunk(4, dim=-1)
    return _open_gates(
        torch.sigmoid(i), torch.sigmoid(2 * g), torch.sigmoid(f + 1), torch.sigmoid(o), cell
    )


def fold_lstm(weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [in, 4 H] and biases [4 H] of gates for `folded_lstm_cell`."""
    i, g, rest = weights.split([len(biases) // 4, len(biases) // 4, len(biases) // 2], dim=1)
    i_bias, g_bias, f_bias, o_bias = biases.chunk(4)
    return torch.cat([i, 2 * g, rest], dim=1), torch.cat([i_bias, 2 * g_bias, f_bias + 1, o_bias])


def folded_lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """`lstm_cell` with half the operators, for many steps in a row: one sigmoid for all gates,
    whose weights and biases come from `fold_lstm`."""
    i, g, f, o = torch.sigmoid(gates).chunk(4, dim=-1)
    return _open_gates(i, g, f, o, cell)


def _open_gates(i: Tensor, g: Tensor, f: Tensor, o: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell state, where the candidate is tanh(x) = 2 g - 1, g = sigmoid(2 x).

    A sigmoid takes a sixth of a hyperbolic tangent's time. Between -1 and 1, the difference is
    within the rounding of a float's one: 6e-8, and nothing in float64.
    """
    new_cell = torch.addcmul(f * cell, i, torch.rsub(g, 1, alpha=2), value=-1)
    return torch.addcmul(o, o, torch.sigmoid(-2 * new_cell), value=-2), new_cell


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
