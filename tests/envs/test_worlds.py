"""Well-known worlds: each is made, played, trained in, resumed and evaluated where it is installed.

Where it is not, its test is skipped and says what installs it.
"""

import importlib
import json
import math
import re
from pathlib import Path
from typing import get_args

import gymnasium
import numpy as np
import pytest
import torch

import discorl
from discorl.cli.__main__ import main
from discorl.envs import make_environment
from discorl.envs.base import EnvironmentConfig
from discorl.envs.bsuite_scores import CAPABILITIES, capability_scores
from discorl.envs.kinds import text_bytes
from discorl.envs.nethack import Task
from discorl.envs.outcomes import told_by
from discorl.envs.procgen import GAMES, SOME_GAMES, find_procgen
from discorl.envs.published import PUBLISHED, published_figures
from discorl.envs.registry import is_external
from discorl.envs.scores import (
    PROCGEN_EASY,
    PROCGEN_HARD,
    crafter_interval,
    crafter_score,
    field_score,
    procgen_normalized,
)
from discorl.envs.worlds import WORLDS, find_world
from discorl.errors import DiscorlError
from discorl.observations import observation_leaves
from discorl.training.start import resume_run
from discorl.tree import flatten

FAST = (
    "minigrid/DoorKey-5x5-v0",
    "minigrid/DoorKey-5x5-v0:full=true,mission=false",
    "sokoban:rows=5,columns=5,boxes=1,walls=0,count=4",
)
SLOW = (
    "bsuite/catch/0",
    "bsuite/cartpole_noise/3",
    "crafter:stack=4,steps=40",
    "minihack/Room-5x5-v0",
    "nethack",
    "nethack:task=score,crop=5,steps=50",
    "procgen/coinrun:mode=easy,levels=200",
    "procgen/bigfish:stack=4",
)
RULE = "actor_critic:num_bins=5,max_abs_value=2"
TINY = {
    "torso": (8,),
    "channels": (),
    "num_envs": 2,
    "rollout_length": 5,
    "batch_size": 2,
    "replay_fraction": 0.5,
    "replay_ratio": 1,
    "eval_episodes": 2,
    "eval_max_steps": 30,
}
NUMBER = 400
SCORED = [name for name in CAPABILITIES if not name.startswith("mnist")]


def needs(spec):
    world = find_world(spec)
    missing = world is not None and not world.installed
    marks = [pytest.mark.skipif(missing, reason=f"needs {world.install_line if missing else ''}")]
    return pytest.param(spec, marks=marks + ([pytest.mark.slow] if spec in SLOW else []))


@pytest.mark.parametrize("spec", [needs(spec) for spec in (*FAST, *SLOW)])
def test_every_world_is_played(spec):
    """A seed fixes what happens, observations fit, and episodes go on."""
    first, again, other = (play(spec, seed, 30) for seed in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)
    steps = play(spec, 2, 1000)
    assert sum(int(step.ended.sum()) for step in steps) > 0 or spec == "nethack"


def play(spec, seed, count):
    env = make_environment(spec, 2)
    generator = torch.Generator().manual_seed(seed)
    steps = [env.reset(seed)]
    actions = torch.randint(env.num_actions, (count, 2), generator=generator)
    steps += [env.step(action) for action in actions]
    names = env.action_names
    assert names is None or len(names) == env.num_actions
    env.close()
    return steps


def same(one, other):
    pairs = zip(one, other, strict=True)
    return all(torch.equal(leaf, flatten(b)[k]) for a, b in pairs for k, leaf in flatten(a).items())


@pytest.mark.parametrize("spec", [needs(spec) for spec in (*FAST, *SLOW)])
def test_every_world_is_trained_in(spec, tmp_path):
    run = discorl.train(spec, RULE, tmp_path / "run", steps=20, **TINY)
    assert run["updates"] > 0
    assert resume_run(Path(run["folder"]), steps=22)["steps"] == 22
    agent = discorl.load_agent(run["folder"])
    score = discorl.evaluate(agent, spec, 2, max_steps=10)
    assert score.episodes == 2


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_worlds_that_are_missing_say_how_to_get_them(world, monkeypatch):
    monkeypatch.setattr("discorl.envs.worlds.find_spec", lambda name: None)
    assert f"[{world.extra}]" in world.install_line or not world.extra
    with pytest.raises(DiscorlError, match=re.escape(world.install_line)):
        make_environment(world.example, 1)
    assert is_external(world.example)


