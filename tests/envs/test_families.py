"""Families of environments, and the command that lists and draws them."""

import json
import re
from pathlib import Path

import pytest
from playing import play_whole, random_policy

from discorl.cli.__main__ import main
from discorl.envs import FAMILIES, make_environment, optimal_return, resolve_environment
from discorl.envs.registry import GAMES, make_game
from discorl.envs.worlds import WORLDS
from discorl.errors import DiscorlError
from discorl.runs.gallery import draw_environment
from discorl.training.presets import KIND_PRESETS

EVERY_STEP = ("acrobot", "cartpole", "chain", "mountain_car")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_are_valid_and_differ(name):
    specs = [resolve_environment(f"family:{name}", seed) for seed in range(200)]
    assert len(set(specs)) >= 10
    for spec in specs:
        assert spec.startswith(f"{FAMILIES[name].game}:")
        assert make_environment(spec, 1).num_actions >= 2
        assert make_environment(spec, 1).reset(0).observation.numel() <= 400
    for spec in specs[:4]:
        game = make_game(spec)
        total, _ = play_whole(game, random_policy(game), num_envs=64)
        assert total.isfinite().all()
        # Some pay for every step, or on other scales.
        assert name in EVERY_STEP or total.abs().max() < 25


def test_there_is_a_family_for_every_game():
    games = set(GAMES) - {"sokoban"}  # It draws levels by itself, and asks for larger agents.
    assert {family.game for family in FAMILIES.values()} == games <= set(FAMILIES)
    for family in FAMILIES.values():
        settings = make_game(family.game).__dataclass_fields__
        assert set(family.ranges) <= set(settings)


def test_the_seed_fixes_a_draw():
    drawn = [resolve_environment("family:grid", seed) for seed in (4, 4, 5)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert resolve_environment("family:grid,seed=4", 99) == drawn[0]


@pytest.mark.parametrize("spec", ["catch", "catch:rows=4", "grid:seed=3", "nothing", ""])
def test_what_is_no_family_comes_back(spec):
    assert resolve_environment(spec, 1) == spec


def test_the_maker_knows_families():
    for spec, seed in (("family:catch", 0), ("family:catch,seed=8", 8)):
        drawn = resolve_environment("family:catch", seed)
        assert make_environment(spec, 2).game == make_game(drawn)
        assert optimal_return(spec) == optimal_return(drawn) == 1.0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("family:grit", ["'grit'", "Did you mean grid?"]),
        ("family:", ["family of environments ''", *FAMILIES]),
        ("family", ["family of environments ''"]),
        ("family:grid,rows=4", ["family:grid,rows=4", "seed=NUMBER"]),
        ("family:grid,seed=x", ["seed=NUMBER"]),
        ("family:grid,seed=-1", ["seed=NUMBER"]),
    ],
)
def test_what_is_wrong_is_said(spec, words):
    for use in (lambda: make_environment(spec, 1), lambda: resolve_environment(spec, 0)):
        with pytest.raises(DiscorlError) as error:
            use()
        for word in words:
            assert word in str(error.value)


def test_the_list_has_games_and_families(capsys):
    assert main(["envs", "list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    outside = {preset.kind for preset in KIND_PRESETS}
    worlds = {world.name for world in WORLDS}
    assert set(entries) == {*GAMES, *(f"family:{name}" for name in FAMILIES), *outside, *worlds}
    assert entries["deep_sea"]["optimum"] == 0.99
    assert entries["family:catch"]["settings"] == {"rows": "5..10", "columns": "4..8"}
    assert main(["envs"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("optimum", "unknown", "family:umbrella"))


def test_a_game_that_does_not_know_its_optimum_is_listed(monkeypatch, capsys):
    class Plain(GAMES["catch"]):
        optimal_return = property()

    monkeypatch.setitem(GAMES, "plain", Plain)
    assert main(["envs", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["plain"]["optimum"] is None


def test_drawing(tmp_path, monkeypatch, capsys):
    # Given a board, a row, bars, and what is drawn in its own way
    names = ("catch", "bandit", "umbrella", "cartpole", "mountain_car", "acrobot", "lander")
    monkeypatch.setattr("discorl.envs.registry.GAMES", {name: GAMES[name] for name in names})
    monkeypatch.setattr("discorl.runs.gallery._EPISODES", 2)
    assert main(["envs", "draw", "--out", str(tmp_path / "a" / "b")]) == 0
    assert "7 pictures" in capsys.readouterr().out
    pictures = {path.stem: path for path in (tmp_path / "a" / "b").iterdir()}
    assert set(pictures) == set(names)
    for path in pictures.values():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 40_000
    draw_environment("catch:rows=3,columns=4", tmp_path / "catch.svg")
    assert b"<svg" in (tmp_path / "catch.svg").read_bytes()


def test_drawing_needs_a_folder(capsys):
    assert main(["envs", "draw"]) == 2
    assert "--out: expected a folder" in capsys.readouterr().err


def test_the_gallery_is_complete():
    # Given the page, and each game's section of it
    page = (DOCS / "environments.md").read_text()
    sections = {part.split("`")[1]: part for part in page.split("\n## ") if "![" in part}
    assert set(sections) == set(GAMES)
    for name, section in sections.items():
        # Then every setting is there with its default, and so is the picture
        told = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
        fields = make_game(name).__dataclass_fields__.values()
        assert told == [(field.name, str(field.default).lower() or "none") for field in fields]
        assert f"(images/envs/{name}.png)" in section
        assert (DOCS / "images" / "envs" / f"{name}.png").stat().st_size < 40_000


def test_the_ranges_are_told():
    page = (DOCS / "environments.md").read_text()
    for name, family in FAMILIES.items():
        (row,) = re.findall(rf"^\| `family:{name}` \| (.*) \|$", page, re.MULTILINE)
        ranges = []
        for key, values in family.ranges.items():
            ends = isinstance(values, range)
            text = f"{values[0]} to {values[-1]}" if ends else " or ".join(map(str, values))
            ranges.append(f"`{key}` {text.lower()}")
        assert row == ", ".join(ranges)
