"""MinAtar games: the same play as the package's own, endings, seeds and settings."""

import re
import sys

import numpy as np
import pytest
import torch

from discorl.agents import Network, NetworkConfig
from discorl.envs import make_environment
from discorl.envs.minatar import GAMES, make_minatar
from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.life.acting import act
from discorl.life.episodes import EpisodeLog
from discorl.observations import ArraySpec
from discorl.rules.actor_critic import ActorCritic

minatar = pytest.importorskip("minatar", reason="MinAtar is not installed: discorl[minatar]")

SHAPES = {
    "asterix": ((10, 10, 4), "nlurd"),
    "breakout": ((10, 10, 4), "nlr"),
    "freeway": ((10, 10, 7), "nud"),
    "seaquest": ((10, 10, 10), "nlurdf"),
    "space_invaders": ((10, 10, 6), "nlrf"),
}
"""Game -> shape of the board, and the useful ones of the actions none, left, up, right, down,
fire."""


def script(num_actions, steps, num_envs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(num_actions, (steps, num_envs), generator=generator)


def play(env, seed, actions):
    step = env.reset(seed)
    steps = [step, *(env.step(row) for row in actions)]
    return torch.stack([s.observation for s in steps]), torch.stack([s.reward for s in steps])


def plain_episodes(game, actions, limit):
    """(return, length) of the whole episodes of one copy; a step goes by to begin the next one."""
    episodes, total, length, over = [], 0.0, 0, False
    for action in actions:
        if over:
            game.reset()
            over = False
            continue
        reward, terminal = game.act(action)
        total, length = total + reward, length + 1
        if terminal or length == limit:
            episodes.append((total, length))
            total, length, over = 0.0, 0, True
    return episodes


@pytest.mark.parametrize("name", GAMES)
def test_boards_and_actions(name):
    shape, actions = SHAPES[name]
    env = make_environment(f"minatar/{name}", 3)
    assert env.observation_spec == ArraySpec(shape, torch.uint8, 1.0)
    assert env.num_actions == len(actions)
    observations, rewards = play(env, 0, script(env.num_actions, 50, 3))
    assert observations.shape == (51, 3, *shape)
    assert observations.dtype == torch.uint8
    assert set(observations.unique().tolist()) == {0, 1}
    assert rewards.dtype == torch.float32
    assert make_minatar(f"minatar/{name}:minimal=false", 1).num_actions == 6


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("settings", ["", "sticky=0.5,ramping=false,steps=30"])
def test_episodes_equal_a_plain_loop(name, settings):
    env = make_minatar(f"minatar/{name}:{settings}", 2)
    actions = script(env.num_actions, 300, 2)
    env.reset(7)
    steps = [env.step(row) for row in actions]
    for copy in range(2):
        sticky, ramping, limit = (0.5, False, 30) if settings else (0.1, True, 10_000)
        game = minatar.Environment(name, sticky, ramping)
        game.seed([7, copy])
        game.reset()
        codes = game.minimal_action_set()
        expected = plain_episodes(game, [codes[a] for a in actions[:, copy]], limit)
        found, total, length = [], 0.0, 0
        for step in steps:
            total += step.reward[copy].item()
            length += not step.idle[copy]
            if step.ended[copy]:
                found.append((total, length))
                total, length = 0.0, 0
        assert found == expected
        assert found or name == "freeway", "whose episodes are longer"


@pytest.mark.parametrize("name", GAMES)
def test_boards_equal_the_games_own(name):
    env = make_minatar(f"minatar/{name}", 2)
    actions = script(env.num_actions, 30, 2)
    observations, _ = play(env, 3, actions)
    game = minatar.Environment(name)
    game.seed([3, 1])
    game.reset()
    for t, action in enumerate(actions[:, 1].tolist()):
        np.testing.assert_array_equal(observations[t, 1].numpy(), game.state())
        if game.act(game.minimal_action_set()[action])[1]:
            break


@pytest.mark.parametrize("name", GAMES)
def test_the_seed_fixes_everything(name):
    env = make_minatar(f"minatar/{name}", 2)
    actions = script(env.num_actions, 200, 1).expand(-1, 2)
    first, again, other = (play(env, seed, actions) for seed in (0, 0, 1))
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0][:, 0], first[0][:, 1]), "copies are independent"
    assert not torch.equal(first[0][:, 1], other[0][:, 0]), "and so are seeds in a row"


def test_what_was_played_before_a_seed_is_forgotten():
    env = make_minatar("minatar/breakout:sticky=0.9", 4)
    right = torch.full((3, 4), 2)
    first, again = (play(env, 0, right)[0] for _ in range(2))
    assert torch.equal(first, again)


