"""Environments that misbehave are named, with what they did and when."""

import multiprocessing
import os
import signal
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from strange_envs import Strange, Twins

from discorl.envs import make_environment
from discorl.envs.base import EnvironmentConfig
from discorl.envs.external import make_gymnasium
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.errors import DiscorlError
from discorl.runs.session import stop_signals

# Gymnasium shows the traces of workers as warnings.
pytestmark = pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")


def play(env, steps):
    env.reset(0)
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, dtype=torch.int64))


def strange_module(monkeypatch, tmp_path, trouble, at=3):
    name = f"trouble_{trouble.replace(' ', '_')}_{at}"
    source = (
        f"from strange_envs import Strange\ndef make():\n    return Strange({trouble!r}, {at})\n"
    )
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:make"


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("nan", ["observation", "nan"]),
        ("inf", ["observation", "inf"]),
        ("reward", ["reward", "nan"]),
        ("shape", ["float32[4]", "float32[1]"]),
        ("dtype", ["float32[4]", "complex64[4]"]),
        ("ragged", ["observation"]),
        ("action space", ["action space changed", "Discrete(3)"]),
        ("action space in place", ["action space changed", "Discrete(3)"]),
        ("raise", ["raised RuntimeError: the simulator fell over"]),
    ],
)
def test_trouble_is_named(trouble, words, workers, monkeypatch, tmp_path):
    spec = strange_module(monkeypatch, tmp_path, trouble)
    env = make_environment(spec, 2, config=EnvironmentConfig(env_workers=workers))
    play(env, 2)
    with pytest.raises(DiscorlError) as error:
        env.step(torch.zeros(2, dtype=torch.int64))
    env.close()
    for word in [f"environment '{spec}'", *words, "at step 3"]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("method", "returned", "words"),
    [
        ("reset", np.zeros(4, np.float32), "reset() must return observation, info, as Gymnasium"),
        ("reset", (np.zeros(4, np.float32), None), "of which info is a dict, got NoneType"),
        ("step", (np.zeros(4, np.float32), 0.0, True, {}), "terminated, truncated, info, as Gym"),
        ("step", (np.zeros(4, np.float32), None, True, False, {}), "a number, got None"),
        ("step", (np.zeros(4, np.float32), np.ones(2), True, False, {}), "a number, got array(["),
    ],
)
def test_what_is_returned_is_checked(method, returned, words):
    kind = type("Odd", (Strange,), {method: lambda self, *args, **kwargs: returned})
    env = make_gymnasium("odd", partial(kind, "", 0), 2)
    with pytest.raises(DiscorlError) as error:
        play(env, 1)
    assert str(error.value).startswith("environment 'odd': ")
    assert words in str(error.value)


@pytest.mark.parametrize("reward", [1, np.float32(1), np.ones(1), torch.ones(()), True])
def test_rewards_of_all_kinds_are_read(reward):
    step = (np.zeros(4, np.float32), reward, False, False, {})
    kind = type("Odd", (Strange,), {"step": lambda self, action: step})
    env = make_gymnasium("odd", partial(kind, "", 0), 2)
    env.reset(0)
    assert env.step(torch.zeros(2, dtype=torch.int64)).reward.tolist() == [1, 1]


def test_the_original_error_is_kept():
    env = GymnasiumEnvironment(SyncVectorEnv([partial(Strange, "raise", 1000)]), "far")
    play(env, 999)
    place = r"\(.*strange_envs\.py, line \d+\)"
    message = f"environment 'far' raised RuntimeError: the simulator fell over {place} at step 1000"
    with pytest.raises(DiscorlError, match=f"^{message}$") as error:
        env.step(torch.tensor([0]))
    assert isinstance(error.value.__cause__, RuntimeError)


def test_the_entry_is_named():
    env = GymnasiumEnvironment(SyncVectorEnv([Twins]), "twins")
    with pytest.raises(DiscorlError, match=r"'twins': observation entry 'bad.x': nan.*at step 1"):
        play(env, 1)


def test_stepping_before_a_reset_is_an_error():
    with pytest.raises(DiscorlError, match=r"'CartPole-v1' raised ResetNeeded.*at step 1"):
        make_environment("CartPole-v1", 1).step(torch.tensor([0]))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_hung_worker_is_ended(wrapped):
    vector = AsyncVectorEnv([Strange, partial(Strange, "hang", 2), Strange])
    processes = list(vector.processes)
    if wrapped:
        vector = RecordEpisodeStatistics(vector)
    env = GymnasiumEnvironment(vector, "stuck", timeout=2)
    play(env, 1)
    words = r"environment 'stuck': copy 1 did not answer within 2 seconds at step 2"
    with pytest.raises(DiscorlError, match=words):
        env.step(torch.zeros(3, dtype=torch.int64))
    # Joined too: a process that was ended but not waited for has no exit code yet.
    assert all(process.exitcode is not None for process in processes)
    env.close()


