"""`discorl bench atari`: what it measures and compares; how fast that is, no test says."""

import io
import json
from contextlib import redirect_stdout
from importlib.util import find_spec

import pytest
import torch
from gymnasium.vector import VectorEnv

from discorl.bench import atari as bench
from discorl.bench.atari import make_emulator
from discorl.cli.__main__ import main
from discorl.envs.atari import make_atari
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.life.life import PHASES

needs_ale = pytest.mark.skipif(
    find_spec("ale_py") is None, reason="ale-py is not installed: pip install 'discorl[atari]'"
)
OURS = ("environment", "acting", "training")
BENCH = ["bench", "atari", "--num-envs", "2", "--rounds", "5"]


@pytest.fixture(scope="module")
def measured():
    """A bench's figures as JSON, which take a while."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main([*BENCH, "--game", "ALE/Breakout-v5", "--json"]) == 0
    return json.loads(printed.getvalue())


@needs_ale
def test_speeds_and_their_ratios_to_the_emulator(measured):
    figures = measured
    assert (figures["game"], figures["rule"]) == ("ALE/Breakout-v5", "sprout")
    assert (figures["num_envs"], figures["rounds"]) == (2, 5)
    for name in ("emulator", *OURS):
        assert figures[f"{name}_env_steps_per_second"] > 0
    for name in OURS:
        for ratio in (f"{name}_over_emulator", f"{name}_cpu_over_emulator"):
            assert 0 < figures[f"{ratio}_from"] <= figures[ratio] <= figures[f"{ratio}_to"]
    shares = [figures[f"training_share_{phase}"] for phase in PHASES]
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1)


@needs_ale
def test_training_without_replay_is_timed_in_every_way(capsys, monkeypatch):
    # Given a processor that may announce bfloat16 and fail
    ways = {way: {} if "bfloat16" in way else own for way, own in bench._WAYS.items()}
    monkeypatch.setattr(bench, "_WAYS", ways)
    assert main([*BENCH, "--rule", "actor_critic", "--no-replay", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["replay"] == "none"
    for way in ways:
        assert figures[f"{way}_over_emulator"] > 0
        assert figures[f"{way}_cpu_over_emulator"] > 0


@needs_ale
def test_a_table_for_people(measured, capsys, monkeypatch):
    monkeypatch.setattr(bench, "bench_atari", lambda *_: measured)
    assert main(BENCH) == 0
    shown = capsys.readouterr().out
    for words in (
        "ALE/Breakout-v5",
        "sprout",
        "environment over emulator",
        "training share learning",
    ):
        assert words in shown


@needs_ale
def test_the_emulator_plays_the_same_games_as_our_environment():
    before = dict(VectorEnv.metadata)
    emulator = GymnasiumEnvironment(make_emulator("ALE/SpaceInvaders-v5", 2), "emulator")
    ours = make_atari("ALE/SpaceInvaders-v5", 2)
    # Without the spreading of seeds, which is ours alone.
    steps = [emulator.reset(7), GymnasiumEnvironment.reset(ours, 7)]
    generator = torch.Generator().manual_seed(0)
    rewards = 0.0
    for action in torch.randint(ours.num_actions, (150, 2), generator=generator):
        assert torch.equal(steps[0].observation, steps[1].observation)
        steps = [env.step(action) for env in (emulator, ours)]
        assert torch.equal(steps[0].reward, steps[1].reward)
        rewards += float(steps[0].reward.sum())
    assert rewards > 2, "points, not signs of them"
    assert VectorEnv.metadata == before


@needs_ale
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--rounds", "2"], "--rounds: at least 5"),
        (["--game", "catch"], "--game catch: expected an Atari game"),
        (["--game", "ALE/Pong-v5:sticky=0"], "without settings"),
        (["--game", "ALE/Pnog-v5"], "ALE/Pong-v5"),
        (["--num-envs", "0"], "--num-envs"),
        (["--rule", "sprot"], "sprout"),
    ],
)
def test_mistakes_are_explained(arguments, error, capsys):
    assert main(["bench", "atari", *arguments]) == 2
    assert error in capsys.readouterr().err.replace("\n", " ")
