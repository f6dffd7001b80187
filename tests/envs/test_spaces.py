"""Spaces of observations and actions, between Gymnasium and tensors."""

import itertools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.envs.checked import CheckedEnv
from discorl.envs.spaces import ActionWriter, ObservationReader
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec, observation_leaves, spec_entries

FLOATS = [np.float16, np.float32, np.float64]
DTYPES = [*FLOATS, np.int8, np.int32, np.int64, np.uint8, np.uint16, bool]
sizes = st.integers(1, 4)
shapes = st.lists(sizes, max_size=3).map(tuple)


def make_box(shape, dtype):
    high = 1 if dtype in (bool, *FLOATS) else 100
    return spaces.Box(0, high, shape, dtype)


leaf_spaces = st.one_of(
    st.builds(make_box, shapes, st.sampled_from(DTYPES)),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), sizes, st.integers(-5, 5)),
    st.builds(lambda counts: spaces.MultiDiscrete(counts), st.lists(sizes, min_size=1, max_size=3)),
    st.builds(lambda n: spaces.MultiBinary(n), sizes),
)
any_spaces = st.recursive(
    leaf_spaces,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


def batch(space, observations):
    out = create_empty_array(space, len(observations))
    return concatenate(space, observations, out)


def plain_leaves(space, value, name=""):
    """Name -> numbers of a single observation, the slow way."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keys = space.spaces if isinstance(space, spaces.Dict) else range(len(space.spaces))
        found = {}
        for key in keys:
            found |= plain_leaves(space[key], value[key], f"{name}.{key}" if name else str(key))
        return found
    if isinstance(space, spaces.Discrete):
        return {name: [float(value == space.start + i) for i in range(space.n)]}
    if isinstance(space, spaces.MultiDiscrete):
        pairs = zip(value, space.nvec, strict=True)
        return {name: [float(x == i) for x, n in pairs for i in range(n)]}
    return {name: np.asarray(value).reshape(space.shape or (1,)).tolist()}


@given(space=any_spaces, seed=st.integers(0, 1000), copies=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_every_space_reads_as_it_would_by_hand(space, seed, copies):
    space.seed(seed)
    singles = [space.sample() for _ in range(copies)]
    reader = ObservationReader(space)
    batched, each = reader.read(batch(space, singles)), reader.read_each(singles)
    specs = spec_entries(reader.spec)
    assert isinstance(batched, dict) == isinstance(space, spaces.Dict | spaces.Tuple)
    assert observation_leaves(batched).keys() == specs.keys()
    for name, leaf in observation_leaves(batched).items():
        assert leaf.shape == (copies, *specs[name].shape)
        assert leaf.dtype == specs[name].dtype
        assert torch.equal(leaf, observation_leaves(each)[name])
        for row, single in zip(leaf, singles, strict=True):
            key = name if isinstance(batched, dict) else ""
            expected = torch.tensor(plain_leaves(space, single)[key], dtype=leaf.dtype)
            assert torch.equal(row, expected)
    rows = np.arange(copies)[::2]
    some = observation_leaves(reader.read(batch(space, singles), rows))
    assert all(torch.equal(some[k], v[::2]) for k, v in observation_leaves(batched).items())
    for single in singles:
        reader.check(single)


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (spaces.Box(-1, 1, (4,), np.float64), ArraySpec((4,))),
        (spaces.Box(-1, 1, (), np.float32), ArraySpec((1,))),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), ArraySpec((8, 8, 3), torch.uint8, 1 / 255)),
        (spaces.Box(0, 7, (8,), np.uint8), ArraySpec((8,), torch.uint8, 1.0)),
        (spaces.Box(0, 255, (8,), np.int32), ArraySpec((8,))),
        (spaces.Box(0, 1, (8,), np.bool_), ArraySpec((8,), torch.uint8)),
        (spaces.Discrete(5, start=3), ArraySpec((5,))),
        (spaces.MultiDiscrete([2, 3]), ArraySpec((5,))),
        (spaces.MultiBinary((2, 3)), ArraySpec((2, 3), torch.uint8)),
        (spaces.Dict({"only": spaces.Discrete(2)}), {"only": ArraySpec((2,))}),
        (
            spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3)))}),
            {"a.0": ArraySpec((2,)), "a.1": ArraySpec((3,))},
        ),
    ],
)
def test_specs(space, spec):
    assert ObservationReader(space).spec == spec


def test_a_discrete_space_of_several_dimensions_and_starts():
    space = spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[5, -1], [0, 7]])
    found = ObservationReader(space).read(np.array([[[6, -1], [0, 8]]]))
    assert found.tolist() == [[0, 1, 1, 0, 0, 1, 0, 1]]


@pytest.mark.parametrize("values", [[2, 4], [3, 8], [-1, 3]])
def test_values_outside_of_a_discrete_space(values):
    with pytest.raises(DiscorlError, match=r"observation: -?\d is not in 3\.\.7"):
        ObservationReader(spaces.Discrete(5, start=3)).read(np.array(values))


def test_reading_makes_a_copy():
    array = np.zeros((2, 3), dtype=np.float32)
    tensor = ObservationReader(spaces.Box(-1, 1, (3,), np.float32)).read(array)
    array[:] = 1
    assert tensor.sum() == 0


def test_numbers_too_large_for_float32_are_reported():
    space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    with pytest.raises(DiscorlError, match="inf"):
        ObservationReader(space).read(np.array([[1e300]]))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Dict({"a": spaces.Graph(spaces.Discrete(2), None)}),
    ],
)
def test_spaces_that_cannot_be_read(space):
    with pytest.raises(DiscorlError, match=r"observation space .*(Sequence|Graph) is not"):
        ObservationReader(space)


def test_dictionaries_without_entries_or_with_doubtful_ones():
    with pytest.raises(DiscorlError, match="no entries"):
        ObservationReader(spaces.Dict({}))
    inner = spaces.Dict({"b": spaces.Discrete(2)})
    with pytest.raises(DiscorlError, match="one name"):
        ObservationReader(spaces.Dict({"a": inner, "a.b": spaces.Discrete(2)}))


action_spaces = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), sizes, st.integers(-5, 5)),
    st.lists(sizes, min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.just(spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[5, -1], [0, 7]])),
    st.integers(1, 5).map(spaces.MultiBinary),
    st.just(spaces.MultiBinary((2, 2))),
    st.builds(lambda shape: spaces.Box(-2, 3, shape), st.sampled_from([(), (1,), (2,), (2, 2)])),
)


@given(space=action_spaces, grid=st.integers(2, 4))
@settings(max_examples=80, deadline=None)
def test_every_action_there_is_once(space, grid):
    writer = ActionWriter(space, grid)
    written = writer.write(torch.arange(writer.num_actions))
    # What a vector environment would hand on to its copies.
    singles = list(iterate(batch_space(space, writer.num_actions), written))
    assert all(space.contains(np.asarray(x, dtype=space.dtype)) for x in singles)
    assert len({np.asarray(x).tobytes() for x in singles}) == writer.num_actions
    if isinstance(space, spaces.Discrete):
        assert writer.num_actions == space.n
        assert written.tolist() == list(range(space.start, space.start + space.n))
    elif isinstance(space, spaces.Box):
        values = np.linspace(-2, 3, grid, dtype=np.float32)
        flat = written.reshape(writer.num_actions, -1)
        expected = itertools.product(values, repeat=flat.shape[1])
        assert {tuple(x) for x in flat} == set(expected)
    elif isinstance(space, spaces.MultiBinary):
        assert writer.num_actions == 2 ** int(np.prod(space.shape))
    else:
        assert writer.num_actions == int(np.prod(space.nvec))


@pytest.mark.parametrize(
    ("space", "grid", "words"),
    [
        (spaces.Box(-1, 1, (2,)), 0, "--discretize-actions K"),
        (spaces.Box(-1, 1, (2,)), 1, "at least 2, got 1"),
        (spaces.Box(-1, 1, (2,)), -3, "at least 2, got -3"),
        (spaces.Box(-1, np.inf, (2,)), 3, "finite bounds"),
        (spaces.Box(-1, 1, (7,)), 3, "2187 combinations"),
        (spaces.Box(-1, 1, (400,)), 11, "combinations"),
        (spaces.MultiDiscrete([32, 33]), 0, "1056 combinations"),
        (spaces.MultiBinary(11), 0, "2048 combinations"),
        (spaces.Dict({"a": spaces.Discrete(2)}), 0, "Dict is not supported"),
        (spaces.Text(3), 0, "Text is not supported"),
    ],
)
def test_actions_that_cannot_be_chosen(space, grid, words):
    with pytest.raises(DiscorlError, match=words):
        ActionWriter(space, grid)


def test_as_many_as_are_allowed_and_more_if_they_are_plain():
    assert ActionWriter(spaces.MultiBinary(10)).num_actions == 1024
    assert ActionWriter(spaces.Discrete(3000)).num_actions == 3000


def test_whether_a_space_is_the_same():
    some = [
        spaces.Discrete(2),
        spaces.Discrete(2, start=1),
        spaces.Discrete(3),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiDiscrete([2, 3], start=[0, 1]),
        spaces.MultiBinary(2),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (2,)),
        spaces.Box(-1, 2, (2,)),
    ]
    for i, j in itertools.product(range(len(some)), repeat=2):
        assert ActionWriter(some[i], 2).fits(some[j]) == (i == j)


def test_a_checked_environment_is_transparent():
    env, twin = CheckedEnv(gymnasium.make("CartPole-v1")), gymnasium.make("CartPole-v1")
    assert np.array_equal(env.reset(seed=1)[0], twin.reset(seed=1)[0])
    for action in (0, 1, 1):
        for x, y in zip(env.step(action), twin.step(action), strict=True):
            assert np.array_equal(x, y)


@pytest.mark.parametrize("fresh", [False, True])
def test_only_what_is_in_new_memory_anyway_is_not_copied(fresh):
    reader = ObservationReader(spaces.Box(0, 255, (2, 3, 3), np.uint8), fresh)
    shown = np.zeros((4, 2, 3, 3), dtype=np.uint8)
    observation = reader.read(shown)
    shown += 1
    assert (observation == int(fresh)).all()
