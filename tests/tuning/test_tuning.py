"""Searches, tiny: trials, resuming, sharing a study, and the preset file."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import discorl
from discorl.cli.__main__ import main
from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.settings import Search
from discorl.tuning.config import TuneConfig

Study = pytest.importorskip("discorl.tuning.study", reason="needs the extra: discorl[tune]").Study

ENV = "catch:rows=3,columns=3"
SMALL = ("num_envs=4", "rollout_length=9", "batch_size=4", "replay_capacity=16", "torso=8")
FLAGS = [ENV, "--rule", "actor_critic", "--seeds", "2", "--steps", "10", "--set", *SMALL]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune") / "whole"
    settings = {"trials": 4, "seeds": 2, "steps": 10, "set": SMALL}
    search = ("learning_rate", "entropy_cost", "torso=8|8,8", "replay_ratio=1..4")
    return discorl.tune(ENV, "actor_critic", folder, search=search, **settings)


def command(*arguments):
    return [sys.executable, "-m", "discorl.cli", "tune", *FLAGS, *map(str, arguments)]


def test_trials_and_what_is_written(whole):
    assert len(whole.trials) == 4
    first = next(trial for trial in whole.trials if trial.number == 0)
    assert first.values["learning_rate"] == 0.002  # The preset's own
    assert first.values["torso"] == (8,)
    for trial in whole.trials:
        assert 1e-4 <= trial.values["learning_rate"] <= 0.03
        assert 1e-3 <= trial.values["entropy_cost"] <= 0.3
        assert trial.values["torso"] in ((8,), (8, 8))
        assert trial.values["replay_ratio"] in range(1, 5)
        assert trial.finished
    returns = [trial.mean_return for trial in whole.trials]
    assert returns == sorted(returns, reverse=True)
    written = json.loads((whole.folder / "trials.json").read_text())
    assert [trial["number"] for trial in written["trials"]] == [t.number for t in whole.trials]
    assert (whole.folder / "study.png").read_bytes().startswith(b"\x89PNG")


def test_the_preset_file_is_what_train_reads(whole, tmp_path):
    preset, out = str(whole.preset), str(tmp_path / "run")
    assert main(["train", "--config", preset, "--eval-episodes", "2", "--out", out]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    best = whole.best.values
    assert (config["env"], config["steps"]) == (ENV, 10)
    assert config["learning_rate"] == best["learning_rate"]
    assert tuple(config["torso"]) == best["torso"]
    rule = discorl.load_rule(config["rule"])
    assert rule.entropy_cost == best["entropy_cost"]


def test_a_trial_is_the_mean_of_training_runs(whole):
    best = whole.best
    returns = []
    for seed in range(2):
        config = whole.config.train_config(best.values, seed)
        trainer = discorl.Trainer(config, discorl.load_rule(config.rule))
        for _ in range(10):
            trainer.train_step()
        returns.append(trainer.life.episodes.mean_return())
    assert best.mean_return == pytest.approx(sum(returns) / 2, abs=1e-12)


def test_the_same_again_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = str(tmp_path / "t")
    assert main(["tune", *FLAGS, "--trials", "2", "--out", out]) == 0
    assert f"discorl train --config {out}/preset.json" in capsys.readouterr().out
    assert main(["resume", out, "--steps", "3", "--json"]) == 0
    text, shown = capsys.readouterr()
    assert "resuming with 2 trials done" in shown
    assert sorted(trial["number"] for trial in json.loads(text)["trials"]) == [0, 1, 2]
    assert main(["tune", *FLAGS, "--seed", "1", "--out", out]) == 2
    assert "other settings (--seed)" in capsys.readouterr().err
    assert main(["tune", "--resume", out, "--steps", "99"]) == 2
    assert "drop --steps" in capsys.readouterr().err
    assert main(["plot", out, "--out", str(tmp_path / "study.svg")]) == 0
    # What is tried depends on the seed, not on how often the search was interrupted.
    whole = discorl.tune(
        ENV, "actor_critic", tmp_path / "u", trials=3, seeds=2, steps=10, set=SMALL
    )
    resumed = json.loads((tmp_path / "t" / "trials.json").read_text())["trials"]
    assert [trial["values"] for trial in resumed] == [trial.values for trial in whole.trials]


@pytest.mark.skipif(not hasattr(signal, "SIGTERM"), reason="sends signals")
def test_two_processes_share_a_study_and_a_signal_stops_one(tmp_path):
    out = tmp_path / "t"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = os.environ | {"COLUMNS": "200"}
    two = [
        subprocess.Popen(command("--trials", 100_000, "--out", out), env=environment, **pipes)
        for _ in range(2)
    ]
    try:
        seen = ["", ""]
        for i, process in enumerate(two):
            while "  trial " not in seen[i]:
                line = process.stdout.readline()
                assert line, seen[i]
                seen[i] += line
        for process in two:
            process.send_signal(signal.SIGTERM)
        for i, process in enumerate(two):
            seen[i] += process.communicate(timeout=100)[0]
    finally:
        for process in two:
            process.kill()
    assert [process.returncode for process in two] == [143, 143], seen
    assert all(f"discorl resume {out}" in text for text in seen)
    numbers = [
        {line.split("trial ")[1].split()[0] for line in text.splitlines() if "  trial " in line}
        for text in seen
    ]
    assert not numbers[0] & numbers[1]
    done = len(numbers[0] | numbers[1])
    tuning = discorl.tune(ENV, "actor_critic", out, trials=done + 1, seeds=2, steps=10, set=SMALL)
    assert len(tuning.trials) == done + 1


def test_a_process_that_comes_second_waits_for_the_first_to_claim_the_folder(tmp_path):
    settings = {"trials": 1, "seeds": 1, "steps": 10, "set": SMALL}
    first = discorl.tune(ENV, "actor_critic", tmp_path / "first", **settings)
    # Given a folder whose configuration another process is just writing
    folder = tmp_path / "second"
    folder.mkdir()
    unfinished = folder / ".config.json.123.abcd"
    unfinished.write_text((first.folder / "config.json").read_text())
    other = threading.Timer(0.5, lambda: unfinished.rename(folder / "config.json"))
    other.start()
    # Then the search is joined, where a folder with anything else in it is refused
    assert len(discorl.tune(ENV, "actor_critic", folder, **settings).trials) == 1
    other.join()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("mine")
    with pytest.raises(DiscorlError, match=r"letter\.txt"):
        discorl.tune(ENV, "actor_critic", tmp_path / "taken", **settings)


def ask(config, path, then=None):
    """Values of a study's next trial, to which something is done then."""
    study = Study(config, config.space(), path)
    trial, values = study.ask()
    if then is not None:
        then(study, trial)
    return values


