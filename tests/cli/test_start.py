"""What starting takes, counted in modules: none is imported before it is needed."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import discorl
from discorl.cli.commands import COMMANDS, find_command

HEAVY = ("torch", "gymnasium", "matplotlib", "tensorboard", "plotly", "PIL")
REPORT = f"""
import json, sys

def imported():
    return [name for name in {HEAVY} if name in sys.modules]
"""
QUICK = (
    *("analyse", "bench", "evaluate", "export", "launch", "plot", "report", "resume", "serve"),
    "verify",
)
"""Commands whose settings need no PyTorch: neither does their help."""


def last_line(program, *args):
    """The last line, as JSON, that a program of its own process prints."""
    command = [sys.executable, "-c", REPORT + program, *map(str, args)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


COMMAND = """
from discorl.cli.__main__ import main

for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit:
        pass
print(json.dumps(imported()))
"""


def test_the_overview_and_the_version_import_nothing_heavy():
    assert last_line(COMMAND, json.dumps([["--help"], ["--version"], ["version", "--help"]])) == []


def test_help_of_commands_without_training_settings_does_not_import_torch():
    helps = [[command, "--help"] for command in QUICK]
    assert last_line(COMMAND, json.dumps(helps)) == []


TRAIN = """
from discorl.cli.__main__ import main
from discorl.training.trainer import Trainer

step, before = Trainer.train_step, []

def first(trainer):
    before.append(imported())
    return step(trainer)

Trainer.train_step = first
main(["train", "catch:rows=5,columns=5", "--steps", "2", "--eval-episodes", "1", "--log-every", "2",
      "--out", sys.argv[1]])
print(json.dumps([before, imported()]))
"""


def test_training_imports_what_draws_and_records_only_when_it_does(tmp_path):
    before, after = last_line(TRAIN, tmp_path / "run")
    for steps in before:
        assert not {"matplotlib", "tensorboard", "plotly"} & {*steps}
    assert {"matplotlib", "tensorboard"} <= {*after}
    assert "plotly" not in after


def test_the_package_imports_nothing_until_it_is_asked():
    assert last_line("import discorl; print(json.dumps(imported()))") == []


def test_the_overview_says_of_commands_what_they_say_of_themselves():
    for name, command in COMMANDS.items():
        text = find_command(name).__doc__.partition("\n\n")[0]
        assert " ".join(text.split()) == command.summary


def test_public_names_are_those_that_type_checkers_see():
    tree = ast.parse(Path(discorl.__file__).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(discorl.__all__) == sorted(discorl._HOME)
    assert {name: f"discorl.{module}" for name, module in discorl._HOME.items()} == seen


def test_public_names_resolve_and_are_listed():
    for name in discorl.__all__:
        assert getattr(discorl, name) is not None
    assert {*discorl.__all__} <= {*dir(discorl)}
    names = {}
    exec("from discorl import *", names)
    assert {*discorl.__all__} <= {*names}


def test_modules_are_attributes_as_if_they_had_been_imported():
    program = "import discorl; print(json.dumps(discorl.library.catalogue.DEFAULT_RULE))"
    assert last_line(program) == "sprout"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = discorl.nothing_like_it
