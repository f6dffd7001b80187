"""State as a tree: there and back, and errors that name the tensor."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from discorl.tree import flatten, stack, tree_map, unflatten


@dataclass(frozen=True)
class Inner:
    count: Tensor
    table: dict[str, Tensor]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    pair: tuple[Tensor, Tensor]
    name: str = "kept"
    nothing: Tensor | None = None


def example():
    return Outer(
        Inner(torch.tensor(3), {"gate.w": torch.ones(2, 3), "b": torch.zeros(3)}),
        (torch.arange(2), torch.tensor([True, False])),
    )


def test_paths_and_values():
    leaves = flatten(example())
    assert list(leaves) == [
        "inner/count",
        "inner/table/gate.w",
        "inner/table/b",
        "pair/0",
        "pair/1",
    ]
    assert leaves["pair/0"].tolist() == [0, 1]


def test_round_trip_keeps_structure_and_what_is_not_a_tensor():
    tree = example()
    other = {name: tensor.clone() for name, tensor in flatten(tree).items()}
    other["pair/0"] = torch.tensor([7, 8])
    back = unflatten(replace(tree, name="from the template"), other)
    assert isinstance(back, Outer)
    assert isinstance(back.pair, tuple)
    assert (back.name, back.nothing) == ("from the template", None)
    assert back.pair[0].tolist() == [7, 8]
    assert tree.pair[0].tolist() == [0, 1]
    assert back.inner.count.shape == ()


_tensors = st.builds(
    lambda shape, dtype: torch.zeros(shape, dtype=dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]),
)
_trees = st.recursive(
    _tensors,
    lambda inner: st.one_of(
        st.dictionaries(st.text("abc.", min_size=1, max_size=3), inner, max_size=3),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Inner, count=_tensors, table=st.dictionaries(st.sampled_from("xy"), inner)),
    ),
    max_leaves=8,
)


@given(tree=_trees)
@settings(max_examples=60, deadline=None)
def test_any_tree_round_trips(tree):
    leaves = {name: torch.ones_like(tensor) for name, tensor in flatten(tree).items()}
    back = flatten(unflatten(tree, leaves))
    assert list(back) == list(leaves)
    for name, tensor in leaves.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_map_changes_tensors_only():
    tree = tree_map(lambda t: t + 1 if t.dtype != torch.bool else ~t, example())
    assert tree.inner.count.item() == 4
    assert tree.pair[1].tolist() == [False, True]
    assert tree.name == "kept"


def test_a_missing_tensor_is_named():
    leaves = flatten(example())
    del leaves["inner/table/gate.w"]
    with pytest.raises(ValueError, match=r"inner/table/gate\.w: .*float32\[2, 3\], found nothing"):
        unflatten(example(), leaves)


def test_an_extra_tensor_is_named():
    leaves = flatten(example()) | {"inner/stray": torch.zeros(1)}
    with pytest.raises(ValueError, match="inner/stray: expected no such tensor"):
        unflatten(example(), leaves)


@pytest.mark.parametrize(
    ("tensor", "found"),
    [(torch.zeros(4), r"float32\[4\]"), (torch.zeros(3, dtype=torch.float64), r"float64\[3\]")],
)
def test_another_shape_or_type_is_named(tensor, found):
    leaves = flatten(example()) | {"inner/table/b": tensor}
    with pytest.raises(ValueError, match=rf"inner/table/b: expected float32\[3\], found {found}"):
        unflatten(example(), leaves)


def test_stack_puts_trees_along_a_new_dimension():
    one = example()
    other = tree_map(lambda t: t + 1 if t.dtype != torch.bool else ~t, one)
    both = stack([one, other])
    assert isinstance(both, Outer)
    assert (both.name, both.nothing) == ("kept", None)
    assert both.inner.count.tolist() == [3, 4]
    assert both.pair[1].tolist() == [[True, False], [False, True]]
    for name, tensor in flatten(both).items():
        assert torch.equal(tensor[0], flatten(one)[name])
        assert torch.equal(tensor[1], flatten(other)[name])


def test_stack_joins_as_it_is_told():
    trees = [{"a": torch.full((2, n), float(n))} for n in (1, 3)]
    joined = stack(trees, lambda parts: torch.cat(parts, dim=1))
    assert joined["a"].tolist() == [[1, 3, 3, 3]] * 2


def test_stack_of_a_plain_tensor():
    assert stack([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]


@given(tree=_trees, count=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_any_trees_stack(tree, count):
    trees = [tree_map(lambda t, n=n: torch.full_like(t, n), tree) for n in range(count)]
    stacked = flatten(stack(trees))
    assert list(stacked) == list(flatten(tree))
    for n in range(count):
        assert all(torch.equal(t[n], flatten(trees[n])[name]) for name, t in stacked.items())
