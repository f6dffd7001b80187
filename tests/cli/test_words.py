"""What the command line says: one line for a mistake, examples for help, and progress."""

import os
import subprocess
import sys

import pytest

from discorl.cli.__main__ import COMMANDS, _show_warning, main
from discorl.cli.completion import known_flags
from discorl.envs import checker
from discorl.errors import UnknownNameError
from discorl.runs import display


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("train catch --stepz 3", "unknown: --stepz, 3. Did you mean --steps? See `discorl train"),
        ("train catch --steps abc", "--steps: expected a whole number, got abc. See"),
        ("train catch --steps 1e400", "--steps: expected a whole number, got 1e400. See"),
        ("train catch --env-steps abc", "--env-steps: expected a whole number, got abc. See"),
        ("train catch --value-width x", "--value-width: could not convert string to float: 'x'"),
        ("train catch --seed 99999999999999999999", "--seed: expected a number from"),
        ("evaluate", "PATH A training run's folder. See `discorl evaluate --help`"),
        ("plot --x foo a", "invalid choice 'foo' for argument '--x'"),
        ("completion tcsh", "('bash', 'zsh', 'fish'). See"),
        (
            "train FrozenLake-v1 --env-kwargs is_slippery=fals",
            "--env-kwargs is_slippery=fals: expected true or false",
        ),
        ("train CartPole-v1:x=3,y=2", "give their arguments by flag: CartPole-v1 --env-kwargs x=3"),
        ("plot nowhere", "nowhere holds no run: there is no such folder"),
        ("plot " + "x" * 300, "File name too long"),
        ("train catch --rule actor_critic --torso 99999999999999", "not enough memory: "),
        (
            "train catch --torso 1000000000000000000000000000000",
            "--torso: expected a smaller number",
        ),
        ("help nope", "unknown command 'nope'"),
    ],
)
def test_a_mistake_is_told_in_one_line(args, words, capsys):
    assert main(args.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert words.lower() in err.lower()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_flags_are_suggested_whatever_the_terminal_can_show(encoding):
    done = subprocess.run(
        [sys.executable, "-m", "discorl.cli", "evaluate", "a", "--episode", "3"],
        capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 2
    words = "error: unknown: --episode, 3. Did you mean --episodes? See `discorl evaluate --help`"
    assert done.stderr.strip() == words


def test_a_good_guess_is_not_hidden_in_a_long_list():
    names = [f"game_{number}" for number in range(50)]
    assert "Known" not in str(UnknownNameError("game", "game_77", names))
    assert "Known: game_0" in str(UnknownNameError("game", "zzz", names))


def test_warnings_take_one_line_without_colours(capsys):
    _show_warning("\x1b[33mWARN: something\nand more\x1b[0m")
    _show_warning("\x1b[31mERROR: Received the following error from Worker-0\x1b[0m")
    assert capsys.readouterr().err == "warning: something\n"


@pytest.mark.parametrize("command", [*COMMANDS, "rules show", "bench learner"])
def test_every_help_ends_with_examples(command, capsys):
    with pytest.raises(SystemExit):
        main(["help", *command.split()])
    examples = capsys.readouterr().out.partition("\nExamples:\n")[2].splitlines()
    assert examples
    assert all("discorl" in line for line in examples)


def test_the_overview_ends_with_examples(capsys):
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.partition("\nExamples:\n")[2].startswith("  discorl train")


def test_completion_knows_the_flags_of_subcommands():
    flags = known_flags()
    assert {"list", "show", "fetch", "export", "--json", "--force"} <= set(flags["rules"])
    assert {"learner", "atari", "--rounds", "--game"} <= set(flags["bench"])
    assert {"list", "show", "check", "draw"} <= set(flags["envs"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_well_formed(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    if shell == "fish":
        lines = script.splitlines()
        assert all(line.startswith("complete -c discorl -n ") for line in lines)
        assert all(line.count("'") % 2 == 0 for line in lines)
        assert "complete -c discorl -n '__fish_seen_subcommand_from rules' -a 'list show" in script
        return
    assert script.startswith("autoload -U +X bashcompinit") == (shell == "zsh")
    body = script.removeprefix("autoload -U +X bashcompinit && bashcompinit\n")
    ask = 'COMP_WORDS=(discorl rules s); COMP_CWORD=2; _discorl; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", body + ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["show"]


def test_settings_are_shown_as_they_can_be_typed(capsys, tmp_path):
    assert main(["envs", "show", "catch"]) == 0
    out = capsys.readouterr().out
    rows = [line.split("│")[1:3] for line in out.splitlines() if "│ --" in line]
    words = [word for row in rows for cell in row for word in cell.split()]
    assert "--no-clip-rewards" in words
    with pytest.raises(SystemExit) as stop:
        main(["train", "catch", *words, "--help"])
    assert stop.value.code == 0


def test_a_long_evaluation_tells_how_far_it_is_where_there_is_no_terminal(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0.0)
    out = str(tmp_path / "a")
    tiny = ["--rule", "actor_critic", "--torso", "4", "--eval-episodes", "2", "--steps", "2"]
    assert main(["train", "catch:rows=3,columns=3", *tiny, "--out", out]) == 0
    assert "evaluating, greedy: " in capsys.readouterr().out
    assert main(["evaluate", out, "--episodes", "3"]) == 0
    assert "evaluating, sampled: 3/3" in capsys.readouterr().err


def test_a_comparison_says_what_it_is_doing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("discorl.comparison.display._SECONDS_BETWEEN_LINES", 0.0)
    few = ["--seeds", "1", "--steps", "3", "--set", "torso=4", "--jobs", "1"]
    env = "catch:rows=3,columns=3"
    args = ["compare", "--rules", "actor_critic", "--envs", env, *few]
    assert main([*args, "--out", str(tmp_path / "c")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("measuring random play in 1 environment\ndiscorl: 1 run, 1 at once")
    assert "0/1  under way for 0:00:0" in out
    picture = tmp_path / "c.svg"
    assert main(["plot", str(tmp_path / "c"), "--out", str(picture)]) == 0
    assert "<!-- scores of 0 (random play) and 1 -->" in picture.read_text()
    anchors = tmp_path / "c" / "environments.json"
    anchors.write_text(
        anchors.read_text().replace('"random_return": ', '"random_return": 1e9, "x": ')
    )
    assert main(["plot", str(tmp_path / "c")]) == 2
    anchors.write_text(anchors.read_text().replace(', "x": ', ', "random_episodes": '))
    assert main(["plot", str(tmp_path / "c")]) == 2
    assert capsys.readouterr().err.count("environments.json is damaged") == 2
    assert main(["plot", str(tmp_path / "c"), "--x", "seconds"]) == 2
    assert "has its own axes: drop --x" in capsys.readouterr().err


def test_a_slow_environment_is_checked_in_seconds(monkeypatch, capsys):
    monkeypatch.setattr(checker, "_SECONDS", 0.0)
    told = []
    findings = checker.check_environment("catch", tell=told.append)
    assert told == findings
    assert any("in 4 random steps" in finding.text for finding in findings)


def test_errors_in_workers_name_the_place(tmp_path):
    (tmp_path / "w.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Breaks(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return np.zeros(2, np.float32), {}\n"
        "    def step(self, action):\n"
        "        raise RuntimeError('broke')\n"
    )
    args = ["train", "w:Breaks", "--rule", "actor_critic", "--num-envs", "2", "--env-workers"]
    done = subprocess.run(
        [sys.executable, "-m", "discorl.cli", *args, "--out", "a"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert "raised RuntimeError: broke (" in lines[0]
    assert "w.py, line 8) at step 1" in lines[0]


def test_settings_that_games_of_our_own_do_not_take_are_told(tmp_path, capsys):
    tiny = ["--rule", "actor_critic", "--torso", "4", "--eval-episodes", "2", "--steps", "2"]
    flags = ["--env-kwargs", "a=1", "--out", str(tmp_path / "a")]
    assert main(["train", "catch:rows=3,columns=3", *tiny, *flags]) == 0
    assert "warning: --env-kwargs has no effect" in capsys.readouterr().out