def test_any_seed_will_do():
    env = make_minatar("minatar/freeway", 1)
    actions = script(env.num_actions, 20, 1)
    for seed in (-1, 2**31, 2**40):
        assert torch.equal(play(env, seed, actions)[0], play(env, seed, actions)[0])


def test_the_time_limit_cuts_off_and_an_ending_ends():
    env = make_minatar("minatar/freeway:steps=5", 2)
    env.reset(0)
    for t in range(1, 13):
        step = env.step(torch.zeros(2, dtype=torch.int64))
        last, idle = t % 6 == 5, t % 6 == 0
        assert step.truncated.tolist() == [last, last]
        assert step.ended.tolist() == [last, last]
        assert step.idle.tolist() == [idle, idle]
        assert step.discount.tolist() == ([0, 0] if idle else [1, 1])
    env = make_minatar("minatar/breakout:sticky=0", 1)
    step = env.reset(0)
    while not step.ended:
        step = env.step(torch.zeros(1, dtype=torch.int64))
    assert step.discount.item() == 0, "the ball was lost: no value goes on"


def test_an_ending_at_the_time_limit_is_an_ending():
    env = make_minatar("minatar/breakout:sticky=0", 1)
    step, length = env.reset(0), 0
    while not step.ended:
        step, length = env.step(torch.zeros(1, dtype=torch.int64)), length + 1
    env = make_minatar(f"minatar/breakout:sticky=0,steps={length}", 1)
    env.reset(0)
    for _ in range(length):
        step = env.step(torch.zeros(1, dtype=torch.int64))
    assert step.ended
    assert step.discount.item() == 0


@pytest.mark.parametrize("name", GAMES)
def test_minimal_actions_are_the_right_ones_of_all(name):
    codes = ["nlurdf".index(letter) for letter in SHAPES[name][1]]
    minimal = make_minatar(f"minatar/{name}:sticky=0", 1)
    whole = make_minatar(f"minatar/{name}:sticky=0,minimal=false", 1)
    actions = script(len(codes), 100, 1)
    translated = torch.tensor(codes)[actions]
    for a, b in zip(play(minimal, 0, actions), play(whole, 0, translated), strict=True):
        assert torch.equal(a, b)


def test_the_settings_reach_the_games():
    actions = script(3, 40, 1, seed=1)
    # Whatever is done, the first action of all, which is none, is repeated for ever.
    stuck = play(make_minatar("minatar/breakout:sticky=1", 1), 0, actions)[0]
    still = play(make_minatar("minatar/breakout:sticky=1", 1), 0, torch.zeros_like(actions))[0]
    free = play(make_minatar("minatar/breakout:sticky=0", 1), 0, actions)[0]
    assert torch.equal(stuck, still)
    assert not torch.equal(stuck, free)
    # In some copy a game lasts until it becomes harder.
    actions = script(5, 300, 8)
    harder, steady = (
        play(make_minatar(f"minatar/asterix:ramping={ramping}", 8), 0, actions)[0]
        for ramping in (True, False)
    )
    assert not torch.equal(harder, steady)
    assert torch.equal(harder[:20], steady[:20])


def test_acting_gives_whole_episodes():
    env = make_minatar("minatar/breakout", 4)
    heads = ActorCritic(num_bins=5).heads(env.num_actions)
    config = NetworkConfig(torso=(8,), channels=(4,))
    agent = Network.for_observations(env.observation_spec, heads, config)
    generator = torch.Generator().manual_seed(0)
    params = agent.init(generator)
    step, log, episodes = env.reset(0), EpisodeLog(4), []
    for _ in range(10):
        acted = act(agent, params, env, step, 20, generator)
        step = acted.step
        episodes += log.update(acted)
    assert len(episodes) > 10
    assert all(e.length >= 5 and 0 <= e.total_reward <= e.length for e in episodes)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("minatar/breakot", ["unknown environment", "Did you mean minatar/breakout"]),
        ("minatar/", ["unknown environment", "minatar/freeway"]),
        ("minatar/breakout:stick=1", ["'stick'", "Did you mean sticky?"]),
        ("minatar/breakout:sticky=2", ["sticky", "probability"]),
        ("minatar/breakout:steps=0", ["steps", "at least 1"]),
        ("minatar/breakout:steps=many", ["steps=many: expected a whole number"]),
        ("minatar/breakout:minimal=yes", ["minimal=yes: expected true or false"]),
    ],
)
def test_what_is_wrong_is_said(spec, words):
    with pytest.raises(DiscorlError) as error:
        make_minatar(spec, 1)
    for word in words:
        assert word in str(error.value)


def test_no_copies_are_refused():
    with pytest.raises(DiscorlError, match="at least 1 copy, got 0"):
        make_minatar("minatar/breakout", 0)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(DiscorlError, match=re.escape(install_line("minatar"))):
        make_minatar("minatar/breakout", 1)
