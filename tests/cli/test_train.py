"""`discorl train`, `evaluate`, `plot` and `envs`, and runs that are stopped or killed."""

import json
import random
import signal
import time
from functools import partial

import programs
import pytest
import torch
from programs import is_writing, last_checkpoint, records, start, timeless
from safetensors.torch import load_file

import discorl.cli.train
from discorl.cli.__main__ import main
from discorl.cli.commands import COMMANDS
from discorl.library.catalogue import save_rule
from discorl.runs.checkpoint import list_checkpoints
from discorl.runs.metrics import read_metrics
from discorl.training.config import TrainConfig
from discorl.training.start import read_config

STEPS = 120
SMALL = [
    *("--torso", "16", "16", "--model-size", "8", "--head-hidden", "8"),
    *("--batch-size", "8", "--num-envs", "2", "--rollout-length", "9", "--replay-capacity", "64"),
    *("--replay-fraction", "1"),
    *("--checkpoint-every", "10", "--log-every", "5", "--eval-episodes", "5"),
]
CATCH = ["train", "catch:rows=5,columns=5", "--rule", "actor_critic", *SMALL]
finish = partial(programs.finish, timeout=120)
wait_until = partial(programs.wait_until, timeout=60)

KILL_AT_SYNC = """
import os, signal, sys
from discorl.cli.__main__ import main
from discorl.runs import checkpoint

calls, plain = 0, checkpoint.sync

def sync(path):
    global calls
    calls += 1
    if calls == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    plain(path)

checkpoint.sync = sync
sys.exit(main(sys.argv[2:]))
"""
"""Runs a command that dies by SIGKILL the n-th time a checkpoint's file or folder is flushed."""


def run(*arguments):
    return finish(start(*arguments))