def test_modules_are_not_taken_for_worlds():
    assert find_world("minigrid:MiniGrid-Empty-5x5-v0") is None
    assert find_world("crafter:make_env") is None
    assert find_world("crafter:stack=2").name == "crafter"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("NetHackScore-v0", "nethack"),
        ("MiniHack-Room-5x5-v0", "minihack/"),
        ("procgen-coinrun-v0", "procgen/"),
        ("CrafterReward-v1", "crafter"),
        ("Craftax-Symbolic-v1", "craftax"),
        ("craftax/Craftax-Classic-Pixels-v1", "craftax"),
        ("procgen", "procgen/"),
        ("coinrun", "procgen/"),
        ("minigrid", "minigrid/"),
        ("bsuite", "bsuite/"),
        ("dmlab", "dmlab/"),
    ],
)
def test_what_their_own_packages_call_them_leads_to_our_names(spec, name, monkeypatch):
    # Other tests may have imported the package that registers it.
    monkeypatch.delitem(gymnasium.registry, spec, raising=False)
    world = next(world for world in WORLDS if world.name == name)
    with pytest.raises(DiscorlError) as error:
        make_environment(spec, 1)
    assert (world.example if world.find else world.summary) in str(error.value)
    if world.find and not world.installed and spec != "coinrun":
        assert world.install_line in str(error.value)


@pytest.mark.parametrize("spec", [needs("minigrid/Nowhere-v0")])
def test_unknown_names_have_neighbours(spec):
    with pytest.raises(DiscorlError, match=r"unknown environment 'minigrid/Nowhere-v0'"):
        make_environment(spec, 1)
    with pytest.raises(DiscorlError, match=r"minigrid/DoorKey-8x8-v0 or"):
        make_environment("minigrid/DoorKey", 1)
    with pytest.raises(DiscorlError, match="text: expected at least 1"):
        make_environment("minigrid/DoorKey-5x5-v0:text=0", 1)


@pytest.mark.parametrize("spec", [needs("minigrid/GoToObject-6x6-N2-v0")])
def test_missions_are_read(spec):
    step = make_environment(spec, 2).reset(0)
    texts = [bytes(row.tolist()).rstrip(b"\0").decode() for row in step.observation["mission"]]
    assert all(text.startswith("go to the ") for text in texts)
    assert text_bytes("añb", 3).tolist() == [97, 195, 177]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [needs("crafter:steps=30")])
def test_crafter_tells_achievements(spec, tmp_path, capsys):
    run = discorl.train(spec, RULE, tmp_path / "run", steps=16, **TINY)
    assert run["score"] == "crafter_score"
    for part in ("training", "evaluation"):
        rates = run["outcomes"][part]
        assert len(rates) == 22
        assert all(0 <= rate <= 1 for rate in rates.values())
        assert run[f"score_{part}"] == pytest.approx(crafter_score(rates))
    command = ["evaluate", run["folder"], "--env", "crafter:steps=20", "--episodes", "2", "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    rates = told["sampled"]["outcomes"]
    assert told["sampled"]["score"] == {"crafter_score": pytest.approx(crafter_score(rates))}
    more = resume_run(Path(run["folder"]), steps=24)
    # What was achieved before the resume still counts.
    episodes = more["episodes"]
    wakes = more["outcomes"]["training"]["collect_sapling"] * episodes
    assert wakes == pytest.approx(round(wakes))


def test_watching_crafter_changes_nothing():
    """It draws large pictures, and takes random numbers for the grain of the night."""
    pytest.importorskip("crafter", reason="needs pip install 'discorl[crafter]'")
    make = find_world("crafter").load("crafter:find_crafter")("crafter", 1)
    alone, watched = make(), make()
    for env in (alone, watched):
        env.reset(seed=0)
        env._env._step = 200  # It is night.
    for _ in range(5):
        picture = watched.render()
        assert picture.shape == (540, 540, 3)
        assert picture.dtype == np.uint8
        assert np.array_equal(alone.step(0)[0], watched.step(0)[0])


@pytest.mark.slow
@pytest.mark.parametrize("spec", [needs("nethack:task=score"), needs("minihack/Room-5x5-v0")])
def test_nethack_is_watched_in_tiles(spec):
    env = make_environment(spec, 1)
    env.reset(0)
    assert env.renders
    assert env.frames_per_second == 6
    picture = env.render()
    assert picture.shape[2] == 3
    assert picture.any()


@pytest.mark.slow
@pytest.mark.parametrize("spec", [needs("nethack:task=score")])
def test_the_crop_is_around_the_hero(spec):
    env = make_environment(spec, 1)
    step = env.reset(0)
    column, row = (round(math.expm1(float(n))) for n in step.observation["blstats"][0, :2])
    glyphs, crop = step.observation["glyphs"][0], step.observation["crop"][0]
    assert crop[4, 4] == glyphs[row, column]
    assert crop.dtype == glyphs.dtype == torch.int16


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("procgen/coinrun:mode=extreme", "coinrun has no mode extreme; chaser, dodgeball, leaper"),
        ("procgen/bigfish:mode=memory", "bigfish has no mode memory"),
        ("procgen/miner:mode=exploration", "miner has no mode exploration"),
        ("procgen/maze:mode=exploration,levels=200", "takes neither levels nor first"),
        ("procgen/coinrnu", "Did you mean procgen/coinrun"),
    ],
)
def test_modes_that_a_procgen_game_does_not_have(spec, words):
    """Before the engine, which would end the process, is asked: so it need not be there."""
    with pytest.raises(DiscorlError, match=words):
        find_procgen(spec, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        *(needs(f"procgen/{game}:mode=easy") for game in GAMES),
        *(
            needs(f"procgen/{game}:mode={mode}")
            for mode in SOME_GAMES
            for game in sorted(SOME_GAMES[mode])
        ),
    ],
)
def test_every_procgen_game_in_every_mode(spec):
    assert all(torch.isfinite(step.reward).all() for step in play(spec, 0, 50))