def test_a_trial_that_was_interrupted_is_taken_up_again(tmp_path):
    config = TuneConfig(env=ENV, rule="actor_critic", set=SMALL, steps=10)

    def finish(study, trial):
        study.finish(trial, float(trial.number))

    whole = [ask(config, tmp_path / "whole", finish) for _ in range(4)]
    path = tmp_path / "stopped"
    assert ask(config, path, Study.put_back) == whole[0]  # The preset's own values
    assert ask(config, path, finish) == whole[0]
    assert ask(config, path, Study.put_back) == whole[1]
    assert ask(config, path, Study.put_back) == whole[1]
    assert [ask(config, path, finish) for _ in range(3)] == whole[1:]
    assert len(Study(config, config.space(), path).trials()) == 4


def test_a_trial_whose_process_was_killed_is_taken_up_again(tmp_path):
    config = TuneConfig(env=ENV, rule="actor_critic", set=SMALL, steps=10)
    program = (
        "import json, os, sys; from pathlib import Path; from discorl.tuning.config import *\n"
        "from discorl.tuning.study import Study\n"
        "config = TuneConfig.from_json(json.load(sys.stdin))\n"
        f"Study(config, config.space(), Path({str(tmp_path / 'study')!r})).ask(); os._exit(9)\n"
    )
    given = json.dumps(config.to_json())
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, input=given, text=True, check=False).returncode == 9
    first = ask(config, tmp_path / "study")
    assert first["learning_rate"] == 0.002
    assert ask(config, tmp_path / "study") != first  # That one is under way, in this process.


