"""Our environments as others see them: the same episodes as in a plain loop."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

from discorl.comparison.facade import SingleEnv
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.registry import make_environment
from discorl.envs.sources import find_environment
from discorl.life.episodes import Episode

SEED = 5


def action(episode, time, count):
    return int(np.random.default_rng([episode, time]).integers(count))


def play(env, count, number, seed=SEED):
    """Episodes by Gymnasium's way, each a list of observations and of rewards, and its end."""
    played = []
    for episode in range(number):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        seen, rewards, terminated, truncated = [observation], [], False, False
        while not (terminated or truncated):
            chosen = action(episode, len(rewards), count)
            observation, reward, terminated, truncated, _ = env.step(chosen)
            seen.append(observation)
            rewards.append(reward)
        played.append((seen, rewards, terminated, truncated))
    return played


def facade(spec_or_env):
    env = make_environment(spec_or_env, 1) if isinstance(spec_or_env, str) else spec_or_env
    episodes = []
    return SingleEnv(env, episodes), episodes


def counted(played):
    return [Episode(sum(map(float, rewards)), len(rewards)) for _, rewards, _, _ in played]


def same_episodes(ours, theirs, last):
    """Whether all observations and rewards agree; of the last one of an episode, if `last`."""
    assert len(ours) == len(theirs)
    for (seen, rewards, *ends), (their_seen, their_rewards, *their_ends) in zip(
        ours, theirs, strict=True
    ):
        np.testing.assert_allclose(rewards, their_rewards)
        assert ends == their_ends
        stop = None if last or ends == [False, True] else -1
        for one, other in zip(seen[:stop], their_seen[:stop], strict=True):
            np.testing.assert_array_equal(one, other)


def test_catch_is_played_as_in_a_plain_loop():
    env = make_environment("catch:rows=4,columns=3", 1)
    step, plain = env.reset(SEED), []
    for episode in range(6):
        rewards = []
        while not rewards or not bool(step.ended):
            step = env.step(torch.tensor([action(episode, len(rewards), 3)]))
            rewards.append(float(step.reward))
        plain.append(Episode(sum(rewards), len(rewards)))
    ours, episodes = facade("catch:rows=4,columns=3")
    played = play(ours, 3, 6)
    assert episodes == plain == counted(played)
    assert all(terminated and not truncated for _, _, terminated, truncated in played)
    assert ours.observation_space.contains(played[0][0][0])


def test_a_gymnasium_environment_is_what_it_was():
    ours, episodes = facade("CartPole-v1")
    theirs = play(gymnasium.make("CartPole-v1"), 2, 5)
    same_episodes(play(ours, 2, 5), theirs, last=True)
    assert episodes == counted(theirs)
    ours.close()


class MinAtarLoop:
    """MinAtar's own interface, with a limit on steps."""

    def __init__(self, game, limit):
        self.game, self.limit = game, limit

    def reset(self, *, seed=None):
        if seed is not None:
            self.game.seed([seed, 0])
        self.game.reset()
        self.time = 0
        return self.game.state(), {}

    def step(self, chosen):
        self.time += 1
        reward, terminated = self.game.act(self.game.minimal_action_set()[chosen])
        truncated = self.time >= self.limit and not terminated
        return self.game.state(), reward, bool(terminated), truncated, {}


def test_minatar_is_what_it_was_and_cut_off_episodes_show_their_end():
    minatar = pytest.importorskip("minatar")
    theirs = play(MinAtarLoop(minatar.Environment("breakout"), 12), 3, 20)
    ours, episodes = facade("minatar/breakout:steps=12")
    same_episodes(play(ours, 3, 20), theirs, last=True)
    assert episodes == counted(theirs)
    assert {truncated for *_, truncated in theirs} == {True, False}
    assert ours.observation_space.dtype == np.uint8


class Countdown(gymnasium.Env):
    """Shows its step and episode; ends after three steps, by turns by itself and cut off."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = (0 if seed is not None else self.episode + 1), 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        done, cut = self.time == 3, self.episode % 2 == 1
        return self.observe(), float(self.time), done and not cut, done and cut, {}

    def observe(self):
        return np.array([self.time, self.episode], dtype=np.float32)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_way_to_begin_anew(mode):
    vector_env = SyncVectorEnv([Countdown], autoreset_mode=mode)
    ours, episodes = facade(GymnasiumEnvironment(vector_env, "countdown"))
    theirs = play(Countdown(), 2, 4)
    same_episodes(play(ours, 2, 4), theirs, last=mode == AutoresetMode.NEXT_STEP)
    assert episodes == [Episode(6.0, 3)] * 4


def test_a_reset_in_the_middle_begins_anew_and_counts_nothing():
    ours, episodes = facade("catch:rows=4,columns=3")
    ours.reset(seed=SEED)
    ours.step(0)
    ours.reset()
    for _ in range(3):
        ended = ours.step(0)[2]
    assert ended
    assert [episode.length for episode in episodes] == [3]


def test_it_takes_one_copy():
    with pytest.raises(ValueError, match="expected 1 copy, got 2"):
        facade(make_environment("catch", 2))


class Keyed(gymnasium.Env):
    """Names that no module may have, and names that others could become."""

    observation_space = spaces.Dict(
        {
            name: spaces.Box(0, 9, (1,))
            for name in ("a b", "keys", "x.y", "entry_x_y", "entry_x_y_", "x")
        }
        | {"x_": spaces.Dict({"y": spaces.Box(0, 9, (1,))})}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.show(), {}

    def step(self, action):
        return self.show(), 1.0, True, False, {}

    def show(self):
        parts = enumerate(self.observation_space.spaces)
        shown = {name: np.full(1, number, np.float32) for number, name in parts}
        return shown | {"x_": {"y": shown["x_"]}}


def test_entries_that_no_module_can_be_called_after_get_another_name():
    env, _ = facade(find_environment(Keyed).make(1))
    shown = {name: float(value[0]) for name, value in env.reset(seed=0)[0].items()}
    truth = Keyed().show()
    renamed = {
        "a b": truth["a b"],
        "entry_keys": truth["keys"],
        "entry_x_y__": truth["x.y"],
        "entry_x_y": truth["entry_x_y"],
        "entry_x_y_": truth["entry_x_y_"],
        "x": truth["x"],
        "entry_x__y": truth["x_"]["y"],
    }
    assert shown == {name: float(value[0]) for name, value in renamed.items()}
    assert set(env.observation_space.spaces) == set(env.observation_spec) == set(renamed)
    assert env.observation_space.contains(env.step(0)[0])
    nn.ModuleDict({name: nn.Identity() for name in env.observation_spec})
