"""Derivatives with respect to named tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from discorl.layers import Params


def leaves(tensors: Params) -> dict[str, Tensor]:
    """The same tensors as leaves of a new graph."""
    return {name: t.detach().requires_grad_() for name, t in tensors.items()}


def vector_jacobian(
    results: Params,
    inputs: Params,
    cotangents: Params | None = None,
    create_graph: bool = False,
) -> dict[str, Tensor]:
    """Derivatives of the sum of results times cotangents by the inputs; zero where there is none.

    Args:
      cotangents: by the results' names; may be left out if all results are scalars.
      create_graph: whether the derivatives can be differentiated in turn.
    """
    gradients = torch.autograd.grad(
        list(results.values()),
        list(inputs.values()),
        None if cotangents is None else [cotangents[name] for name in results],
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(inputs, gradients, strict=True))
