"""A stack of games against the same games, each on its own."""

import random
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from discorl.envs import (
    FAMILIES,
    StackedEnvironment,
    make_environment,
    make_stack,
    resolve_environment,
)
from discorl.envs.registry import GAMES, make_game, name_game
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec

CELLS = {"cliff": ("place",), "grid": ("agent", "objects")}
"""Parts of a state that count the cells of a board along its rows."""
LISTS = {"grid": {"objects": "objects", "kinds": "objects"}, "umbrella": {"bits": "distractors"}}
"""Parts of a state that are as long as a setting says."""


def cut(game, frame, state):
    """A member's part of a stack's state, as the game on its own has it."""
    name = next(name for name, kind in GAMES.items() if type(game) is kind)
    state = dict(state)
    for part, size in LISTS.get(name, {}).items():
        state[part] = state[part][:, : getattr(game, size)]
    for part in CELLS.get(name, ()):
        row, column = state[part] // frame.columns, state[part] % frame.columns
        place, outside = row * game.columns + column, state[part] == frame.rows * frame.columns
        state[part] = place.masked_fill(outside, game.rows * game.columns)
    if name == "grid":
        # An object that is gone is of no kind.
        gone = state["objects"] == game.rows * game.columns
        state["kinds"] = state["kinds"].masked_fill(gone, 0)
    return state


def embed(observation, shape):
    """Zeros of this shape, with the observations in the corner."""
    larger = observation.new_zeros(len(observation), *shape)
    larger[tuple(slice(size) for size in observation.shape)] = observation
    return larger


def loaded_dice(share):
    """Every uniform draw is this share of its range, and every normal one the share itself."""

    def integers(high, shape, **_):
        return (torch.full(shape, share) * high).long()

    return mock.patch.multiple(
        torch,
        rand=lambda *shape, **_: torch.full(_flat(shape), share),
        randn=lambda *shape, **_: torch.full(_flat(shape), share),
        randint=integers,
    )


def _flat(shape):
    return shape[0] if isinstance(shape[0], tuple) else shape


def draw_actions(rng, env):
    return torch.tensor([rng.randrange(env.num_actions) for _ in range(env.num_envs)])


@pytest.mark.parametrize("name", FAMILIES)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 0.9921875, width=32))
@settings(max_examples=8, deadline=None)
def test_members_play_like_the_games_alone(name, seed, share):
    # Given three members, two copies of each
    rng, copies = random.Random(seed), 2
    env = make_stack(f"family:{name}", [seed, seed + 1, seed + 2], copies)
    frame, games = make_game(FAMILIES[name].largest), [make_game(spec) for spec in env.specs]
    seen = env.reset(seed).observation
    if hasattr(frame, "steps"):
        # Not long before the time limit of each.
        left = [game.steps - rng.randrange(1, 9) for game in games for _ in range(copies)]
        env._state["time"] = torch.tensor(left)
    for _ in range(8):
        actions, state = draw_actions(rng, env), env._state
        with loaded_dice(share):
            moved, reward, terminal = env.game.play(state, actions, env._generator)
            for p, game in enumerate(games):
                here = slice(p * copies, (p + 1) * copies)
                mine = cut(game, frame, {k: v[here] for k, v in state.items()})
                # Then a member looks like the game on its own, from the same state
                assert torch.equal(seen[here], embed(game.observe(mine), frame.observation_shape))
                # And plays like it, with the same actions and the same luck
                own = game.play(mine, actions[here] % game.num_actions, env._generator)
                theirs = cut(game, frame, {k: v[here] for k, v in moved.items()})
                assert set(own[0]) == set(theirs)
                for part, tensor in cut(game, game, own[0]).items():
                    torch.testing.assert_close(theirs[part], tensor, atol=1e-6, rtol=1e-5)
                torch.testing.assert_close(reward[here], own[1], atol=1e-6, rtol=1e-6)
                assert torch.equal(terminal[here], own[2])
        seen = env.step(actions).observation


