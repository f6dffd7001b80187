"""Environments by name."""

import pytest
import torch

from discorl.envs import list_environments, make_environment
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("catch", (8, 8, 1)),
        ("catch:", (8, 8, 1)),
        ("catch:rows=10", (10, 8, 1)),
        ("catch:columns=3,rows=4", (4, 3, 1)),
    ],
)
def test_settings_after_a_colon(spec, shape):
    env = make_environment(spec, 3)
    assert env.observation_spec == ArraySpec(shape, torch.uint8)
    assert (env.num_envs, env.num_actions) == (3, 3)
    assert env.reset(0).observation.shape == (3, *shape)
    assert env.step(torch.tensor([0, 1, 2])).reward.shape == (3,)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cathc", ["unknown environment 'cathc'", "Did you mean catch?"]),
        ("zzz", ["unknown environment 'zzz'", "Known: ", "catch"]),
        ("", ["unknown environment ''"]),
        ("FrozenLake-v1:is_slippery=False", ["take no settings", "--env-kwargs is_slippery=False"]),
        ("catch:row=5", ["unknown setting of environment catch: 'row'", "Did you mean rows?"]),
        ("catch:rows=x", ["rows=x: expected a whole number"]),
        ("catch:rows=", ["rows=?: expected a whole number"]),
        ("catch:rows", ["write name=value, got 'rows'"]),
        ("catch:rows=1", ["catch:rows=1", "rows >= 2"]),
        ("catch:rows=5;columns=5", ["rows=5;columns=5"]),
    ],
)
def test_what_is_wrong_is_said(spec, words):
    with pytest.raises(DiscorlError) as error:
        make_environment(spec, 1)
    for word in words:
        assert word in str(error.value)


def test_no_copies_are_refused():
    with pytest.raises(DiscorlError, match="at least 1, got 0"):
        make_environment("catch", 0)


def test_the_list_says_how_to_call_each():
    entries = list_environments()
    assert [e.name for e in entries] == sorted(e.name for e in entries)
    catch = next(e for e in entries if e.name == "catch")
    assert catch.settings == {"rows": 8, "columns": 8}
    assert "ball" in catch.summary
    for entry in entries:
        if entry.settings:
            settings = ",".join(f"{key}={value}" for key, value in entry.settings.items())
            assert make_environment(f"{entry.name}:{settings}", 1).num_actions > 0