def test_a_trial_that_failed_unexpectedly_is_not_tried_again(tmp_path):
    config = TuneConfig(env=ENV, rule="actor_critic", set=SMALL, steps=10)
    values = [ask(config, tmp_path / "study", Study.forget) for _ in range(3)]
    assert values[0] != values[1] != values[2]


@pytest.mark.parametrize(("pruner", "ends"), [("median", {5}), ("halving", {2, 4}), ("none", {20})])
def test_trials_are_pruned_by_their_learning_curves(pruner, ends, tmp_path, monkeypatch):
    """Agents with the lower learning rate learn nothing, and the others do."""

    def curve(config, values, stop):
        slope = 0.0 if values["learning_rate"] == 0.001 else 1.0
        yield from ((look, slope * look) for look in range(1, 21))

    monkeypatch.setattr("discorl.tuning.run.learning_curve", curve)
    tuning = discorl.tune(
        *(ENV, "actor_critic", tmp_path / "t"),
        search=("learning_rate=0.001|0.002",),
        trials=12,
        pruner=pruner,
        set=SMALL,
    )
    bad = [t for t in tuning.trials if t.values["learning_rate"] == 0.001 and t.number > 4]
    good = [t for t in tuning.trials if t.values["learning_rate"] == 0.002]
    assert bad
    assert {len(trial.curve) for trial in bad} <= ends
    assert all(trial.finished == (pruner == "none") for trial in bad)
    assert tuning.best in good
    assert tuning.best.mean_return == 20


def test_hopeless_trials_are_pruned_and_clashes_told(tmp_path):
    tuning = discorl.tune(
        *(ENV, "actor_critic", tmp_path / "t"),
        search=("learning_rate=0.001|1e38",),
        trials=6,
        seeds=1,
        steps=10,
        set=SMALL,
    )
    errors = [trial.error for trial in tuning.trials if trial.values["learning_rate"] == 1e38]
    assert errors
    assert all("is not finite" in error for error in errors)
    assert tuning.best.values == {"learning_rate": 0.001}
    with pytest.raises(DiscorlError, match="none of 2 trials went through"):
        discorl.tune(
            *(ENV, "actor_critic", tmp_path / "u"),
            search=("learning_rate=1e37|1e38",),
            trials=2,
            seeds=1,
            steps=10,
            set=SMALL,
        )


def test_what_is_searched():
    def space(*search, rule="actor_critic"):
        return TuneConfig(env=ENV, rule=rule, search=search).space()

    assert list(space()) == ["learning_rate", "entropy_cost", "discount"]
    assert list(space(rule="actor_critic:discount=0.9")) == ["learning_rate", "entropy_cost"]
    assert list(space(rule="sprout"))[:2] == ["learning_rate", "replay_ratio"]
    assert space("learning_rate")["learning_rate"] == Search(1e-4, 0.03, log=True)
    assert space("layer_norm")["layer_norm"].choices == (False, True)
    assert space("max_step=0.1..5")["max_step"] == Search(0.1, 5.0, log=True)
    for wrong, words in {
        "learnign_rate": "Did you mean learning_rate",
        "eval_max_steps": "no range is declared",
        "learning_rate=1..0.1": r"LOW\.\.HIGH",
        "torso=a|b": "torso=a",
    }.items():
        with pytest.raises(DiscorlError, match=words):
            space(wrong)


def test_without_optuna_the_line_that_installs_it_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["tune", *FLAGS, "--out", str(tmp_path / "t")]) == 2
    assert install_line("tune") in capsys.readouterr().err