@pytest.mark.parametrize("name", FAMILIES)
def test_members_begin_like_the_games_alone(name):
    copies, seeds = 3000, range(4)
    env = make_stack(f"family:{name}", seeds, copies)
    first = env.reset(0).observation.reshape(len(seeds), copies, -1).float()
    for p, spec in enumerate(env.specs):
        alone = make_environment(spec, copies).reset(1).observation
        alone = embed(alone, env.game.observation_shape).reshape(copies, -1).float()
        torch.testing.assert_close(first[p].mean(dim=0), alone.mean(dim=0), atol=0.06, rtol=0)
        # What is always zero is so in both.
        assert torch.equal(first[p].any(dim=0), alone.any(dim=0))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_one_shape(name):
    largest = make_game(FAMILIES[name].largest)
    env = make_stack(f"family:{name}", range(30), 1)
    drawn = [resolve_environment(f"family:{name}", seed) for seed in range(30)]
    assert env.specs == [name_game(make_game(spec)) for spec in drawn]
    assert env.observation_spec == ArraySpec(largest.observation_shape, env.observation_spec.dtype)
    assert (env.num_envs, env.num_actions) == (30, largest.num_actions)
    step = env.reset(0)
    for t in range(30):
        assert step.observation.shape == (30, *largest.observation_shape)
        assert step.observation.isfinite().all()
        step = env.step(torch.full((30,), t % env.num_actions))
        assert step.reward.shape == step.terminated.shape == (30,)
        assert step.reward.dtype == torch.float32
        assert step.reward.isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_member_is_replaced_and_the_others_go_on(name):
    env, other = (make_stack(f"family:{name}", (1, 2, 3), 2) for _ in range(2))
    rng = random.Random(0)
    for each in (env, other):
        each.reset(5)
    for t in range(40):
        if t == 9:
            # When the second member becomes another one
            spec = resolve_environment(f"family:{name}", 77)
            first = env.replace(1, spec, seed=4)
            # Then its new episodes begin, as a seed says
            assert first.observation.shape == (2, *env.game.observation_shape)
            assert first.reward.tolist() == [0, 0]
            assert first.terminated.tolist() == [False, False]
            again = other.replace(1, spec, seed=4)
            assert torch.equal(again.observation, first.observation)
            assert make_game(env.specs[1]) == make_game(spec)
            other.replace(1, resolve_environment(f"family:{name}", 78), seed=5)
        actions = draw_actions(rng, env)
        one, two = env.step(actions), other.step(actions)
        for theirs, ours in ((two.observation, one.observation), (two.reward, one.reward)):
            assert torch.equal(theirs[:2], ours[:2])
            assert torch.equal(theirs[4:], ours[4:])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_restored_stack_goes_on_bit_for_bit(name, tmp_path):
    env = make_stack(f"family:{name}", (1, 2, 3), 2)
    env.reset(5)
    rng = random.Random(1)
    for _ in range(7):
        env.step(draw_actions(rng, env))
    env.replace(2, resolve_environment(f"family:{name}", 50), seed=0)
    env.step(draw_actions(rng, env))
    save_file(env.state_dict(), tmp_path / "state.safetensors")
    # Given a stack of others, which reads the file
    other = make_stack(f"family:{name}", (7, 8, 9), 2)
    other.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert other.specs == env.specs
    for _ in range(30):
        actions = draw_actions(rng, env)
        one, two = env.step(actions), other.step(actions)
        assert torch.equal(one.observation, two.observation)
        assert torch.equal(one.reward, two.reward)
        assert torch.equal(one.terminated, two.terminated)


def test_surplus_actions_repeat_the_others():
    env = StackedEnvironment(["bandit:arms=2,noise=0"], 6, "bandit:arms=6")
    env.reset(0)
    means = torch.tensor(make_game("bandit:arms=2").means[0])
    assert torch.equal(env.step(torch.arange(6)).reward, means[torch.arange(6) % 2])


def test_what_is_no_family_is_the_same_for_all():
    env = make_stack("catch:rows=4,columns=3", range(3), 2)
    assert env.specs == ["catch:rows=4,columns=3"] * 3
    assert env.reset(0).observation.shape == (6, 4, 3, 1)


def test_what_is_wrong_is_said(monkeypatch):
    env = make_stack("family:catch", range(3), 2)
    with pytest.raises(ValueError, match="expected a game like catch:rows=10, got grid"):
        env.replace(0, "grid", 0)
    with pytest.raises(ValueError, match="rows=11 does not fit into catch:rows=10: rows"):
        env.replace(0, "catch:rows=11", 0)
    with pytest.raises(DiscorlError, match="unknown environment"):
        env.replace(0, "cathc", 0)
    with pytest.raises(ValueError, match=r"actions: expected \[6\], got \[3\]"):
        env.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="ball_row: expected"):
        make_stack("family:catch", range(4), 2).load_state_dict(env.state_dict())
    with pytest.raises(ValueError, match="expected members and copies, got 0 x 2"):
        make_stack("family:catch", [], 2)

    class Plain:
        num_actions, observation_shape = 2, (1,)

    monkeypatch.setitem(GAMES, "plain", Plain)
    monkeypatch.setattr("discorl.envs.stacked.make_game", lambda _: Plain())
    with pytest.raises(DiscorlError, match="'plain' is no StackableGame"):
        make_stack("plain", [1], 2)
