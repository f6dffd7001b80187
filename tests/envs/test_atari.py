"""Atari games: preprocessing, settings, endings, seeds; and scores as shares of human play."""

import re
import sys
from importlib.util import find_spec

import pytest
import torch
from gymnasium.vector import VectorEnv

from discorl.agents import Network, NetworkConfig
from discorl.envs import make_environment
from discorl.envs.atari import make_atari
from discorl.envs.human_scores import ATARI_57, SCORES, human_normalized
from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.learner import Learner
from discorl.life.acting import act
from discorl.life.episodes import EpisodeLog
from discorl.observations import ArraySpec
from discorl.optim import ClippedAdam, Schedule
from discorl.training.config import TrainConfig
from discorl.training.trainer import Trainer
from discorl.tree import flatten, tree_map

needs_ale = pytest.mark.skipif(
    find_spec("ale_py") is None, reason="ale-py is not installed: pip install 'discorl[atari]'"
)
SMALL = {
    "num_envs": 1,
    "rollout_length": 4,
    "batch_size": 1,
    "replay_fraction": 0.0,
    "body": "nature",
    "channels": (4, 4, 4),
    "torso": (16,),
    "model_size": 8,
    "head_hidden": 8,
}


class Scripted:
    """An agent that always takes the same action."""

    def __init__(self, num_actions, action=0):
        self.logits = torch.full((num_actions,), -1e9)
        self.logits[action] = 0

    def policy(self, params, observations):
        return self.logits.expand(len(observations), -1)


def play(spec, seed=0, steps=20, num_envs=1, action=None):
    """Frames [steps + 1, B, 4, 84, 84]; without an action, the actions in turn."""
    env = make_atari(spec, num_envs)
    frames = [env.reset(seed).observation]
    for t in range(steps):
        chosen = t % env.num_actions if action is None else action
        frames.append(env.step(torch.full((num_envs,), chosen)).observation)
    env.close()
    return torch.stack(frames)


@needs_ale
@pytest.mark.parametrize("spec", ATARI_57)
def test_every_game_is_there_and_can_be_learned_in(spec, tiny_rule):
    trainer = Trainer(TrainConfig.from_json({"env": spec, **SMALL}), tiny_rule)
    life = trainer.life
    # Given one copy of the game, which shows what all games show
    env, step = life.env, life.time_step
    assert env.observation_spec == ArraySpec((4, 84, 84), torch.uint8, 1 / 255, stack=4)
    assert 3 <= env.num_actions <= 18
    for _ in range(2):
        # When the agent acts in it and learns from that
        before = life.state.params
        assert step.observation.shape == (1, 4, 84, 84)
        assert step.observation.dtype == torch.uint8
        assert step.reward.dtype == torch.float32
        metrics = trainer.train_step()
        # Then the episode goes on, and the whole network was updated with finite numbers
        step = life.time_step
        assert step.discount.item() == 1
        assert not step.ended
        assert all(torch.isfinite(value).all() for value in metrics.values())
        after = life.state.params
        assert all(torch.isfinite(p).all() for p in after.values())
        changed = {name for name, p in before.items() if not torch.equal(p, after[name])}
        assert "head.logits.weight" in changed
        assert any("torso.stack" in name for name in changed)
    trainer.close()


@needs_ale
def test_an_observation_is_the_last_four_frames():
    frames = play("ALE/Pong-v5", steps=60)
    assert frames.float().std() > 0
    assert torch.equal(frames[1:, :, :3], frames[:-1, :, 1:])
    assert not torch.equal(frames[-1, :, 3], frames[-1, :, 2])


@needs_ale
def test_no_step_changes_what_an_earlier_one_showed():
    env = make_atari("ALE/Pong-v5", 2)
    steps = [env.reset(0)]
    shown = [tree_map(torch.clone, steps[0])]
    for t in range(20):
        steps.append(env.step(torch.full((2,), t % env.num_actions)))
        shown.append(tree_map(torch.clone, steps[-1]))
    env.close()
    for step, then in zip(map(flatten, steps), map(flatten, shown), strict=True):
        assert all(torch.equal(step[name], then[name]) for name in then)
    tensors = [leaf for step in steps for leaf in flatten(step).values()]
    assert len({leaf.data_ptr() for leaf in tensors}) == len(tensors)


