"""Checks of shapes and types that a caller can get wrong; the errors name the argument."""

from __future__ import annotations

import torch
from torch import Tensor


def check_shape(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raise ValueError, naming the argument, unless the tensor is there and has the shape."""
    found = "nothing" if tensor is None else list(tensor.shape)
    if tensor is None or tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: expected {list(shape)}, got {found}")


def check_prefix(
    name: str, tensor: Tensor, prefix: tuple[int, ...], dims: int | None = None
) -> None:
    """Raise ValueError unless the shape begins with `prefix`, and has `dims` dimensions, if any."""
    if tuple(tensor.shape[: len(prefix)]) != prefix or (dims and tensor.dim() != dims):
        wanted = [*prefix, "A"] if dims else [*prefix, "..."]
        raise ValueError(f"{name}: expected {wanted}, got {list(tensor.shape)}")


def check_integers(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless the tensor holds integers."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: expected integers, got {tensor.dtype}")
