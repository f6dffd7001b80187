"""`discorl envs show`: what training in an environment would be."""

import json

import pytest

from discorl.cli.__main__ import main
from discorl.envs.worlds import World


def test_an_environment_its_network_and_its_settings(capsys):
    assert main(["envs", "show", "catch:rows=5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["observations"] == {"observations": "uint8 [5, 8, 1]"}
    assert (shown["actions"], shown["network"], shown["rule"]) == (3, "MLPTorso", "sprout")
    settings = shown["settings"]
    assert settings["learning_rate"] == 0.005
    steps = settings["steps"] * settings["num_envs"] * settings["rollout_length"]
    assert shown["env_steps"] == steps


def test_one_from_gymnasium_for_people(capsys):
    assert main(["envs", "show", "CartPole-v1", "--rule", "actor_critic"]) == 0
    shown = capsys.readouterr().out
    for word in ("CartPole-v1", "float32 [4]", "actor_critic", "unknown", "--learning-rate"):
        assert word in shown


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["show"], "name an environment"),
        (["show", "CartPole-v9"], "CartPole"),
        (["show", "Pendulum-v1"], "--discretize-actions"),
        (["show", "no_such_module:make"], "no_such_module"),
        (["show", "cach"], "catch"),
    ],
)
def test_mistakes_are_explained(words, error, capsys):
    assert main(["envs", *words]) == 2
    assert error in capsys.readouterr().err.replace("\n", " ")


def test_the_list_cuts_nothing_off(capsys, monkeypatch):
    line = "pip install -e '/a/long/way/to/the/checkout/of/the/package/discorl[some-extra]'"
    monkeypatch.setattr(World, "install_line", line)
    monkeypatch.setattr(World, "installed", False)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["envs"]) == 0
    shown = capsys.readouterr().out
    assert f"procgen/   {line}\n" in shown
    assert "…" not in shown


def test_the_list_tells_what_kinds_from_outside_are_trained_with(capsys):
    assert main(["envs", "list", "--rule", "disco103", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert {"catch", "family:grid", "vector", "board", "pixels"} <= entries.keys()
    settings = entries["vector"]["settings"]
    assert settings["rule"].startswith("disco103:")
    steps = settings["steps"] * settings["num_envs"] * settings["rollout_length"]
    assert settings["env_steps"] == steps
    assert "CartPole-v1" in entries["vector"]["summary"]