@needs_ale
def test_sticky_actions_reach_the_emulator():
    right, left = (play("ALE/Breakout-v5:sticky=1,noops=0", action=a) for a in (2, 3))
    assert torch.equal(right, left), "with probability 1 the first no-op is repeated for ever"
    right = play("ALE/Breakout-v5:sticky=0,noops=0", action=2)
    left = play("ALE/Breakout-v5:sticky=0,noops=0", action=3, num_envs=2)
    assert not torch.equal(right[:, 0], left[:, 0])
    assert torch.equal(left[:, 0], left[:, 1]), "without chance all copies are alike"
    standard = play("ALE/Breakout-v5:noops=0", num_envs=2)
    assert not torch.equal(standard[:, 0], standard[:, 1])


@needs_ale
def test_noops_make_beginnings_differ():
    for settings, alike in (("sticky=0", False), ("sticky=0,noops=0", True)):
        frames = play(f"ALE/SpaceInvaders-v5:{settings}", num_envs=3, steps=0)[0]
        assert (frames == frames[:1]).all() == alike


@needs_ale
def test_other_settings_reach_the_emulator():
    env = make_atari("ALE/Pong-v5:full_actions=true,stack=2", 1)
    assert env.num_actions == 18
    assert env.observation_spec.shape == (2, 84, 84)
    assert env.reset(0).observation.shape == (1, 2, 84, 84)
    waiting, fired = (
        play(f"ALE/Breakout-v5:sticky=0,noops=0,fire={fire}", action=0) for fire in (False, True)
    )
    # Without the fire button no ball appears, and nothing moves.
    assert torch.equal(waiting[-1, 0, 0], waiting[-1, 0, 3])
    assert not torch.equal(fired[-1, 0, 0], fired[-1, 0, 3])


@needs_ale
@pytest.mark.parametrize(("settings", "steps"), [("frames=40", 10), ("frames=40,frame_skip=2", 20)])
def test_the_frame_limit_cuts_off_and_the_value_goes_on(settings, steps):
    env = make_atari(f"ALE/Pong-v5:{settings}", 2)
    env.reset(0)
    for episode in range(2):
        for t in range(1, steps + 1):
            step = env.step(torch.zeros(2, dtype=torch.int64))
            last = t == steps
            assert step.ended.tolist() == [last, last], (episode, t)
            assert step.truncated.tolist() == [last, last]
            assert step.discount.tolist() == [1, 1], "cut off, not over"
        step = env.step(torch.zeros(2, dtype=torch.int64))
        assert step.idle.all()
        assert step.first.all()
        assert (step.reward == 0).all()


@needs_ale
@pytest.mark.parametrize(
    ("spec", "points", "steps"), [("ALE/Alien-v5", 10, 60), ("ALE/Assault-v5", 21, 100)]
)
def test_rewards_are_points(spec, points, steps):
    env = make_atari(spec, 1)
    env.reset(0)
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(env.num_actions, (steps, 1), generator=generator)
    assert max(env.step(row).reward.item() for row in actions) >= points


@needs_ale
def test_the_seed_fixes_everything():
    first, again, other = (play("ALE/Breakout-v5", seed, num_envs=2) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[:, 0], first[:, 1])
    # Evaluation plays rounds with seeds in a row: they must not be the same episodes.
    assert not torch.equal(first[:, 1], other[:, 0])


@needs_ale
def test_any_seed_will_do():
    env = make_atari("ALE/SpaceInvaders-v5", 1)
    for seed in (-1, 2**31 - 1, 2**40):
        first, again = (env.reset(seed).observation for _ in range(2))
        assert torch.equal(first, again)


@needs_ale
def test_a_resumed_game_begins_anew_but_always_in_the_same_way():
    env = make_atari("ALE/SpaceInvaders-v5", 1)
    start = env.reset(5).observation
    state = env.state_dict()
    resumed = [env.load_state_dict(state) for _ in range(2)]
    assert torch.equal(resumed[0].observation, resumed[1].observation)
    assert not torch.equal(resumed[0].observation, start)