def test_a_killed_worker_is_reported_and_the_others_are_ended():
    vector = AsyncVectorEnv([Strange] * 2)
    env = GymnasiumEnvironment(vector, "killed", timeout=20)
    play(env, 1)
    vector.processes[1].kill()
    vector.processes[1].join()
    with pytest.raises(DiscorlError, match="'killed': the process of copy 1 died at step 2"):
        env.step(torch.zeros(2, dtype=torch.int64))
    assert all(process.exitcode is not None for process in vector.processes)
    env.close()


def test_workers_that_failed_are_ended():
    vector = AsyncVectorEnv([Strange, partial(Strange, "raise", 1)])
    env = GymnasiumEnvironment(vector, "e")
    with pytest.raises(DiscorlError, match="RuntimeError"):
        play(env, 1)
    assert all(process.exitcode is not None for process in vector.processes)
    env.close()


def test_signals_stop_the_run_and_not_its_workers():
    before = set(multiprocessing.active_children())
    with stop_signals():
        config = EnvironmentConfig(env_workers=True)
        env = make_environment("strange_envs:Strange", 2, config=config)
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    env.reset(0)
    for worker in workers:
        os.kill(worker.pid, signal.SIGINT)
    env.step(torch.zeros(2, dtype=torch.int64))
    for worker in workers:
        worker.terminate()
        worker.join(20)
        assert worker.exitcode == -signal.SIGTERM
    with pytest.raises(DiscorlError):
        env.step(torch.zeros(2, dtype=torch.int64))
    env.close()


class Raw(VectorEnv):
    """A vector environment that hands out what it was given."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    num_envs = 2
    single_observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (3,), np.float32)})
    single_action_space = spaces.Discrete(2)

    def __init__(self, **changes):
        good = {
            "observation": {"x": np.zeros((2, 3), np.float32)},
            "rewards": np.zeros(2),
            "terminated": np.zeros(2, bool),
            "truncated": np.zeros(2, bool),
            "info": {},
        }
        self.answer = tuple({**good, **changes}.values())

    def reset(self, *, seed=None, options=None):
        return {"x": np.zeros((2, 3), np.float32)}, {}

    def step(self, actions):
        return self.answer


CUT = {"truncated": np.array([False, True])}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation": {"x": np.zeros((2, 4), np.float32)}}, "'x'.*float32.3.*float32.4"),
        ({"observation": {"x": np.zeros((2, 3), complex)}}, "'x'.*float32.3.*complex128.3"),
        ({"observation": {"x": np.zeros((5, 3), np.float32)}}, "5 copies instead of 2"),
        ({"observation": {"x": np.float32(0)}}, "'x'.*float32.3"),
        ({"observation": {}}, "'x' is missing"),
        ({"observation": 7}, "'x' is missing"),
        ({"rewards": np.zeros((2, 1))}, r"rewards: expected \[2\], got \[2, 1\]"),
        ({"rewards": np.array([0, np.inf])}, "reward: inf"),
        ({"terminated": False}, r"terminations: expected \[2\], got \[\]"),
        (
            {**CUT, "info": {"final_obs": {"x": np.full((2, 3), np.nan)}}},
            "'x': nan",
        ),
        (
            {**CUT, "info": {"final_obs": np.array([None, {"x": np.zeros(2)}], dtype=object)}},
            r"'x'.*float32\[3\].*float64\[2\]",
        ),
    ],
)
def test_what_vector_environments_hand_out_is_checked(changes, words):
    env = GymnasiumEnvironment(Raw(**changes), "raw")
    with pytest.raises(DiscorlError, match=rf"environment 'raw': .*{words}.* at step 1"):
        play(env, 1)


def test_garbage_in_rows_that_go_on_is_nobodys_business():
    final = {"x": np.array([[np.nan] * 3, [0.5] * 3])}
    env = GymnasiumEnvironment(Raw(**CUT, info={"final_obs": final}), "raw")
    env.reset(0)
    step = env.step(torch.zeros(2, dtype=torch.int64))
    assert step.last["x"].tolist() == [[0] * 3, [0.5] * 3]
    assert step.truncated.tolist() == [False, True]


def test_a_vector_environment_whose_action_space_changes():
    vector = Raw()
    env = GymnasiumEnvironment(vector, "raw")
    play(env, 1)
    vector.single_action_space = spaces.Discrete(2, start=1)
    with pytest.raises(DiscorlError, match=r"action space changed.*start=1.* at step 2"):
        env.step(torch.zeros(2, dtype=torch.int64))
