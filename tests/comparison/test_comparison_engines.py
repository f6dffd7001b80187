"""One comparison on every engine: the same results to the bit, though workers are killed."""

import json
import os
import signal
import threading
import time

import psutil
import pytest

import discorl
from discorl.cli.__main__ import main
from discorl.comparison.config import CompareConfig
from discorl.comparison.run import start_comparison

OPTIONS = {"local": {}, "ray": {}, "slurm": {"cluster": "local"}}
NEEDS = {"local": "loky", "ray": "ray", "slurm": "submitit"}
WORKERS = {
    "local": "loky.backend.popen_loky",
    "ray": "ray::_run",
    "slurm": "submitit.core._submit",
}
"""What a worker's command line holds."""
SMALL = ("num_envs=4", "rollout_length=9", "batch_size=4", "replay_capacity=16", "torso=8")
RULES = ("actor_critic", "actor_critic:learning_rate=0.01", "actor_critic:discount=0.9", "sprout")


def results(folder):
    """Every cell, but for the time that it took."""
    cells = [json.loads(path.read_text()) for path in sorted((folder / "cells").iterdir())]
    return [{name: value for name, value in cell.items() if name != "seconds"} for cell in cells]


def kill_workers(name, count, killed, folder):
    """Kill so many workers, each after five more cells have been done."""
    deadline = time.monotonic() + 1000
    while len(killed) < count and time.monotonic() < deadline:
        time.sleep(0.1)
        if len(list((folder / "cells").glob("*.json"))) < 5 * (len(killed) + 1):
            continue
        for process in psutil.Process().children(recursive=True):
            try:
                line = " ".join(process.cmdline())
                if WORKERS[name] in line and process.pid not in killed:
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
                    break
            except (psutil.Error, ProcessLookupError):
                continue


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The comparison in processes that nobody kills."""
    config = CompareConfig(
        rules=RULES, envs=("catch:rows=5,columns=5",), seeds=10, steps=20, set=SMALL
    )
    folder = tmp_path_factory.mktemp("engines") / "undisturbed"
    start_comparison(config, folder)
    return config, folder


@pytest.mark.slow
@pytest.mark.parametrize("name", list(OPTIONS)[::-1])
def test_forty_cells_with_two_workers_killed(name, undisturbed, tmp_path, monkeypatch):
    pytest.importorskip(NEEDS[name])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    config, folder = undisturbed
    killed = []
    killer = threading.Thread(target=kill_workers, args=(name, 2, killed, tmp_path / "cmp"))
    killer.start()
    where = {"engine": name, "engine_options": OPTIONS[name]}
    summary = start_comparison(config, tmp_path / "cmp", jobs=2, **where)
    killer.join()
    print(f"{name}: killed {killed}, {len(results(tmp_path / 'cmp'))} cells")
    assert len(killed) == 2
    assert summary.failed == []
    assert len(results(tmp_path / "cmp")) == 40
    assert results(tmp_path / "cmp") == results(folder)


def test_an_engine_is_chosen_by_flag_and_from_python(tmp_path, capsys, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("COLUMNS", "200")
    flags = ["--rules", "actor_critic", "--envs", "catch:rows=3,columns=3", "--steps", "4"]
    flags += ["--seeds", "1", "--set", *SMALL, "--out", str(tmp_path / "jobs")]
    flags += ["--engine", "slurm", "--engine-options", "cluster=local", "timeout_min=5"]
    assert main(["compare", *flags]) == 0
    assert "as jobs of local" in capsys.readouterr().out
    assert list((tmp_path / "jobs" / "jobs").glob("*_result.pkl"))
    again = discorl.compare(
        "actor_critic", "catch:rows=3,columns=3", tmp_path / "own", seeds=1, steps=4, set=SMALL
    )
    assert again.failed == []
    assert results(tmp_path / "jobs") == results(tmp_path / "own")
    # With another engine than the one it was begun with
    options = ["--engine", "local", "--engine-options", "retries=0", "--jobs", "1"]
    assert main(["resume", str(tmp_path / "jobs"), "--steps", "2", *options]) == 0
    assert len(results(tmp_path / "jobs")) == 2


def test_an_engine_is_for_comparisons(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"env": "catch"}))
    assert main(["resume", str(tmp_path), "--engine", "ray"]) == 2
    assert "--engine is for comparisons; this is a training run" in capsys.readouterr().err