@needs_ale
def test_idle_play_loses_every_point_of_pong():
    env = make_atari("ALE/Pong-v5", 2)
    step, log, episodes = env.reset(0), EpisodeLog(2), []
    generator = torch.Generator().manual_seed(0)
    ends = []
    while len(episodes) < 2:
        acted = act(Scripted(env.num_actions), {}, env, step, 100, generator)
        step = acted.step
        episodes += log.update(acted)
        ends.append(acted.rollout.discounts[acted.ended])
        assert len(ends) < 20, "no game lasts so long"
    assert {e.total_reward for e in episodes} == {-21.0}
    assert all(700 < e.length < 1100 for e in episodes)
    assert (torch.cat(ends) == 0).all(), "a lost game is over"


@needs_ale
def test_a_learner_takes_a_step_from_frames(tiny_rule):
    env = make_atari("ALE/Pong-v5:frames=8", 2)
    config = NetworkConfig(torso=(16,), channels=(4, 4, 4), model_size=8, head_hidden=8)
    network = Network.for_observations(
        env.observation_spec, tiny_rule.heads(env.num_actions), config
    )
    learner = Learner(network, tiny_rule, ClippedAdam(Schedule(0.01)))
    state = learner.init(torch.Generator().manual_seed(0))
    acted = act(network, state.params, env, env.reset(0), 4, torch.Generator().manual_seed(0))
    assert acted.rollout.final.any(), "an episode was cut off within the batch"
    after, metrics = learner.step(state, acted.rollout)
    assert all(torch.isfinite(value).all() for value in metrics.values())
    changed = {name for name, p in state.params.items() if not torch.equal(p, after.params[name])}
    assert any("torso.stack" in name for name in changed)
    assert "head.logits.weight" in changed


@needs_ale
def test_other_vector_environments_are_left_as_they_were():
    before = dict(VectorEnv.metadata)
    make_atari("ALE/Pong-v5", 1)
    assert VectorEnv.metadata == before


@needs_ale
def test_the_registry_knows_atari():
    env = make_environment("ALE/Tetris-v5:sticky=0,full_actions=true", 2)
    assert (env.num_envs, env.num_actions) == (2, 18)


@needs_ale
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ALE/Pnog-v5", ["unknown environment 'ALE/Pnog-v5'", "ALE/Pong-v5"]),
        ("ALE/Pong-v4", ["unknown environment", "Did you mean ALE/Pong-v5"]),
        ("ALE/Warlords-v5", ["unknown environment"]),
        ("ALE/Pong-v5:stiky=0", ["'stiky'", "Did you mean sticky"]),
        ("ALE/Pong-v5:sticky", ["write name=value, got 'sticky'"]),
        ("ALE/Pong-v5:sticky=no", ["sticky=no: expected a number"]),
        ("ALE/Pong-v5:sticky=1.5", ["sticky", "probability", "1.5"]),
        ("ALE/Pong-v5:sticky=nan", ["sticky=nan", "expected a number"]),
        ("ALE/Pong-v5:frame_skip=0", ["frame_skip", "at least 1"]),
        ("ALE/Pong-v5:frames=0", ["frames", "at least 1"]),
        ("ALE/Pong-v5:noops=-1", ["noops", "at least 0"]),
        ("ALE/Pong-v5:fire=1", ["fire=1: expected true or false"]),
    ],
)
def test_what_is_wrong_is_said(spec, words):
    with pytest.raises(DiscorlError) as error:
        make_atari(spec, 1)
    for word in words:
        assert word in str(error.value)


@needs_ale
def test_no_copies_are_refused():
    with pytest.raises(DiscorlError, match="at least 1 copy, got 0"):
        make_atari("ALE/Pong-v5", 0)


def test_a_missing_package_is_named(monkeypatch):
    for module in ("ale_py", "ale_py.roms", "ale_py.vector_env"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DiscorlError, match=re.escape(install_line("atari"))):
        make_atari("ALE/Pong-v5", 1)


def test_human_normalized_scores():
    assert len(ATARI_57) == len(set(ATARI_57)) == 57
    for spec, (random, human) in zip(ATARI_57, SCORES.values(), strict=True):
        assert human > random
        assert human_normalized(spec, random) == 0
        assert human_normalized(spec, human) == 1
        assert human_normalized(f"{spec}:sticky=0", human + (human - random)) == pytest.approx(2)
    assert human_normalized("ALE/Breakout-v5", 1.7 + 14.4) == pytest.approx(0.5)


@pytest.mark.parametrize("spec", ["ALE/Tetris-v5", "catch", "Pong-v5", "minatar/breakout", ""])
def test_other_games_have_no_human_score(spec):
    assert human_normalized(spec, 1.0) is None
