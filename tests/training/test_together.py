"""Several seeds of one run as one computation."""

import json
import signal

import pytest
import torch

from discorl.errors import DiscorlError
from discorl.runs.checkpoint import load_latest
from discorl.runs.folder import CHECKPOINTS, RESULT_FILE
from discorl.runs.metrics import read_metrics
from discorl.runs.session import Interrupted, Observer
from discorl.training.presets import make_config
from discorl.training.start import resume_run, start_run
from discorl.training.together import start_runs

SEEDS = (3, 4, 5)
SMALL = {
    "num_envs": 4,
    "rollout_length": 6,
    "torso": (8,),
    "steps": 6,
    "log_every": 2,
    "checkpoint_every": 2,
    "eval_episodes": 2,
    "eval_max_steps": 20,
}


def small(env="catch:rows=5,columns=5", rule="actor_critic", **settings):
    return make_config(env, rule, **{**SMALL, **settings})


def tensors(folder):
    return load_latest(folder / CHECKPOINTS).tensors


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("catch:rows=5,columns=5", {"replay_ratio": 2}),
        ("memory:delay=2", {"memory": "gru", "memory_size": 4, "burn_in": 2}),
        ("CartPole-v1", {"learning_rate_schedule": "linear", "warmup_updates": 2}),
    ],
)
def test_each_seed_is_the_run_that_it_is_alone(tmp_path, env, settings):
    config = small(env, **settings)
    results = start_runs(config, SEEDS, tmp_path / "all")
    assert [result["seed"] for result in results] == list(SEEDS)
    for seed, result in zip(SEEDS, results, strict=True):
        together, alone = tmp_path / "all" / f"seed_{seed}", tmp_path / f"alone_{seed}"
        start_run(small(env, seed=seed, **settings), alone)
        assert json.loads((together / RESULT_FILE).read_text()) == result
        mine, theirs = tensors(together), tensors(alone)
        assert set(mine) == set(theirs)
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-5, msg=name)
        steps = [record["step"] for record in read_metrics(together)]
        assert steps == [record["step"] for record in read_metrics(alone)] == [2, 4, 6]


class Stopper(Observer):
    """Sends a signal at a step, and keeps what it was shown."""

    def __init__(self, step=None):
        self.step, self.shown = step, []

    def progress(self, progress):
        self.shown.append(progress)
        if progress.step == self.step:
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_saves_every_seed_and_each_is_resumed_alone(tmp_path):
    with pytest.raises(Interrupted):
        start_runs(small(checkpoint_every=100), SEEDS, tmp_path, Stopper(2))
    for seed in SEEDS:
        folder = tmp_path / f"seed_{seed}"
        assert load_latest(folder / CHECKPOINTS).step in (2, 3)
        assert resume_run(folder)["steps"] == 6


def test_progress_is_the_mean_over_seeds(tmp_path):
    shown = Stopper()
    start_runs(small(), SEEDS, tmp_path, shown)
    assert [progress.step for progress in shown.shown] == [2, 4, 6]
    losses = [read_metrics(tmp_path / f"seed_{seed}")[-1]["rule/entropy"] for seed in SEEDS]
    assert shown.shown[-1].metrics["rule/entropy"] == pytest.approx(sum(losses) / 3)


def test_a_seed_that_has_seen_enough_ends_and_the_others_go_on(tmp_path):
    config = small("bandit:arms=2", stop_at_return=0.0, log_every=1, steps=8)
    results = start_runs(config, SEEDS, tmp_path)
    ended = [result["steps"] for result in results]
    alone = [
        start_run(
            small("bandit:arms=2", stop_at_return=0.0, log_every=1, steps=8, seed=seed),
            tmp_path / f"alone_{seed}",
        )["steps"]
        for seed in SEEDS
    ]
    assert ended == alone
    assert min(ended) < 8


def test_a_lucky_episode_is_not_enough(tmp_path):
    # Every arm gives at least that, from the first episode on
    config = small("bandit:arms=2", stop_at_return=-100.0, log_every=1, steps=8)
    result = start_run(config, tmp_path / "a")
    # But the return is that of a hundred episodes
    records = read_metrics(tmp_path / "a")
    assert result["steps"] < 8
    assert records[-2]["charts/episodes"] < 100 <= records[-1]["charts/episodes"]


@pytest.mark.parametrize("name", ["compile", "overlap"])
def test_what_cannot_be_stacked_is_said(tmp_path, name):
    with pytest.raises(DiscorlError, match=f"--stacked: not with --{name}"):
        start_runs(small(**{name: True}), SEEDS, tmp_path)
    assert not list(tmp_path.iterdir())
