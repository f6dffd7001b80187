"""Scores, tables and pictures from results that are made up."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from discorl.comparison.anchors import Anchors, measure_anchors
from discorl.comparison.cells import CellResult
from discorl.comparison.config import CompareConfig
from discorl.comparison.pictures import plot_learning, plot_scores
from discorl.comparison.report import (
    make_published_table,
    notes,
    published_rows,
    table_rows,
    write_markdown,
)
from discorl.comparison.summary import summarise
from discorl.envs.base import EnvironmentConfig

KNOWN, UNKNOWN = Anchors(-1.0, 10, 1.0), Anchors(0.0, 10, None)


def result(rule, env, seed, final_return, env_steps=10):
    curve = [(step, final_return) for step in range(seed + 1, 4)]
    return CellResult(rule, env, seed, final_return, 3, env_steps, 5, 0.1, curve, {})


def results(rule, env, *returns, **details):
    return [result(rule, env, seed, value, **details) for seed, value in enumerate(returns)]


def test_scores_by_hand():
    config = CompareConfig(rules=("a", "b"), envs=("x", "y"), seeds=2)
    summary = summarise(
        config,
        {"x": KNOWN, "y": UNKNOWN},
        [
            *results("a", "x", 1.0, 0.0),
            *results("a", "y", 1.0, 3.0),
            *results("b", "x", -1.0, -1.0, env_steps=20),
            *results("b", "y", 3.0, 5.0, env_steps=20),
        ],
    )
    # On x 1 is the optimum; on y the best rule's mean, 4.
    assert summary.groups["a", "x"].scores.tolist() == [1, 0.5]
    assert summary.groups["a", "y"].scores.tolist() == [0.25, 0.75]
    assert summary.groups["b", "y"].scores.tolist() == [0.75, 1.25]
    # The middle two of four.
    assert summary.estimates["a"].value == pytest.approx(0.625)
    assert summary.estimates["b"].value == pytest.approx(0.375)
    header, x, y, steps, iqm = table_rows(summary)
    assert header == ["environment", "0 is", "1 is", "a", "b"]
    assert x == ["x", "-1.000", "1.000", "0.750 ± 0.354", "0.000 ± 0.000"]
    assert y[:3] == ["y", "0.000", "4.000*"]
    assert steps[3:] == ["10", "20"]
    assert iqm[3].startswith("0.625 [")
    text = "\n".join(notes(summary))
    assert "best rule's mean" in text
    assert "differ in environment steps" in text


def curve_result(rule, seed, *curve):
    return CellResult(rule, "x", seed, curve[-1][1], 4, 40, 5, 0.1, list(curve), {})


def test_the_mean_along_a_curve_by_hand():
    # 0 until step 2, then a straight line to 1 at step 4: a mean of 0.25 over the run.
    assert curve_result("a", 0, (2, 0.0), (4, 1.0)).mean_along_curve() == pytest.approx(0.25, 0.01)
    assert curve_result("a", 0, (1, 3.0), (4, 3.0)).mean_along_curve() == pytest.approx(3.0)


def test_whoever_learns_the_same_sooner_has_more():
    config = CompareConfig(rules=("a", "b"), envs=("x",), seeds=1, against="a")
    slow = curve_result("a", 0, (1, -1.0), (2, -1.0), (4, 1.0))
    soon = curve_result("b", 0, (1, -1.0), (2, 1.0), (4, 1.0))
    summary = summarise(config, {"x": KNOWN}, [slow, soon])
    assert summary.groups["a", "x"].scores.tolist() == [1.0]
    # Above random play: 0.5 for the slow one, (0.25 x 0 + 0.25 x 1 + 0.5 x 2) = 1.25 for the other.
    assert summary.groups["b", "x"].scores[0] == pytest.approx(2.5, 0.01)
    assert summary.scales["x"].one_is == "rule compared with"
    assert "1 that of a" in notes(summary)[0]
    # Nothing to compare with where the rule learns nothing.
    none = summarise(config, {"x": Anchors(2.0, 10, 3.0)}, [slow, soon])
    assert none.scales["x"] is None
    assert any("x: a does not do better than random play" in note for note in notes(none))


def test_runs_that_are_missing(tmp_path):
    config = CompareConfig(rules=("a", "b"), envs=("x",), seeds=2)
    summary = summarise(config, {"x": KNOWN}, [result("a", "x", 1, 0.0)])
    assert summary.estimates["b"] is None
    _, x, steps, iqm = table_rows(summary)
    assert x[3:] == ["0.500 (1 of 2)", "–"]  # noqa: RUF001
    assert (steps[4], iqm[4]) == ("–", "–")  # noqa: RUF001
    assert summary.as_json()["rules"]["b"]["environments"]["x"]["mean_score"] is None
    plot_learning(summary, tmp_path / "curves.png")
    plot_scores(summary, tmp_path / "scores.png")


def test_curves_are_over_environment_steps():
    run = result("a", "x", 1, 0.5, env_steps=30)
    assert run.curve == [(2, 0.5), (3, 0.5)]
    assert run.curve_by_env_steps() == [(20, 0.5), (30, 0.5)]


def test_no_rule_better_than_random_and_no_optimum():
    config = CompareConfig(rules=("a",), envs=("x", "y"), seeds=1)
    cells = [result("a", "x", 0, 0.0), result("a", "y", 0, -2.0)]
    summary = summarise(config, {"x": KNOWN, "y": UNKNOWN}, cells)
    assert summary.scales["y"] is None
    assert summary.estimates["a"].value == 0.5
    assert any("y: no rule does better than random" in note for note in notes(summary))


def test_anchors_of_catch():
    # One column: always caught. Two rows and three columns: one step to reach the ball.
    assert measure_anchors("catch:columns=1").random_return == 1
    anchors = measure_anchors("catch:rows=2,columns=3")
    assert anchors.random_return == pytest.approx(-1 / 3, abs=0.05)
    assert anchors.random_episodes == 4096
    assert anchors == measure_anchors("catch:rows=2,columns=3")


def test_anchors_of_an_environment_from_outside():
    # Random actions let the pole fall after some twenty steps.
    anchors = measure_anchors("CartPole-v1")
    assert (anchors.random_episodes, anchors.optimal_return) == (100, None)
    assert 15 < anchors.random_return < 30


def test_anchors_of_actions_that_must_be_made_discrete():
    anchors = measure_anchors("Pendulum-v1", EnvironmentConfig(discretize_actions=3))
    assert -2000 < anchors.random_return < -500


def test_random_play_keeps_to_legal_actions(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "envs")
    anchors = measure_anchors("locked_envs:InDictionary")
    assert 0 < anchors.random_return < 6


def test_scores_of_the_field_are_means_over_seeds_with_intervals(tmp_path):
    rates = [{"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}]
    runs = [replace(result("r", "crafter", seed, 3.0), outcomes=rates[seed]) for seed in (0, 1)]
    anchors = Anchors(2.0, 10, None, {"a": 0.0, "b": 0.0})
    config = CompareConfig(rules=("r", "none"), envs=("crafter",), seeds=2)
    summary = summarise(config, {"crafter": anchors}, runs)
    # Scores of 0 and 100.
    found = summary.as_json()["rules"]["r"]["environments"]["crafter"]["field_score"]
    assert found["name"] == "crafter_score"
    assert found["values"] == pytest.approx([0, 100])
    assert found["value"] == pytest.approx(50)
    assert found["low"] < 0 < 100 < found["high"]
    row = next(row for row in table_rows(summary) if row[0] == "crafter: crafter score")
    assert row[1] == "0.000"
    assert row[3].startswith("50.000 [")
    assert row[4] == "–"  # noqa: RUF001
    figures = "random 1.6, PPO 4.6, Rainbow 4.3, DreamerV2 10, human 50.5"
    assert ["crafter", "Crafter score", "1M", figures] in [
        line[:4] for line in published_rows(summary)
    ]
    shown = StringIO()
    Console(width=80, file=shown).print(make_published_table(summary))
    assert "…" not in shown.getvalue()
    assert shown.getvalue().count("Benchmarking the Spectrum of Agent Capabilities") == 1
    write_markdown(summary, tmp_path / "table.md")
    assert "Hafner" in (tmp_path / "table.md").read_text()
    assert summary.as_json()["environments"]["crafter"]["published"][0]["values"]["PPO"] == 4.6


def test_bsuite_by_capability():
    envs = ("bsuite/catch/0", "bsuite/memory_len/0")
    config = CompareConfig(rules=("r",), envs=envs, seeds=1)
    runs = [
        replace(result("r", envs[0], 0, 0.2), outcomes={"regret": 0.8}),
        replace(result("r", envs[1], 0, 0.2), outcomes={"regret": 0.8, "perfect": 0.9}),
    ]
    summary = summarise(config, dict.fromkeys(envs, UNKNOWN), runs)
    wanted = {"basic": 0.5, "credit_assignment": 0.5, "memory": 1.0}
    assert summary.as_json()["rules"]["r"]["bsuite"] == pytest.approx(wanted)
    text = "bsuite by capability, r: basic 0.500, credit assignment 0.500, memory 1.000."
    assert text in notes(summary)
