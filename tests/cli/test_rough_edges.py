"""The command line as a demanding newcomer meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gymnasium.envs import registration

import discorl
from discorl.cli.__main__ import main

TINY = ["--rule", "actor_critic", "--torso", "4", "--eval-episodes", "2"]
CATCH = ["train", "catch:rows=3,columns=3", *TINY]

WORLDS = """
import gymnasium, numpy as np
from gymnasium import spaces

class Endless(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    def __init__(self, reward=1.0, size="small"):
        self.reward, self.size = reward, size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), self.reward, False, False, {}

class Breaks(Endless):
    def step(self, action):
        return self.inner()
    def inner(self):
        raise RuntimeError("the simulator broke")

class Dies(Endless):
    def step(self, action):
        import os
        os._exit(3)

class Spoken(Endless):
    observation_space = spaces.Dict(text=spaces.Text(5), x=Endless.observation_space,
                                    none=spaces.Box(0, 1, (0,), np.float32))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 1.0, True, False, {}

class Nothing(Endless):
    observation_space = spaces.Box(0, 1, (0,), np.float32)

class Careless(Endless):
    def reset(self, *, seed=None, options=None):
        return np.random.rand(2).astype(np.float32), {}

class Twice(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 2 * reward, *rest

gymnasium.register("Mine-v0", Endless, max_episode_steps=4)
"""


@pytest.fixture(autouse=True)
def worlds(tmp_path, monkeypatch):
    """A module of environments in the current folder, under a name of its own for each test."""
    name = f"worlds_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(WORLDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def run(*args):
    return main([str(a) for a in args])


def error_of(capsys, *args):
    """The one line that an error is told in."""
    assert run(*args) == 2
    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1
    return errors[0]


def test_evaluation_of_endless_episodes_ends_and_says_so(worlds, capsys):
    assert (
        run(
            "train",
            f"{worlds}:Endless",
            *TINY,
            "--steps",
            2,
            "--num-envs",
            2,
            "--out",
            "a",
            "--eval-max-steps",
            30,
        )
        == 0
    )
    assert "4 episodes were cut off at --eval-max-steps" in capsys.readouterr().out
    assert discorl.load_run("a")["eval_unfinished"] == 4
    assert run("evaluate", "a", "--episodes", 2, "--max-steps", 7, "--json") == 0
    assert json.loads(capsys.readouterr().out)["greedy"]["mean_length"] == 7


def test_the_environments_own_limit_is_the_evaluations(worlds):
    assert (
        run("train", f"{worlds}:Mine-v0", *TINY, "--steps", 2, "--num-envs", 2, "--out", "a") == 0
    )
    assert discorl.load_run("a")["eval_unfinished"] == 0
    assert discorl.load_run("a").evaluate(3).mean_length == 4


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_evaluation_is_obeyed_and_the_run_can_be_resumed(worlds, signum):
    args = ["train", f"{worlds}:Endless", *TINY, "--steps", "2", "--num-envs", "2", "--out", "a"]
    process = subprocess.Popen(
        [sys.executable, "-m", "discorl.cli", *args, "--eval-max-steps", "100000000"],
        stdout=subprocess.PIPE,
        text=True,
    )
    while not list(Path("a").glob("checkpoints/step_00000002")):
        time.sleep(0.1)
        assert process.poll() is None
    time.sleep(1)
    process.send_signal(signum)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert "Resume with: discorl resume a" in out
    settings = json.loads(Path("a/config.json").read_text())
    Path("a/config.json").write_text(json.dumps(settings | {"eval_max_steps": 5}))
    assert run("resume", "a") == 0
    assert discorl.load_run("a")["steps"] == 2


def test_a_signal_in_an_evaluation_on_the_way_loses_no_record(monkeypatch):
    settings = {"torso": (4,), "eval_episodes": 3, "eval_every": 2, "log_every": 2, "steps": 6}
    whole = discorl.train("catch", "actor_critic", "whole", **settings)
    from discorl.runs.session import Interrupted, Observer
    from discorl.training.start import start_run

    stopped = []

    class Stopping(Observer):
        def evaluating(self, what, done, total):
            if not stopped and Path("cut/metrics.jsonl").read_text().count("\n") == 1:
                stopped.append(what)
                os.kill(os.getpid(), signal.SIGINT)

    config = discorl.make_config("catch", "actor_critic", **settings)
    with pytest.raises(Interrupted, match="stopped at step 4"):
        start_run(config, Path("cut"), Stopping())
    resumed = discorl.load_run("cut").resume()

    def told(run):
        return [{k: v for k, v in r.items() if not k.startswith("time/")} for r in run.metrics]

    assert told(resumed) == told(whole)


def test_whole_numbers_in_any_spelling(capsys):
    assert run(*CATCH, "--steps", "1e1", "--out", "a") == 0
    assert discorl.load_run("a")["steps"] == 10
    assert "whole number" in error_of(capsys, *CATCH, "--steps", "1.5", "--out", "b")


def test_a_budget_in_environment_steps(capsys):
    assert (
        run(*CATCH, "--env-steps", 700, "--num-envs", 8, "--rollout-length", 10, "--out", "a") == 0
    )
    assert discorl.load_run("a")["env_steps"] == 720
    words = error_of(capsys, *CATCH, "--env-steps", 700, "--steps", 3)
    assert "--steps and --env-steps: give one" in words


def test_several_seeds_and_a_configuration_from_a_file(capsys):
    assert run(*CATCH, "--steps", 4, "--seeds", 2, "--seed", 3, "--out", "a") == 0
    assert "over 2 seeds" in capsys.readouterr().out
    assert [discorl.load_run(f"a/seed_{s}").config.seed for s in (3, 4)] == [3, 4]
    assert run("train", "--config", "a/seed_3/config.json", "--seed", 9, "--out", "b") == 0
    config = discorl.load_run("b").config
    assert (config.env, config.seed, config.torso) == ("catch:rows=3,columns=3", 9, (4,))


def test_the_folder_of_several_seeds_stands_for_all_of_them(capsys):
    assert run(*CATCH, "--steps", 4, "--log-every", 2, "--seeds", 2, "--out", "a") == 0
    assert run("resume", "a", "--steps", 6) == 0
    assert [discorl.load_run(f"a/seed_{s}")["steps"] for s in (0, 1)] == [6, 6]
    capsys.readouterr()
    assert run("plot", "a", "--out", "both.png") == 0
    assert "2 runs drawn in both.png" in capsys.readouterr().out
    # A folder of other runs is still none of its own.
    assert run(*CATCH, "--steps", 4, "--out", "b/one") == 0
    assert "name one of the 1 in it" in error_of(capsys, "plot", "b")


def test_a_run_without_an_update_says_so(capsys):
    assert (
        run(
            *CATCH,
            "--steps",
            2,
            "--replay-fraction",
            0.9,
            "--num-envs",
            2,
            "--batch-size",
            20,
            "--replay-capacity",
            30,
            "--out",
            "a",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "nothing is learned in 2 steps: replay holds a batch only at step 9" in out
    assert "no update was made" in out
    assert discorl.load_run("a")["updates"] == 0


def test_settings_without_effect_are_told(capsys):
    assert run(*CATCH, "--steps", 2, "--memory-size", 8, "--env-workers", "--out", "a") == 0
    out = capsys.readouterr().out
    assert "warning: --memory-size has no effect: --memory is none" in out
    assert "warning: --env-workers has no effect: the environment is one of discorl's own" in out


@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_in_software_is_warned_of(supported, capsys, monkeypatch):
    monkeypatch.setattr("discorl.runtime._cpu_has_bfloat16", lambda: supported)
    assert run(*CATCH, "--steps", 2, "--bfloat16", "--out", "a") == 0
    assert ("no instructions for bfloat16" in capsys.readouterr().out) != supported
    assert run(*CATCH, "--steps", 2, "--out", "b") == 0
    assert "bfloat16" not in capsys.readouterr().out


def test_errors_of_ones_own_environment_name_the_place(worlds, capsys):
    words = error_of(capsys, "train", f"{worlds}:Breaks", *TINY, "--steps", 2, "--out", "a")
    line = WORLDS.splitlines().index('        raise RuntimeError("the simulator broke")') + 1
    assert f"{worlds}.py, line {line})" in words
    assert run("train", f"{worlds}:Breaks", *TINY, "--steps", 2, "--out", "b", "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_dead_worker_is_called_that(worlds, capsys):
    words = error_of(
        capsys, "train", f"{worlds}:Dies", *TINY, "--steps", 2, "--num-envs", 2, "--env-workers",
        "--out", "a",
    )  # fmt: skip
    assert "the process of copy" in words
    assert "died" in words


def test_every_command_knows_what_kind_of_run_it_is_given(capsys):
    small = ["--agents", 1, "--num-envs", 4, "--torso", 4, "--model-size", 4, "--head-hidden", 4,
             "--value-torso", 4, "--num-bins", 5, "--predictions", 4, "--hidden", 4,
             "--meta-hidden", 4, "--eval-steps", 3]  # fmt: skip
    assert run("discover", "--meta-steps", 1, *small, "--out", "d") == 0
    assert run(*CATCH, "--steps", 2, "--out", "t") == 0
    assert (
        run(
            "compare",
            "--rules",
            "actor_critic",
            "--envs",
            "catch:rows=3,columns=3",
            "--seeds",
            1,
            "--steps",
            8,
            "--set",
            "torso=4",
            "--out",
            "c",
        )
        == 0
    )
    capsys.readouterr()
    assert "d holds a discovery, not a training run" in error_of(capsys, "evaluate", "d")
    assert "d holds a discovery, not" in error_of(capsys, "train", "--resume", "d")
    assert "t already holds a training run" in error_of(capsys, "discover", "--out", "t")
    assert "a comparison, not a discovery" in error_of(capsys, "discover", "--resume", "c")
    for folder in "dtc":
        assert run("plot", folder, "--out", f"{folder}.png") == 0
        assert Path(f"{folder}.png").exists()
        assert run("resume", folder, "--steps", 2) == 0
    assert "cannot be drawn in one picture" in error_of(capsys, "plot", "d", "t")
    assert "--x seconds: the run on catch" in error_of(
        capsys, "plot", "d", "--metric", "meta/meta_loss", "--x", "seconds"
    )


def test_resume_shows_the_traceback_of_an_error_if_asked(capsys):
    assert run(*CATCH, "--steps", 2, "--out", "t") == 0
    capsys.readouterr()
    assert run("resume", "t", "--steps", 1, "--debug") == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "error: --steps 1: the run is at step 2 of 2 already" in told


def test_runs_that_differ_are_drawn_over_environment_steps(capsys):
    assert run(*CATCH, "--steps", 12, "--num-envs", 4, "--out", "a") == 0
    assert run(*CATCH, "--steps", 12, "--num-envs", 8, "--out", "b") == 0
    assert run("plot", "a", "b", "--out", "both.svg") == 0
    assert "environment steps" in text_of("both.svg")
    assert run("plot", "a", "--out", "one.svg") == 0
    assert "training steps" in text_of("one.svg")
    assert run("plot", "a", "--x", "seconds", "--out", "one.svg") == 0


def text_of(path):
    """What an SVG of matplotlib says in its comments: texts are drawn as paths."""
    return Path(path).read_text()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("MiniGrid-Empty-5x5-v0", "pip install minigrid, and give minigrid:MiniGrid-Empty-5x5-v0"),
        ("Nowhere-v0", "If another package registers it, give package:id"),
        ("cach", "unknown environment 'cach'. Did you mean catch?"),
    ],
)
def test_names_of_environments_get_a_hint(capsys, monkeypatch, env, words):
    # Other tests may have imported the package that registers it.
    known = {k: v for k, v in registration.registry.items() if not k.startswith("MiniGrid")}
    monkeypatch.setattr(registration, "registry", known)
    assert words in error_of(capsys, "train", env, "--rule", "actor_critic", "--num-envs", 4)


def test_arguments_and_wrappers_of_an_environment(worlds):
    flags = ["--env-kwargs", "reward=3", "size=large", "--env-wrappers", f"{worlds}:Twice"]
    assert run("train", f"{worlds}:Mine-v0", *TINY, *flags, "--steps", 4, "--out", "a") == 0
    assert discorl.load_run("a")["episode_return"] == 24
    assert discorl.load_run("a").config.env_kwargs == ("reward=3", "size=large")


def test_what_cannot_be_read_is_left_out_and_the_rest_is_read(worlds, capsys):
    assert run("train", f"{worlds}:Spoken", *TINY, "--steps", 2, "--out", "a") == 0
    assert "warning: observations: left out what cannot be read: none" in capsys.readouterr().err
    assert set(discorl.load_agent("a").blueprint.observation_space.spaces) == {"none", "text", "x"}
    assert "it holds no numbers" in error_of(capsys, "train", f"{worlds}:Nothing", *TINY)


def test_evaluations_of_any_checkpoint(capsys):
    assert (
        run(
            *CATCH,
            "--steps",
            6,
            "--checkpoint-every",
            2,
            "--keep-checkpoints",
            3,
            "--eval-every",
            2,
            "--out",
            "a",
        )
        == 0
    )
    capsys.readouterr()
    for name, step in [("2", 2), ("newest", 6)]:
        assert (
            run("evaluate", "a", "--checkpoint", name, "--episodes", 3, "--seed", 1, "--json") == 0
        )
        assert json.loads(capsys.readouterr().out)["step"] == step
    evaluations = {r["step"]: r["eval/return_sampled"] for r in discorl.load_run("a").metrics}
    best = discorl.load_run("a").best_agent
    assert best.info["eval_return"] == max(evaluations.values()) == evaluations[best.info["steps"]]
    assert run("evaluate", "a", "--checkpoint", "best", "--episodes", 2, "--device", "auto") == 0
    assert "no checkpoint of step 3: it has 2, 4, 6" in error_of(
        capsys, "evaluate", "a", "--checkpoint", 3
    )
    assert run(*CATCH, "--steps", 2, "--out", "b") == 0
    assert "has no best agent" in error_of(capsys, "evaluate", "b", "--checkpoint", "best")


def test_a_return_to_stop_at():
    assert run(*CATCH, "--steps", 500, "--stop-at-return", "-2", "--out", "a") == 0
    assert discorl.load_run("a")["steps"] == 10


def test_an_environment_is_checked(worlds, capsys):
    assert run("envs", "check", "CartPole-v1") == 0
    assert "a seed fixes the episodes" in capsys.readouterr().out
    assert run("envs", "check", f"{worlds}:Careless") == 1
    assert "self.np_random" in capsys.readouterr().out
    assert run("envs", "check", f"{worlds}:Endless", "--json") == 0
    findings = json.loads(capsys.readouterr().out)
    assert any("gymnasium.wrappers.TimeLimit" in f["text"] for f in findings)
    assert run("envs", "check", f"{worlds}:Breaks") == 1


def test_help_ends_with_examples_that_can_be_typed(capsys):
    for command in ("train", "discover", "distil", "compare", "resume", "evaluate", "plot", "envs"):
        with pytest.raises(SystemExit):
            run("help", command)
        assert "\nExamples:\n  discorl " in capsys.readouterr().out
    assert run("version") == 0
    assert capsys.readouterr().out.startswith("discorl ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(shell, capsys):
    assert run("completion", shell) == 0
    script = capsys.readouterr().out
    assert "evaluate" in script
    assert "replay-ratio" in script


def test_the_bash_script_completes():
    script = subprocess.run(
        [sys.executable, "-m", "discorl.cli", "completion", "bash"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    ask = 'COMP_WORDS=(discorl train --replay-r); COMP_CWORD=2; _discorl; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--replay-ratio"]


def computes(pid):
    """Whether a process is there, and not only waiting to be buried."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_comparison_leaves_no_worker():
    command = [
        sys.executable,
        "-m",
        "discorl.cli",
        "compare",
        "--rules",
        "actor_critic",
        "--envs",
        "catch",
        "--seeds",
        "2",
        "--steps",
        "100000",
        "--jobs",
        "1",
        "--out",
        "c",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    children = []
    deadline = time.monotonic() + 120
    while not any("popen_loky" in Path(f"/proc/{c}/cmdline").read_text() for c in children):
        assert process.poll() is None
        assert time.monotonic() < deadline, "no worker was started"
        time.sleep(0.2)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        children = listed.split() if Path("c/config.json").exists() else []
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while any(computes(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_environment_that_breaks_is_a_failed_run_and_no_more(worlds, capsys):
    assert (
        run(
            "compare",
            "--rules",
            "actor_critic",
            "--envs",
            "catch:rows=3,columns=3",
            f"{worlds}:Breaks",
            "--seeds",
            1,
            "--steps",
            8,
            "--set",
            "torso=4",
            "--out",
            "c",
        )
        == 1
    )
    out = capsys.readouterr().out
    assert "the simulator broke" in out
    results = json.loads(Path("c/results.json").read_text())
    assert len(results["failed"]) == 1
    catch = results["rules"]["actor_critic"]["environments"]["catch:rows=3,columns=3"]
    assert len(catch["returns"]) == 1