@pytest.mark.slow
@pytest.mark.parametrize("spec", [needs(f"nethack:task={task}") for task in get_args(Task)])
def test_every_task_of_nethack(spec):
    steps = play(spec, 0, 50)
    assert steps[-1].observation["glyphs"].shape == (2, 21, 79)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [needs("procgen/bigfish:mode=easy,stack=3")])
def test_stacks_begin_anew_with_each_level(spec):
    steps = play(spec, 0, NUMBER)
    (ends,) = torch.nonzero(torch.stack([s.terminated[0] for s in steps]), as_tuple=True)
    assert len(ends)
    stack = steps[int(ends[0])].observation[0]
    assert stack[:2].eq(0).all()
    assert stack[2].any()


def test_workers_and_wrappers_reach_worlds():
    pytest.importorskip("minigrid", reason="needs pip install 'discorl[minigrid]'")
    config = EnvironmentConfig(env_workers=True)
    env = make_environment("minigrid/Empty-5x5-v0", 2, config=config)
    assert set(observation_leaves(env.reset(0).observation)) == {"image", "direction", "mission"}
    env.close()


def test_procgen_scores_by_hand():
    assert set(PROCGEN_EASY) == set(PROCGEN_HARD)
    assert len(PROCGEN_HARD) == 16
    assert procgen_normalized("procgen/coinrun", 7.5) == 0.5
    assert procgen_normalized("procgen/starpilot:mode=easy,levels=200", 64) == 1
    assert procgen_normalized("procgen/starpilot", 1.5) == 0
    assert procgen_normalized("procgen/starpilot:mode=extreme", 1.5) is None
    assert field_score("procgen/bigfish", 20.0).name == "procgen_normalized"


def test_crafter_scores_by_hand():
    assert crafter_score({"a": 0.0, "b": 0.0}) == 0
    assert crafter_score({"a": 1.0, "b": 1.0}) == pytest.approx(100)
    # The square root of 101, less one.
    assert crafter_score({"a": 1.0, "b": 0.0}) == pytest.approx(np.sqrt(101) - 1)


def test_crafter_intervals():
    # Worked by hand: the rate 0.04 of 96 episodes is off by 0.02, which is 0.4 of log 5; so the
    # mean of two logs is off by 0.2.
    low, high = crafter_interval({"a": 0.04, "b": 0.0}, 96)
    assert 1 + low == pytest.approx(np.sqrt(5) * np.exp(-1.96 * 0.2), rel=1e-4)
    assert 1 + high == pytest.approx(np.sqrt(5) * np.exp(1.96 * 0.2), rel=1e-4)
    assert crafter_interval({"a": 1.0, "b": 0.0}, 5) == pytest.approx([np.sqrt(101) - 1] * 2)
    # Achievements that always come together: the true score is inside in 19 of 20 runs.
    draws = np.random.default_rng(0).binomial(400, 0.3, size=2000) / 400
    true = crafter_score({"a": 0.3})
    inside = [low < true < high for low, high in (crafter_interval({"a": p}, 400) for p in draws)]
    assert 0.93 < np.mean(inside) < 0.97


