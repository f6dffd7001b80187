"""Figures say what they show: titles, axes and legends, read from the texts of an SVG."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from discorl.cli.__main__ import main
from discorl.runs.plots import Curve, plot_curves, wrapped


def texts(path):
    """What matplotlib drew as texts: it names each in a comment."""
    return re.findall(r"<!-- (.*?) -->", Path(path).read_text())


@pytest.fixture
def discovery(tmp_path):
    """A discovery as far as drawing reads it."""
    folder = tmp_path / "some_folder"
    folder.mkdir()
    settings = {"envs": ["catch"], "init": "random", "seed": 4, "meta_steps": 3}
    (folder / "config.json").write_text(json.dumps(settings))
    records = [{"step": s, "population/return": s / 3, "meta/meta_loss": 1.0} for s in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    agents = [{"env": "catch", "curve": [[1, 0.0], [2, 0.5]]}]
    (folder / "evaluations.json").write_text(
        json.dumps([{"meta_step": 3, "score": 0.5, "agents": agents}])
    )
    return folder


def test_a_discovery_has_titles_and_no_folder_names(discovery, tmp_path):
    out = tmp_path / "d.svg"
    assert main(["plot", str(discovery), "--out", str(out)]) == 0
    said = texts(out)
    assert "while the rule is discovered" in said
    assert "fresh agents that the best rule trains" in said
    assert "rule of meta-step 3" in said
    assert not any("some_folder" in text for text in said)
    assert "1.5" not in said  # There are no halves of meta-steps.


def test_a_metric_of_a_discovery_is_over_meta_steps(discovery, tmp_path):
    out = tmp_path / "d.svg"
    assert main(["plot", str(discovery), "--metric", "meta/meta_loss", "--out", str(out)]) == 0
    said = texts(out)
    assert {"catch", "meta-steps", "meta loss", "discovered from random"} <= set(said)


def test_several_discoveries_are_told_apart_by_what_they_did(discovery, tmp_path):
    out = tmp_path / "d.svg"
    assert main(["plot", str(discovery), str(discovery), "--out", str(out)]) == 0
    assert "catch from random, seed 4, rule of meta-step 3" in texts(out)


@pytest.mark.parametrize(
    "entry",
    [
        {"meta_step": "3", "score": 0.5, "agents": []},
        {"meta_step": 3, "score": None, "agents": []},
        {"meta_step": 3, "score": "x", "agents": []},
        {"meta_step": 3, "score": 0.5, "agents": [{"curve": "x"}]},
    ],
)
def test_damaged_evaluations_are_said(discovery, tmp_path, capsys, entry):
    (discovery / "evaluations.json").write_text(json.dumps([entry]))
    assert main(["plot", str(discovery), "--out", str(tmp_path / "d.svg")]) == 2
    assert "evaluations.json is damaged" in capsys.readouterr().err


def test_runs_are_told_apart_by_rule_or_setting_and_have_a_title(tmp_path):
    steps = np.array([10.0, 20.0])
    x = {"steps": steps, "env_steps": 16 * steps}
    curves = [
        Curve("catch", "actor_critic", x, steps, {"learning_rate": 0.1}),
        Curve("catch", "actor_critic", x, steps, {"learning_rate": 0.2}),
        Curve("catch", "sprout", {**x, "env_steps": 8 * steps}, steps, {"learning_rate": 0.1}),
    ]
    plot_curves(curves, tmp_path / "p.svg")
    said = set(texts(tmp_path / "p.svg"))
    names = {"actor_critic (learning_rate=0.1)", "actor_critic (learning_rate=0.2)", "sprout"}
    assert names | {"catch", "environment steps", "episode return"} <= said
    plot_curves([*curves, Curve("cliff", "sprout", x, steps)], tmp_path / "p.svg")
    assert {"2 environments", "sprout on cliff"} <= set(texts(tmp_path / "p.svg"))


def test_a_run_at_its_first_step_can_be_drawn(tmp_path):
    zero = np.array([0.0])
    one = Curve("catch", "sprout", {"steps": zero, "env_steps": zero}, zero)
    plot_curves([one, one], tmp_path / "p.svg")


def test_long_names_are_broken_between_settings():
    name = "actor_critic:learning_rate=0.01,torso=64,64,entropy_cost=0.01"
    assert wrapped(name, 32) == "actor_critic:learning_rate=0.01,\ntorso=64,64,entropy_cost=0.01"
    assert wrapped("one two three", 8) == "one two\nthree"
    assert wrapped("x" * 12, 10) == "x" * 10 + "\nxx"
    assert wrapped("catch") == "catch"
