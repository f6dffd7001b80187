"""Training runs in environments from outside: what fails is said, saved, and gone on from."""

import contextlib
import json
from importlib.util import find_spec

import pytest
import torch

from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule
from discorl.life.life import PHASES
from discorl.runs.checkpoint import list_checkpoints
from discorl.training.config import TrainConfig
from discorl.training.start import load_trainer, read_config, resume_run, start_run
from discorl.training.trainer import Trainer

MODULE = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "screen": spaces.Box(0, 255, (12, 12, 3), np.uint8),
        }
    )
    action_space = spaces.MultiDiscrete([2, 2])

    def __init__(self, trouble=None, at=1000):
        self.trouble, self.at, self.total = trouble, at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        self.total += 1
        if self.total == self.at and self.trouble == "raise":
            raise RuntimeError("the simulator fell over")
        reward = 5.0 * action[0]
        return self.observe(), reward, False, self.time == 7, {}

    def observe(self):
        wrong = self.trouble == "nan" and self.total == self.at
        place = np.array([100.0 * self.time, np.nan if wrong else 3.0])
        return {"place": place, "screen": np.full((12, 12, 3), 10 * self.time, np.uint8)}


def good():
    return Walk()


def raises():
    return Walk("raise", 60)


def shows_nan():
    return Walk("nan", 60)
"""
SMALL = {
    "rule": "actor_critic",
    "num_envs": 2,
    "rollout_length": 9,
    "batch_size": 4,
    "replay_capacity": 8,
    "torso": (8,),
    "steps": 12,
    "log_every": 2,
    "checkpoint_every": 100,
    "eval_episodes": 3,
}
needs_ale = pytest.mark.skipif(
    find_spec("ale_py") is None, reason="ale-py is not installed: pip install 'discorl[atari]'"
)


def small_config(**settings):
    return TrainConfig.from_json(SMALL | settings)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module with environments, which is found in the current directory."""
    monkeypatch.chdir(tmp_path)
    name = f"walks_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_run_in_an_environment_with_all_kinds_of_observations(module, tmp_path, memory):
    # Given two copies of an environment whose episodes are cut off after 7 steps of up to 5
    settings = {"normalize_observations": True, "clip_rewards": True, "memory": memory}
    config = small_config(env=f"{module}:good", **settings, memory_size=4)
    # When it is trained in
    result = start_run(config, tmp_path / "run")
    # Then returns are what the environment paid, and every part of the time is told
    assert 0 < result["episode_return"] <= 35
    assert result["eval_episodes"] == 3
    shares = [result[f"share_{phase}"] for phase in PHASES]
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    # And the moments of the observations come back with the agent
    trainer = load_trainer(tmp_path / "run")
    moments = trainer.life.env.state_dict()
    assert any(
        torch.allclose(m[-1].double(), torch.tensor(3.0).double())
        for m in moments.values()
        if m.shape == (2,)
    )


def test_clipped_rewards_are_learned_from_and_whole_ones_reported(module, tmp_path):
    config = small_config(env=f"{module}:good", clip_rewards=True, reward_scale=0.5)
    trainer = Trainer(config, load_rule("actor_critic"))
    mind, episodes, batches = trainer.life.mind, trainer.life.episodes.recent, []
    learn = mind.learn
    mind.learn = lambda batch, *args: batches.append(batch) or learn(batch, *args)
    for _ in range(6):
        trainer.train_step()
    trainer.close()
    assert batches
    assert {float(r) for b in batches for r in b.rewards.flatten()} == {0.0, 0.5}
    assert {e.total_reward % 5 for e in episodes} == {0.0}
    assert max(e.total_reward for e in episodes) > 7
    assert {e.length for e in episodes} == {7}


@needs_ale
def test_an_atari_game_reports_points_and_their_share_of_human_play(tmp_path):
    # Given a game with rewards of 10 points, learned from as 1, in episodes of 60 actions
    settings = {"clip_rewards": True, "body": "nature", "channels": (2, 2, 2)}
    config = small_config(env="ALE/Alien-v5:noops=0,frames=240", **settings)
    # When it is trained in
    result = start_run(config, tmp_path / "run")
    # Then returns are whole points
    normalized = result["human_normalized"]
    for name in ("episode_return", "eval_return_sampled"):
        assert result[name] >= 10
        assert normalized[name] == pytest.approx((result[name] - 227.8) / (7127.7 - 227.8))
    assert sorted(normalized) == ["episode_return", "eval_return_sampled"]
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result


@needs_ale
def test_an_atari_game_without_a_finished_episode_is_judged_by_its_evaluation(tmp_path):
    settings = {"body": "nature", "channels": (2, 2, 2), "steps": 1}
    config = small_config(env="ALE/Pong-v5:noops=0,frames=80", **settings)
    result = start_run(config, tmp_path / "run")
    assert result["human_normalized"] == {
        "episode_return": None,
        "eval_return_sampled": pytest.approx((result["eval_return_sampled"] + 20.7) / 35.3),
    }


@pytest.mark.parametrize("env", ["catch:rows=4,columns=4", "{module}:good"])
def test_other_environments_have_no_human_score(module, tmp_path, env):
    config = small_config(env=env.format(module=module))
    assert "human_normalized" not in start_run(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "words"), [("raises", "raised RuntimeError: the simulator"), ("shows_nan", "nan")]
)
def test_a_failing_environment_leaves_the_agent_and_the_run_goes_on(module, tmp_path, name, words):
    # Given a run in which the environment fails at step 60 of a copy
    config = small_config(env=f"{module}:{name}")
    with pytest.raises(DiscorlError, match=rf"{name}'.*{words}.*saved.*discorl resume") as error:
        start_run(config, tmp_path / "run")
    # Then the error says where, and the agent of the last whole step is there
    assert "at step " in str(error.value)
    saved = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name for path in saved] == [f"step_{load_trainer(tmp_path / 'run').step:08d}"]
    # And going on plays new episodes, until it fails again or is done
    before = load_trainer(tmp_path / "run").step
    with contextlib.suppress(DiscorlError):
        resume_run(tmp_path / "run")
    assert load_trainer(tmp_path / "run").step > before
    assert read_config(tmp_path / "run") == config
