"""`discorl discover`: runs that are stopped or killed, and runs of several processes."""

import json
import os
import random
import signal
import time
from functools import partial

import programs
import pytest
import torch
from programs import CLI, TWO, is_writing, last_tensors, rank, records, start, timeless

from discorl.cli.__main__ import main
from discorl.discovery.start import read_discovery_config
from discorl.library.catalogue import load_rule

META_STEPS = 6
SMALL = [
    *("--widths", "16", "--model-size", "8", "--head-hidden", "8", "--value-torso", "16", "16"),
    *("--num-envs", "4", "--rollout-length", "6", "--lifetimes", "4", "8", "--agents", "3"),
    *("--predictions", "12", "--hidden", "16", "--meta-hidden", "8"),
    *("--envs", "catch:rows=5,columns=5", "catch:rows=4,columns=3@2"),
    *("--eval-steps", "10", "--eval-every", "3", "--checkpoint-every", "2", "--log-every", "1"),
]
DISCOVER = ["discover", *SMALL, "--meta-steps", META_STEPS]
finish = partial(programs.finish, timeout=240)
wait_until = partial(programs.wait_until, timeout=120)


def assert_same_end(one, other):
    """Bit for bit: checkpoints, rules, evaluations, and metrics but for the clocks."""
    first, second = last_tensors(one), last_tensors(other)
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert timeless(one) == timeless(other)
    for name in ("rule.safetensors", "best_rule.safetensors"):
        rules = [load_rule(folder / name) for folder in (one, other)]
        for key, tensor in rules[0].params.items():
            assert torch.equal(tensor, rules[1].params[key]), key
    assert (one / "evaluations.json").read_text() == (other / "evaluations.json").read_text()


