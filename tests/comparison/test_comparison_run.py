"""Whole comparisons, tiny: results, going on, failures, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from discorl.cli.__main__ import main
from discorl.comparison.config import CompareConfig
from discorl.comparison.run import resume_comparison, start_comparison
from discorl.errors import DiscorlError
from discorl.library.catalogue import save_rule
from discorl.rules.disco import DiscoRule

ENVS = ("catch:rows=3,columns=3", "catch:rows=4,columns=3")
SMALL = (
    *("num_envs=4", "rollout_length=9", "batch_size=4", "replay_capacity=16"),
    *("torso=8", "model_size=4", "head_hidden=4"),
)
VARIANT = "actor_critic:learning_rate=0.01"
REPORTS = {"results.json", "table.md", "curves.png", "scores.png"}


class Watcher:
    def __init__(self):
        self.started, self.cells = None, []

    def preparing(self, what):
        pass

    def start(self, title, cells, done):
        self.started = (cells, done)

    def waiting(self, under_way):
        pass

    def finished(self, cell, outcome):
        self.cells.append(str(cell))


@pytest.fixture(scope="module")
def rule_file(tiny_rule, tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "mine.safetensors"
    save_rule(tiny_rule, path)
    return path


@pytest.fixture(scope="module")
def config(rule_file):
    rules = ("actor_critic", VARIANT, str(rule_file))
    return CompareConfig(rules=rules, envs=ENVS, seeds=2, steps=6, set=SMALL)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """A comparison that nothing interrupts, its folder, and what was seen of it."""
    folder, watcher = tmp_path_factory.mktemp("compare") / "whole", Watcher()
    summary = start_comparison(config, folder, jobs=1, observer=watcher)
    return summary, folder, watcher


@pytest.fixture
def command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        code = main(["compare", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def cell_files(folder):
    return sorted((folder / "cells").iterdir())


def scores(folder):
    """Every final return, and nothing about time."""
    rules = json.loads((folder / "results.json").read_text())["rules"]
    return {
        (rule, env): values["returns"]
        for rule, part in rules.items()
        for env, values in part["environments"].items()
    }


def test_every_cell_is_there_with_its_curve(whole, config):
    _, folder, watcher = whole
    assert (watcher.started, len(watcher.cells)) == ((12, 0), 12)
    cells = [json.loads(path.read_text()) for path in cell_files(folder)]
    found = {(cell["rule"], cell["env"], cell["seed"]) for cell in cells}
    assert found == {(r, e, s) for r in config.rules for e in ENVS for s in range(2)}
    for cell in cells:
        assert (cell["steps"], cell["env_steps"]) == (6, 6 * 9 * 4)
        assert cell["curve"][-1] == [6, cell["final_return"]]
        assert cell["config"]["torso"] == [8]
    rates = {cell["rule"]: cell["config"]["learning_rate"] for cell in cells}
    assert rates == dict(zip(config.rules, (0.002, 0.01, 0.007), strict=True))


def test_reports(whole):
    summary, folder, _ = whole
    assert {path.name for path in folder.iterdir()} >= REPORTS
    results = json.loads((folder / "results.json").read_text())
    assert results == summary.as_json()
    assert results["environments"][ENVS[0]]["random_episodes"] == 4096
    for part in results["rules"].values():
        assert part["iqm"]["low"] <= part["iqm"]["value"] <= part["iqm"]["high"]
    table = (folder / "table.md").read_text()
    assert table.startswith("| environment | 0 is | 1 is | actor_critic | ")
    assert "| IQM [95% interval] |" in table
    for name in ("curves.png", "scores.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_only_what_is_missing_runs_and_gives_the_same(whole, tmp_path):
    folder = shutil.copytree(whole[1], tmp_path / "cmp")
    deleted, *kept = cell_files(folder)
    times = {path: path.stat().st_mtime_ns for path in kept}
    deleted.unlink()
    # With a seed more, on another number of processes
    watcher = Watcher()
    resume_comparison(folder, seeds=3, jobs=2, observer=watcher)
    assert (watcher.started, len(watcher.cells)) == ((18, 11), 7)
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    assert {key: returns[:2] for key, returns in scores(folder).items()} == scores(whole[1])


def test_the_same_again_runs_nothing(whole, config, command):
    summary, folder, _ = whole
    watcher = Watcher()
    assert start_comparison(config, folder, observer=watcher).as_json() == summary.as_json()
    assert (watcher.started, watcher.cells) == ((12, 12), [])
    code, out, err = command("--resume", folder, "--json")
    assert code == 0
    assert "resuming with 12 of them done" in err
    assert "IQM [95% interval]" in err
    assert json.loads(out) == summary.as_json()


def test_a_rule_file_that_changes_is_noticed(whole, config, rule_file, tiny_rule):
    _, folder, _ = whole
    data = rule_file.read_bytes()
    try:
        save_rule(DiscoRule.random(tiny_rule.config, seed=1), rule_file)
        with pytest.raises(DiscorlError, match="has changed since"):
            start_comparison(config, folder, jobs=1)
        rule_file.unlink()
        resume_comparison(folder, jobs=1)  # It has a copy.
    finally:
        rule_file.write_bytes(data)


def test_a_run_that_fails_leaves_the_others_alone(command, tmp_path):
    bad = "actor_critic:learning_rate=1e38"
    flags = ["--rules", bad, "actor_critic", "--envs", ENVS[0], "--seeds", 1, "--steps", 6]
    code, out, _ = command(*flags, "--set", *SMALL, "--jobs", 1, "--out", tmp_path)
    assert code == 1
    assert "2/2  actor_critic on catch:rows=3,columns=3, seed 0  return " in out
    assert "IQM [95% interval]" in out
    assert f"failed: {bad} on catch:rows=3,columns=3, seed 0: " in out
    assert "is not finite at step" in out
    assert f"discorl resume {tmp_path}" in out
    assert len(cell_files(tmp_path)) == 1
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(cell["rule"], cell["seed"]) for cell in results["failed"]] == [(bad, 0)]
    assert results["rules"][bad]["iqm"] is None
    assert results["rules"]["actor_critic"]["iqm"] is not None


def test_other_settings_need_another_folder(whole, config, command):
    _, folder, _ = whole
    flags = ["--rules", *config.rules, "--envs", *ENVS, "--seeds", 2, "--set", *SMALL]
    code, _, err = command(*flags, "--steps", 7, "--out", folder)
    assert code == 2
    assert "other settings (--steps)" in err
    assert f"discorl resume {folder}" in err
    code, _, err = command("--resume", folder, "--steps", 7)
    assert code == 2
    assert "drop --steps" in err
    code, _, err = command("--resume", folder, "--out", "elsewhere")
    assert code == 2
    assert "drop --out" in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--rules", "actor_critc"], "Did you mean actor_critic"),
        (["--rules", "policy_gradient"], "needs advantages"),
        (["--rules", "nowhere/rule.npz"], "nowhere/rule.npz"),
        (["--envs", "catch", "cathc"], "unknown environment 'cathc'. Did you mean catch"),
        (["--envs", "catch:row=5"], "Did you mean rows"),
        (["--envs", "catch:columns=1"], "random play is perfect play"),
        (["--set", "nmu_envs=4"], "Did you mean num_envs"),
        (["--rules", "actor_critic:batch_size=0"], "batch_size=0: expected at least 1"),
        (["--jobs", "0"], "--jobs: expected at least 1"),
    ],
)
def test_mistakes_are_explained_before_anything_runs(command, tmp_path, monkeypatch, flags, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("--rules", "actor_critic", "--envs", "catch", *flags)
    assert code == 2
    assert out in ("", "measuring random play in 1 environment\n")
    assert err.startswith("error: ")
    assert words in err
    assert not list(tmp_path.iterdir())


def test_environments_from_outside_at_equal_experience(command, tmp_path):
    flags = ["--rules", "actor_critic", "--envs", "Pendulum-v1", "--seeds", 1, "--jobs", 1]
    flags += ["--env-steps", 1000, "--set", *SMALL, "discretize_actions=3", "--out", tmp_path]
    code, out, err = command(*flags)
    assert (code, err) == (0, "")
    results = json.loads((tmp_path / "results.json").read_text())
    anchors = results["environments"]["Pendulum-v1"]
    assert (anchors["random_episodes"], anchors["optimal_return"]) == (100, None)
    assert results["rules"]["actor_critic"]["env_steps"] == 28 * 36
    assert "Runs have 1,000 environment steps" in out
    assert command("--resume", tmp_path, "--jobs", 1)[0] == 0
    code, _, err = command("--resume", tmp_path, "--env-steps", 2000)
    assert (code, "drop --env-steps" in err) == (2, True)
    code, _, err = command("--resume", tmp_path, "--steps", 5)
    assert (code, "give one of them" in err) == (2, True)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="sends a signal to a process group")
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "cmp"
    arguments = ["--rules", "actor_critic:steps=3", "actor_critic", "--envs", ENVS[0]]
    arguments += ["--seeds", "1", "--steps", "1000000", "--jobs", "1", "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "discorl.cli", "compare", *arguments, "--set", *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not list((folder / "cells").glob("*.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # As a terminal does it: to the workers too.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped by SIGINT with 1 of 2 runs done" in out
    assert f"discorl resume {folder}" in out
    assert "Traceback" not in out + err