@pytest.mark.parametrize(
    ("spec", "outcomes", "score"),
    [
        ("bsuite/catch/3", {"regret": 0.4}, 0.75),
        ("bsuite/catch", {"regret": 3.0}, 0),
        ("bsuite/catch_scale/3", {"regret": 0.4}, 0.75),
        ("bsuite/bandit_noise/3", {"regret": 0.1}, 0.8),
        # Half for the regret, half for one good episode.
        ("bsuite/cartpole/0", {"raw_return": 600, "good": 0.1}, 0.8),
        ("bsuite/cartpole_noise/0", {"raw_return": 600, "good": 0.0}, 0.3),
        ("bsuite/cartpole_swingup/0", {"raw_return": 70, "good": 0.0}, 0.05),
        ("bsuite/mountain_car/0", {"raw_return": -350}, 0.75),
        ("bsuite/mountain_car_scale/0", {"raw_return": -1100}, 0),
        ("bsuite/discounting_chain/1", {"raw_return": 1.05}, 0.5),
        ("bsuite/memory_len/5", {"perfect": 0.7, "regret": 0.6}, 1),
        ("bsuite/memory_size/5", {"perfect": 0.6, "regret": 0.8}, 0),
        ("bsuite/umbrella_length/5", {"regret": 0.4}, 1),
        ("bsuite/umbrella_distract/5", {"regret": 0.6}, 0),
        ("bsuite/deep_sea/0", {"bad": 0.85}, 1),
        ("bsuite/deep_sea_stochastic/0", {"bad": 0.85}, 0),
    ],
)
def test_bsuite_scores_by_hand(spec, outcomes, score):
    found = field_score(spec, 0.0, outcomes)
    assert (found.name, found.value) == ("bsuite_score", pytest.approx(score))


def test_environments_without_a_score():
    assert field_score("bsuite/deep_sea/0", 0.0, {}) is None
    assert field_score("bsuite/mnist/0", 0.0, {"regret": 1.0}) is None
    assert field_score("CartPole-v1", 1.0) is None


def test_bsuite_scores_by_capability():
    scores = {
        "bsuite/catch/0": 1.0,
        "bsuite/catch/1": 0.5,
        "bsuite/bandit": 0.25,
        "bsuite/memory_len/0": 1.0,
        "bsuite/catch_noise/0": 1.0,
        "bsuite/catch_noise/4": 0.0,
    }
    found = capability_scores(scores)
    assert found["basic"] == pytest.approx((0.75 + 0.25) / 2)
    assert found["memory"] == 1
    # Where noise grows, half of the score is the mean less the standard deviation.
    assert found["noise"] == pytest.approx((0.5 + 0.0) / 2)
    assert found["credit_assignment"] == pytest.approx((0.75 + 0.25) / 2)
    assert "exploration" not in found
    assert capability_scores({"catch": 1.0}) == {}


@pytest.mark.slow
@pytest.mark.parametrize("spec", [needs(f"bsuite/{name}/0") for name in SCORED])
def test_every_scored_experiment_tells_what_its_score_needs(spec):
    """And is known by the same capabilities as in the package."""
    info = importlib.import_module("bsuite.experiments.summary_analysis").BSUITE_INFO
    experiment = spec.split("/")[1]
    assert CAPABILITIES[experiment] == tuple(info[experiment].tags)
    env = make_environment(spec, 2)
    env.reset(0)
    for _ in range(1100):
        env.step(torch.randint(env.num_actions, (2,)))
    assert 0 <= field_score(spec, 0.0, told_by([env])).value <= 1


def test_published_figures_have_sources():
    (score, *_, far) = published_figures("crafter:size=32")
    assert score.measure == "Crafter score"
    assert score.values["PPO"] == 4.6
    assert far.values["Disco103"] == 14.56
    (coinrun, *_) = published_figures("procgen/coinrun:mode=easy")
    assert coinrun.values == {"PPO": 7.9, "PPG": 9.0}
    assert published_figures("nethack:task=score")[0].values["IMPALA"] == 189
    assert not published_figures("catch")
    assert all(figure.source and figure.steps for figure in PUBLISHED)