def assert_near_end(one, other, tolerance=1e-10):
    """As `assert_same_end` for sums in another order: each tensor by its largest magnitude."""
    first, second = last_tensors(one), last_tensors(other)
    assert list(first) == list(second)
    assert {name.partition("/")[0] for name in first} == {
        *("agent_0000", "agent_0001", "agent_0002", "rule", "meta_adam")
    }
    for name, tensor in first.items():
        if tensor.is_floating_point():
            scale = tensor.abs().max().item() if tensor.numel() else 0.0
            torch.testing.assert_close(second[name], tensor, rtol=0, atol=tolerance * scale)
        else:
            assert torch.equal(tensor, second[name]), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupts, and what it printed."""
    folder = tmp_path_factory.mktemp("discover") / "whole"
    code, out, err = finish(start(*DISCOVER, "--json", "--out", folder))
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
    assert (result["meta_steps"], result["processes"]) == (META_STEPS, 1)
    assert f"discovering from random, seed 0 -> {folder}" in err
    assert f"step {META_STEPS}/{META_STEPS}" in err


def test_flags_go_into_the_configuration(whole):
    config = read_discovery_config(whole[0])
    assert (config.widths, config.lifetimes, config.sizes.hidden) == ((16,), (4, 8), 16)
    assert config.envs == ("catch:rows=5,columns=5", "catch:rows=4,columns=3@2")
    assert config.meta_learning_rate == 5e-4


def test_a_run_for_people_and_its_rule_in_training(inside, tmp_path):
    folder = tmp_path / "run"
    code, out, err = inside("discover", *SMALL, "--meta-steps", 2, "--out", folder)
    assert code == 0, err
    assert "3 agents on catch:rows=4,columns=3, catch:rows=5,columns=5" in out
    assert "2 meta-steps. Fresh agents trained by the rule reach" in out
    assert f"discorl train catch --rule {folder}/best_rule.safetensors" in out
    small = ["--torso", 8, "--batch-size", 2, "--steps", 3, "--eval-episodes", 2]
    rule = ["--rule", folder / "best_rule.safetensors", "--out", tmp_path / "trained"]
    code, _, err = inside("train", "catch", *rule, *small)
    assert code == 0, err
    code, out, err = inside("rules", "show", folder / "best_rule.safetensors")
    assert code == 0, err
    assert "discovered from random by discorl" in out
    assert inside("rules", "export", folder / "rule.safetensors", tmp_path / "mine.npz")[0] == 0
    assert load_rule(tmp_path / "mine.npz").params.keys() == (
        load_rule(folder / "rule.safetensors").params.keys()
    )


def test_a_configuration_file_restarts_the_run(inside, whole, tmp_path):
    file = ["--config", whole[0] / "config.json"]
    code, _, err = inside("discover", *file, "--out", tmp_path / "again")
    assert code == 0, err
    assert_same_end(whole[0], tmp_path / "again")
    # Flags go before it.
    code, _, err = inside("discover", *file, "--meta-steps", 1, "--out", tmp_path / "short")
    assert code == 0, err
    config = read_discovery_config(tmp_path / "short")
    assert (config.meta_steps, config.widths) == (1, (16,))


def test_a_run_can_be_extended(inside, whole, tmp_path):
    folder = tmp_path / "run"
    assert inside("discover", *SMALL, "--meta-steps", 3, "--out", folder)[0] == 0
    code, out, err = inside("discover", "--resume", folder, "--meta-steps", META_STEPS, "--json")
    assert code == 0, err
    assert json.loads(out)["meta_steps"] == META_STEPS
    assert_same_end(whole[0], folder)


def test_what_can_be_mended_is_said_in_one_line(inside, whole, tmp_path):
    for flags, message in [
        (["--envs", "catsh"], "Did you mean catch?"),
        (["--envs", "catch@x"], "'x' is not a weight"),
        (["--init", "actor_critic"], "not a discovered rule"),
        (["--lifetimes", "1"], "--lifetimes"),
        (["--agents", "0"], "--agents: expected at least 1"),
        (["--config-file", tmp_path / "none.json"], "none.json does not exist"),
    ]:
        code, out, err = inside(*DISCOVER, *flags, "--out", tmp_path / "run")
        assert code == 2, flags
        assert message in err
        assert "Traceback" not in out + err
        assert not (tmp_path / "run").exists()
    code, _, err = inside(*DISCOVER, "--out", whole[0])
    assert code == 2
    assert f"discorl resume {whole[0]}" in err


@pytest.mark.parametrize("flags", [["--seed", "1"], ["--hidden", "8"], ["--out", "x"]])
def test_resuming_takes_no_other_settings(inside, whole, flags):
    before = (whole[0] / "config.json").read_bytes()
    code, _, err = inside("discover", "--resume", whole[0], *flags)
    assert code == 2
    assert f"drop {flags[0]}" in err
    assert (whole[0] / "config.json").read_bytes() == before


def test_a_stopped_run_says_how_to_resume_and_does(inside, whole, tmp_path):
    folder = tmp_path / "run"
    process = start(*DISCOVER, "--out", folder)
    assert wait_until(process, lambda: records(folder) >= 2)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 143, err
    assert "SIGTERM" in out
    assert f"discorl resume {folder}" in out
    assert "Traceback" not in out + err
    assert not (folder / "result.json").exists()
    code, out, err = inside("discover", "--resume", folder)
    assert code == 0, err
    assert "resuming from meta-step" in out
    assert_same_end(whole[0], folder)


def begin_or_resume(folder, program=CLI, flags=()):
    """What a person would type: a folder with no run in it is begun again."""
    if (folder / "config.json").exists():
        return start("discover", "--resume", folder, program=program)
    return start(*DISCOVER, *flags, "--out", folder, program=program)


def kill_when(process, condition):
    """Kill without warning once a condition holds; whether it came to that."""
    happened = wait_until(process, condition)
    process.kill()
    finish(process)
    return happened


def test_killed_again_and_again_a_run_ends_the_same(inside, whole, tmp_path):
    """At the start, around the first checkpoint, and between an evaluation and a checkpoint."""
    folder = tmp_path / "run"
    assert kill_when(begin_or_resume(folder), (folder / "config.json").exists)
    assert kill_when(begin_or_resume(folder), lambda: is_writing(folder) or records(folder) > 2)
    assert kill_when(begin_or_resume(folder), (folder / "evaluations.json").exists)
    code, _, err = inside("discover", "--resume", folder)
    assert code == 0, err
    assert not is_writing(folder)
    assert_same_end(whole[0], folder)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(10))
def test_killed_at_any_moment_a_run_ends_the_same(whole, tmp_path, trial):
    folder, rng = tmp_path / "run", random.Random(trial)
    for kind in [["delay", "records", "writing"][trial % 3], rng.choice(["delay", "records"])]:
        process = begin_or_resume(folder)
        begun, delay, wanted = time.monotonic(), rng.uniform(0, 6), rng.randint(1, 8)
        condition = {
            "delay": lambda begun=begun, delay=delay: time.monotonic() > begun + delay,
            "records": lambda wanted=wanted: records(folder) >= wanted,
            "writing": lambda: is_writing(folder),
        }[kind]
        kill_when(process, condition)
    code, _, err = finish(begin_or_resume(folder))
    assert code == 0, err
    assert_same_end(whole[0], folder)


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """The run in float64, in one process."""
    folder = tmp_path_factory.mktemp("discover") / "exact"
    code, _, err = finish(start(*DISCOVER, "--float64", "--out", folder))
    assert code == 0, err
    return folder


def test_two_processes_are_one(exact, tmp_path):
    folder = tmp_path / "run"
    process = begin_or_resume(folder, TWO, ["--float64", "--json"])
    code, out, err = finish(process)
    assert code == 0, err
    # One of them speaks.
    assert json.loads(out)["processes"] == 2
    assert_near_end(exact, folder)
    ours, theirs = timeless(folder), timeless(exact)
    assert [list(record) for record in ours] == [list(record) for record in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_process_ends_the_run_and_it_is_resumed_in_one(inside, exact, tmp_path, number):
    folder = tmp_path / "run"
    process = begin_or_resume(folder, TWO, ["--float64"])
    assert wait_until(process, lambda: records(folder) >= 3)
    os.kill(rank(process, number), signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 128 + signal.SIGKILL
    assert f"process {1 - number} of 2 gave up: process {number} died" in err
    assert "Traceback" not in out + err
    assert not (folder / "result.json").exists()
    code, out, err = inside("discover", "--resume", folder)
    assert code == 0, err
    assert "resuming from meta-step" in out
    assert_near_end(exact, folder)


def test_a_signal_to_the_launcher_stops_all_processes_quietly(tmp_path):
    folder = tmp_path / "run"
    process = begin_or_resume(folder, TWO)
    assert wait_until(process, lambda: records(folder) >= 1)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 143, err
    assert f"Resume with: discorl resume {folder}" in out
    assert "Traceback" not in out + err
    assert last_tensors(folder)


@pytest.mark.slow
def test_a_process_that_hangs_stops_the_others(tmp_path):
    folder = tmp_path / "run"
    process = begin_or_resume(folder, TWO, ["--process-timeout", 5])
    assert wait_until(process, lambda: records(folder) >= 1)
    os.kill(rank(process, 1), signal.SIGSTOP)
    code, out, err = finish(process)
    assert code == 2, err
    assert "process 0 of 2 gave up: process 1 died or cannot be reached" in err
    assert "Traceback" not in out + err
