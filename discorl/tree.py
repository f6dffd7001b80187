"""State as a tree: dataclasses, dictionaries and tuples with tensors at the leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def tree_map(function: Callable[[Tensor], Tensor], tree: T) -> T:
    """The same tree with every tensor replaced by `function(tensor)`."""
    mapped: T = _rebuild(tree, lambda _path, leaf: function(leaf), ())
    return mapped


def flatten(tree: Any) -> dict[str, Tensor]:
    """Path -> tensor, like `optimiser/mu/gate.w`; what is not a tensor is left out."""
    leaves: dict[str, Tensor] = {}

    def keep(path: tuple[str, ...], leaf: Tensor) -> Tensor:
        leaves["/".join(path)] = leaf
        return leaf

    _rebuild(tree, keep, ())
    return leaves


def stack(trees: Sequence[T], join: Callable[[list[Tensor]], Tensor] = torch.stack) -> T:
    """One tree from equally built ones, their tensors joined: by default along a new dimension."""
    leaves = [flatten(tree) for tree in trees]
    joined: T = _rebuild(
        trees[0], lambda path, _: join([each["/".join(path)] for each in leaves]), ()
    )
    return joined


def unstack(tree: T, count: int) -> list[T]:
    """The trees that `stack` joined along a new dimension: views of its tensors [count, ...]."""
    parts = {path: leaf.unbind() for path, leaf in flatten(tree).items()}
    return [refill(tree, {path: own[i] for path, own in parts.items()}) for i in range(count)]


def refill(template: T, leaves: dict[str, Tensor]) -> T:
    """A tree like `template` with the tensors of `leaves`, of any shape and type."""
    filled: T = _rebuild(template, lambda path, _: leaves["/".join(path)], ())
    return filled


def unflatten(template: T, leaves: dict[str, Tensor]) -> T:
    """A tree like `template` with the tensors of `leaves`, which must be the same set.

    Raises ValueError, naming the tensor, if one is missing, extra, or of another shape or type
    than the template's.
    """
    unused = set(leaves)

    def take(path: tuple[str, ...], leaf: Tensor) -> Tensor:
        name = "/".join(path)
        if name not in leaves:
            raise ValueError(f"{name}: expected {_describe(leaf)}, found nothing")
        found = leaves[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(f"{name}: expected {_describe(leaf)}, found {_describe(found)}")
        unused.discard(name)
        return found.to(leaf.device)

    tree: T = _rebuild(template, take, ())
    if unused:
        raise ValueError(f"{min(unused)}: expected no such tensor")
    return tree


def _rebuild(tree: Any, visit: Callable[[tuple[str, ...], Tensor], Tensor], path: Any) -> Any:
    if isinstance(tree, Tensor):
        return visit(path, tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        parts = {
            f.name: _rebuild(getattr(tree, f.name), visit, (*path, f.name)) for f in fields(tree)
        }
        return type(tree)(**parts)
    if isinstance(tree, dict):
        return {key: _rebuild(value, visit, (*path, str(key))) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(_rebuild(value, visit, (*path, str(i))) for i, value in enumerate(tree))
    return tree


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def split_groups(leaves: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """`group/rest -> tensor` as group -> rest -> tensor."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in leaves.items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = tensor
    return groups
