"""Run folders as a newcomer meets them: nothing is overwritten, and one process writes."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

import discorl
from discorl.cli.__main__ import main
from discorl.errors import DiscorlError
from discorl.runs.folder import unused_folder, writing_to
from discorl.runs.metrics import read_metrics
from discorl.training.start import resume_run

TRAIN = ["train", "catch:rows=3,columns=3", "--rule", "actor_critic", "--torso", "4",
         "--eval-episodes", "2", "--steps", "4", "--log-every", "1"]  # fmt: skip
SMALL = {"torso": (4,), "eval_episodes": 2}
BREAKS = """
import gymnasium, numpy as np
class Breaks(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        raise RuntimeError("first line.\\n second line. ")
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    before = os.umask(0o022)
    try:
        assert main([*TRAIN, "--eval-every", "2", "--out", str(folder)]) == 0
    finally:
        os.umask(before)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    import shutil

    shutil.copytree(finished, tmp_path / "a")
    return tmp_path / "a"


def error_of(capsys, *args):
    capsys.readouterr()
    assert main([str(a) for a in args]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    return lines[-1]


def test_a_folder_with_files_of_ones_own_is_left_alone(tmp_path, capsys):
    names = ("curve.png", "metrics.jsonl", "result.json", "rule.safetensors")
    for name in names:
        (tmp_path / name).write_text("mine")
    for args in (TRAIN, ["discover"], ["compare", "--rules", "actor_critic", "--envs", "catch"]):
        words = error_of(capsys, *args, "--out", tmp_path)
        assert f"{tmp_path} is not empty, and nothing is overwritten: it holds curve.png" in words
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names)
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_a_run_without_its_settings_is_not_written_into(copied, capsys):
    (copied / "config.json").unlink()
    before = sorted(p.name for p in (copied / "checkpoints").iterdir())
    assert "is not empty" in error_of(capsys, *TRAIN, "--out", copied)
    assert sorted(p.name for p in (copied / "checkpoints").iterdir()) == before


def test_out_that_is_a_file_is_said(tmp_path, capsys):
    (tmp_path / "f").write_text("x")
    for out in (tmp_path / "f", tmp_path / "f" / "sub", tmp_path / ("x" * 300)):
        assert "choose another --out" in error_of(capsys, *TRAIN, "--out", out)
    assert (tmp_path / "f").read_text() == "x"


HOLD = """
import sys, time
from pathlib import Path
from discorl.runs.folder import writing_to
with writing_to(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_one_process_writes_and_its_lock_dies_with_it(copied, capsys):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(copied)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "locked\n"
        for args in (["resume", copied], ["train", "--resume", copied, "--steps", 6]):
            assert f"is being written to by process {process.pid} on" in error_of(capsys, *args)
        assert main(["evaluate", str(copied), "--episodes", "2"]) == 0
        assert main(["plot", str(copied), "--out", str(copied.parent / "p.png")]) == 0
    finally:
        process.kill()
        process.wait()
    assert main(["resume", str(copied), "--steps", "6"]) == 0


def test_a_process_does_not_write_twice_at_once(tmp_path):
    with writing_to(tmp_path), pytest.raises(DiscorlError, match="this one"), writing_to(tmp_path):
        pass


def test_default_names_are_unique_in_one_second():
    assert len({unused_folder("catch") for _ in range(20)}) > 15


def test_colleagues_may_read_what_the_umask_lets_them(finished):
    modes = {p.relative_to(finished): stat.S_IMODE(p.stat().st_mode) for p in finished.rglob("*")}
    assert any(path.name == "state.safetensors" for path in modes)
    for path, mode in modes.items():
        assert mode == (0o755 if (finished / path).is_dir() else 0o644), path


def test_a_run_is_not_cut_short_by_resuming_it(copied, capsys):
    before = (copied / "config.json").read_bytes()
    for args in (["train", "--resume", copied], ["resume", copied]):
        words = error_of(capsys, *args, "--steps", 2)
        assert "--steps 2: the run is at step 4 of 4 already" in words
    assert (copied / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 20000 / 512}, "--steps: expected a whole number, got 39.0625"),
        ({"learning_rate_schedule": "steep"}, "--learning-rate-schedule: expected one of"),
        ({"seed": 2**70}, "--seed: expected a number from"),
        ({"seed": np.float32(3.5)}, "--seed: expected a whole number"),
        ({"num_envs": 8.5}, "--num-envs: expected a whole number"),
    ],
)
def test_settings_in_python_are_checked_before_anything_is_written(tmp_path, settings, words):
    with pytest.raises(DiscorlError, match=words):
        discorl.train("catch", "actor_critic", tmp_path / "a", **SMALL, **settings)
    assert not (tmp_path / "a").exists()


def test_whole_numbers_of_any_kind_and_folders_as_texts(tmp_path):
    whole = {"steps": np.int64(2), "seed": np.int32(3), "num_envs": 8.0}
    run = discorl.train("catch:rows=3,columns=3", "actor_critic", tmp_path / "a", **SMALL, **whole)
    assert (run["steps"], run["seed"], run.config.num_envs) == (2, 3, 8)
    assert resume_run(str(tmp_path / "a"), np.int64(3))["steps"] == 3
    assert run.evaluate(np.int64(2), seed=np.int64(3), max_steps=np.int32(1)).mean_length == 1
    assert run.load_agent(3).info["steps"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"episodes": 2.5}, "episodes: expected a whole number, got 2.5"),
        ({"episodes": 0}, "episodes: expected at least 1, got 0"),
        ({"seed": "a"}, "seed: expected a whole number"),
        ({"max_steps": -1}, "max_steps: expected at least 1"),
    ],
)
def test_arguments_of_evaluations_are_checked(finished, arguments, words):
    for evaluate in (
        discorl.load_run(finished).evaluate,
        lambda **given: discorl.evaluate(discorl.load_agent(finished), "catch", **given),
    ):
        with pytest.raises(DiscorlError, match=words):
            evaluate(**arguments)


def test_a_run_that_never_began_leaves_no_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "worlds_that_break.py").write_text(BREAKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    args = ["train", "worlds_that_break:Breaks", *TRAIN[2:], "--out", "a"]
    assert "raised RuntimeError: first line. second line. (" in error_of(capsys, *args)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"[]", "expected an object of settings"),
        ("metrics.jsonl", b"\xff\xfe{}\n", "cannot be read"),
        ("metrics.jsonl", b"3\n", "line 1 is not a record of metrics"),
        ("metrics.jsonl", b'{"step": 1}\n{"st\n{"step": 3}\n', "line 2 is not a record of metrics"),
        ("metrics.jsonl", b'{"step": true}\n', "line 1 is not a record of metrics"),
        ("config.json", None, '"seed": null'),
    ],
)
def test_damaged_files_are_said_and_stay_as_they_are(copied, capsys, name, content, words):
    path = copied / name
    if content is None:
        content = path.read_bytes().replace(b'"seed": 0', b'"seed": null')
        words = "--seed: expected a whole number, got None"
    path.write_bytes(content)
    assert words in error_of(capsys, "resume", copied)
    assert path.read_bytes() == content


def test_values_that_are_no_numbers_are_not_drawn(copied, capsys):
    record = {
        "step": 1,
        "charts/episode_return": 1.0,
        "charts/env_steps": "x",
        "time/seconds": None,
    }
    (copied / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    out = copied.parent / "p.png"
    assert main(["plot", str(copied), "--out", str(out)]) == 0
    for axis in ("env_steps", "seconds"):
        words = error_of(capsys, "plot", copied, "--x", axis, "--out", out)
        assert f"--x {axis}: the run on" in words


@pytest.mark.parametrize(
    "values",
    [
        [],
        {"seconds": 3, "unlogged": []},
        {"seconds": {}},
        {"seconds": {"acting": [1]}, "unlogged": []},
        {"seconds": {"acting": None}, "unlogged": []},
    ],
)
def test_a_checkpoint_whose_values_are_damaged_is_said(copied, capsys, values):
    for path in (copied / "checkpoints").glob("*/meta.json"):
        meta = json.loads(path.read_text())
        path.write_text(json.dumps(meta | {"values": values}))
    before = (copied / "metrics.jsonl").read_bytes()
    if isinstance(values, list):  # As good as none: it begins again, and says so.
        with pytest.warns(UserWarning, match="is damaged"):
            assert discorl.load_run(copied).resume()["steps"] == 4
        return
    assert "does not fit this run" in error_of(capsys, "resume", copied)
    assert (copied / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("network", "torso", ["x"]),
        ("network", "torso", [10**30]),
        ("heads", "state", {"logits": [1, "x"]}),
        ("action_space", "n", 10**30),
        ("action_space", "n", -3),
    ],
)
def test_an_agent_that_is_described_wrongly_is_said(copied, capsys, part, name, value):
    path = copied / "agent.json"
    values = json.loads(path.read_text())
    assert name in values[part]
    values[part][name] = value
    path.write_text(json.dumps(values))
    assert error_of(capsys, "evaluate", copied)


def test_a_cut_last_record_is_left_out(copied):
    whole = read_metrics(copied)
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "char')
    assert read_metrics(copied) == whole


def test_checkpoints_by_number_or_name(copied, capsys):
    for name in ("4", "00000004", "step_00000004"):
        assert main(["evaluate", str(copied), "--checkpoint", name, "--episodes", "2"]) == 0
    assert "Give one of them, or newest, or best" in error_of(
        capsys, "evaluate", copied, "--checkpoint", "beest"
    )