def assert_same_end(one, other):
    assert last_checkpoint(one).name == last_checkpoint(other).name
    first, second = (load_file(last_checkpoint(f) / "state.safetensors") for f in (one, other))
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert timeless(one) == timeless(other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts, and what it printed."""
    folder = tmp_path_factory.mktemp("cli") / "whole"
    code, out, err = run(*CATCH, "--steps", STEPS, "--json", "--out", folder)
    assert code == 0, err
    return folder, out, err


@pytest.fixture
def inside(monkeypatch, capsys):
    """Run a command in this process, with one thread as in the others."""
    monkeypatch.setenv("COLUMNS", "200")
    torch.set_num_threads(1)

    def call(*arguments):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as end:  # The parser's own way out.
            code = end.code
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_run_prints_json_and_nothing_else_on_standard_output(whole):
    folder, out, err = whole
    result = json.loads(out)
    assert result == json.loads((folder / "result.json").read_text())
    assert (result["steps"], result["env"]) == (STEPS, "catch:rows=5,columns=5")
    assert f"seed 0 -> {folder}" in err
    assert f"step {STEPS}/{STEPS}" in err


def test_flags_go_into_the_configuration(whole):
    config = read_config(whole[0])
    assert (config.torso, config.batch_size, config.rollout_length) == ((16, 16), 8, 9)
    # What was not given comes from the preset of the rule.
    assert config.learning_rate == 0.002


def test_a_run_for_people(inside, tmp_path):
    code, out, _ = inside(*CATCH, "--steps", 6, "--out", tmp_path / "run", "--seed", 4)
    assert code == 0
    assert "actor_critic on catch:rows=5,columns=5, seed 4" in out
    assert "6 steps (108 environment steps" in out
    assert f"are in {tmp_path / 'run'}" in out


def test_a_discovered_rule_by_its_path(inside, tiny_rule, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_rule(tiny_rule, path)
    arguments = ["train", "catch:rows=5,columns=5", *SMALL, "--rule", path, "--steps", 8, "--json"]
    code, out, err = inside(*arguments, "--out", tmp_path / "run")
    assert code == 0, err
    assert json.loads(out)["rule"] == str(path)
    assert (tmp_path / "run" / "rule.safetensors").is_file()
    # What was not given comes from the preset of discovered rules.
    assert read_config(tmp_path / "run").learning_rate == 0.007
    assert "losses/pi_loss" in read_metrics(tmp_path / "run")[-1]


@pytest.mark.parametrize("flags", [["--seed", "3"], ["--learning-rate", "0.001", "--seed", "3"]])
def test_the_environment_may_be_left_out(inside, tmp_path, flags):
    small = ["--steps", 3, *SMALL, "--out", tmp_path / "run"]
    code, _, err = inside("train", *flags, *small)
    assert code == 0, err
    config = read_config(tmp_path / "run")
    assert (config.env, config.seed) == ("catch", 3)


def test_the_environment_may_come_last(inside, tmp_path):
    arguments = ["train", "--steps", 3, *SMALL, "--out", tmp_path / "run", "catch:rows=4"]
    code, _, err = inside(*arguments)
    assert code == 0, err
    assert read_config(tmp_path / "run").env == "catch:rows=4"


def test_without_a_folder_a_new_one_is_made_under_runs(inside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = inside(*CATCH, "--steps", 3)
    assert code == 0, err
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("catch_rows_5_columns_5-actor_critic-s0-")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "cathc"], ["unknown environment 'cathc'", "Did you mean catch?"]),
        (["train", "catch:row=5"], ["'row'", "Did you mean rows?"]),
        (["train", "catch", "--rule", "actor_critc"], ["'actor_critc'", "actor_critic"]),
        (["train", "catch", "--batch-size", "0"], ["--batch-size: expected at least 1"]),
        (["train", "catch", "--device", "gpu9"], ["--device gpu9"]),
        (["trian"], ["unknown command 'trian'", "Did you mean train?"]),
        (["evaluate", "/nowhere/run"], ["/nowhere/run holds no run"]),
        (["train", "--resume", "/nowhere/run"], ["/nowhere/run holds no run"]),
        (["plot", "/nowhere/run"], ["/nowhere/run holds no run", "no such folder"]),
    ],
)
def test_mistakes_are_explained_in_a_line(inside, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = inside(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert "Traceback" not in err + out
    for word in words:
        assert word in err
    assert not list(tmp_path.iterdir())


def test_mistakes_are_explained_by_the_real_program(tmp_path):
    code, out, err = run("train", "cathc", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert "Did you mean catch?" in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_not_overwritten(inside, whole):
    code, _, err = inside(*CATCH, "--steps", 3, "--out", whole[0])
    assert code == 2
    assert f"discorl resume {whole[0]}" in err


@pytest.mark.parametrize("flags", [["--learning-rate", "0.5"], ["--seed", "1"], ["--out", "x"]])
def test_resuming_takes_no_other_settings(inside, whole, flags):
    before = read_config(whole[0])
    code, _, err = inside("train", "--resume", whole[0], *flags)
    assert code == 2
    assert flags[0] in err
    assert read_config(whole[0]) == before


def test_a_run_can_be_extended(inside, whole, tmp_path):
    folder = tmp_path / "run"
    assert inside(*CATCH, "--steps", 20, "--out", folder)[0] == 0
    code, out, err = inside("train", "--resume", folder, "--steps", STEPS, "--json")
    assert code == 0, err
    assert json.loads(out)["steps"] == STEPS
    assert_same_end(whole[0], folder)


@pytest.mark.parametrize("steps", [None, TrainConfig.steps, 1001])
def test_the_steps_asked_for_are_the_steps_given(inside, whole, monkeypatch, steps):
    asked = []
    resume = discorl.cli.train.resume_run

    def watch(folder, new_steps=None, observer=None, threads=None):
        asked.append(new_steps)
        return resume(folder, observer=observer, threads=threads)

    monkeypatch.setattr(discorl.cli.train, "resume_run", watch)
    flags = [] if steps is None else ["--steps", steps]
    code, _, err = inside("train", "--resume", whole[0], *flags)
    assert code == 0, err
    # Not asked is the same as what the run was meant for.
    assert asked[0] in ((None, STEPS) if steps is None else (steps,))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_resume_and_does(inside, whole, tmp_path, signum, code):
    folder = tmp_path / "run"
    process = start(*CATCH, "--steps", STEPS, "--out", folder)
    assert wait_until(process, lambda: records(folder) >= 2)
    process.send_signal(signum)
    found, out, err = finish(process)
    assert found == code, err
    assert signum.name in out
    assert f"discorl resume {folder}" in out
    assert "Traceback" not in out + err
    assert not (folder / "result.json").exists()
    found, out, err = inside("train", "--resume", folder)
    assert found == 0, err
    assert "resuming from step" in out
    assert_same_end(whole[0], folder)


def kill_when(process, condition):
    """Kill without warning once a condition holds; whether it came to that."""
    happened = wait_until(process, condition)
    process.kill()
    finish(process)
    return happened


def begin_or_resume(folder, steps, program=("-m", "discorl.cli"), leading=()):
    """What a person would type: a folder with no run in it is begun again."""
    if (folder / "config.json").exists():
        return start(*leading, "train", "--resume", folder, program=program)
    return start(*leading, *CATCH, "--steps", steps, "--out", folder, program=program)


def assert_whole_checkpoints(folder):
    for path in list_checkpoints(folder / "checkpoints"):
        assert load_file(path / "state.safetensors")
        assert json.loads((path / "meta.json").read_text())["step"] == int(path.name[5:])


def test_killed_again_and_again_a_run_ends_the_same(whole, tmp_path):
    """Killed at the start, while a checkpoint is written, in mid-step and beside a checkpoint."""
    folder = tmp_path / "run"
    assert kill_when(begin_or_resume(folder, STEPS), (folder / "config.json").exists)
    # The sixth flush is the second checkpoint's: its state is there, the rest is not yet.
    process = begin_or_resume(folder, STEPS, ("-c", KILL_AT_SYNC), (6,))
    assert finish(process)[0] == -signal.SIGKILL
    assert is_writing(folder)
    assert [p.name for p in list_checkpoints(folder / "checkpoints")] == ["step_00000010"]
    assert_whole_checkpoints(folder)
    assert kill_when(begin_or_resume(folder, STEPS), lambda: records(folder) >= 7)
    assert_whole_checkpoints(folder)
    time_of_leftover = {p: p.stat().st_mtime_ns for p in (folder / "checkpoints").glob(".tmp_*")}
    kill_when(
        begin_or_resume(folder, STEPS),
        lambda: set((folder / "checkpoints").glob(".tmp_*")) - set(time_of_leftover),
    )
    assert_whole_checkpoints(folder)
    code, _, err = finish(begin_or_resume(folder, STEPS))
    assert code == 0, err
    assert not is_writing(folder)
    assert_same_end(whole[0], folder)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(20))
def test_killed_at_any_moment_a_run_ends_the_same(whole, tmp_path, trial):
    folder, rng = tmp_path / "run", random.Random(trial)
    kinds = ["delay", "records", "writing", "sync"]
    for kind in [kinds[trial % 4], rng.choice(kinds)]:
        if kind == "sync":
            leading = (rng.randint(1, 4 * STEPS // 10),)
            finish(begin_or_resume(folder, STEPS, ("-c", KILL_AT_SYNC), leading))
        else:
            process = begin_or_resume(folder, STEPS)
            begun, delay, wanted = time.monotonic(), rng.uniform(0, 6), rng.randint(1, 24)
            condition = {
                "delay": lambda begun=begun, delay=delay: time.monotonic() > begun + delay,
                "records": lambda wanted=wanted: records(folder) >= wanted,
                "writing": lambda: is_writing(folder),
            }[kind]
            kill_when(process, condition)
        assert_whole_checkpoints(folder)
    code, _, err = finish(begin_or_resume(folder, STEPS))
    assert code == 0, err
    assert_same_end(whole[0], folder)


def test_evaluate(inside, whole):
    code, out, err = inside("evaluate", whole[0], "--episodes", 20, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["step"] == STEPS
    for kind in ("greedy", "sampled"):
        assert result[kind]["episodes"] == 20
        assert -1 <= result[kind]["mean_return"] <= 1
        assert result[kind]["mean_length"] == 4
    assert inside("evaluate", whole[0], "--episodes", 20, "--json")[1] == out
    code, out, _ = inside("evaluate", whole[0], "--episodes", 3)
    assert code == 0
    assert f"at step {STEPS}, 3 episodes each" in out
    assert inside("evaluate", whole[0], "--episodes", 0)[0] == 2


def test_plot_two_seeds(inside, whole, tmp_path):
    other = tmp_path / "run"
    assert inside(*CATCH, "--steps", 10, "--seed", 1, "--out", other)[0] == 0
    picture = tmp_path / "deep" / "curves.png"
    code, out, err = inside("plot", whole[0], other, "--out", picture)
    assert code == 0, err
    assert "2 runs drawn" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, _, err = inside("plot", whole[0], "--metric", "losses/nothing", "--out", picture)
    assert code == 2
    assert "no metric 'losses/nothing'" in err


def test_seeds_can_be_stacked(inside, tmp_path):
    out = tmp_path / "seeds"
    code, text, err = inside(*CATCH, "--steps", 4, "--seeds", 2, "--stacked", "--out", out)
    assert code == 0, err
    assert "episode return over 2 seeds" in text
    assert sorted(path.name for path in out.iterdir()) == ["seed_0", "seed_1"]
    assert inside("plot", out / "seed_0", out / "seed_1", "--out", tmp_path / "p.png")[0] == 0
    code, _, err = inside(*CATCH, "--steps", 4, "--stacked", "--out", tmp_path / "one")
    assert code == 2
    assert "--stacked: only with --seeds of two or more" in err


def test_envs(inside):
    code, out, _ = inside("envs")
    assert code == 0
    assert "catch" in out
    assert "rows=8" in out
    code, out, _ = inside("envs", "--json")
    assert {"rows": 8, "columns": 8} in [entry["settings"] for entry in json.loads(out)]


def test_no_command_and_help_list_the_commands(inside):
    for arguments, expected in (([], 2), (["--help"], 0), (["-h"], 0)):
        code, out, err = inside(*arguments)
        assert code == expected
        for command in COMMANDS:
            assert f"discorl {command}" in out + err


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(inside, command):
    code, out, _ = inside(command, "--help")
    assert code == 0
    assert f"discorl {command}" in out


def test_help_of_train_shows_the_preset_of_the_rule(inside):
    for rule, words in {
        "actor_critic": ("--resume", "--learning-rate", "0.002", "64 32 32"),
        "sprout": ("0.005", "64 64"),
    }.items():
        _, out, _ = inside("train", "catch", "--rule", rule, "--help")
        assert all(word in out for word in words)


def test_the_rule_of_the_package_is_the_default(inside, tmp_path):
    flags = ["--steps", 2, "--num-envs", 4, "--out", tmp_path / "run", "--eval-episodes", 2]
    code, out, _ = inside("train", "catch:rows=4,columns=4", *flags)
    assert code == 0
    assert "sprout on catch:rows=4,columns=4, seed 0" in out


def test_an_unknown_flag_is_refused(inside, tmp_path):
    code, out, err = inside(*CATCH, "--leaning-rate", "1", "--out", tmp_path / "run")
    assert code == 2
    assert "leaning-rate" in out + err
    assert not (tmp_path / "run").exists()


def test_the_version(inside):
    code, out, _ = inside("--version")
    assert code == 0
    assert out.startswith("discorl ")
    assert torch.__version__ in out
