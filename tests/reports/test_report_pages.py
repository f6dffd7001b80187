"""What reports say of runs: whole ones, groups of seeds, unfinished and damaged ones."""

from __future__ import annotations

import base64
import json
import shlex

import pytest
from report_pages import bands, charts, commands, lines, sections, text
from report_runs import ENV, ENVS, RIVAL

from discorl.cli.__main__ import main
from discorl.cli.commands import parse_arguments
from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.files import read_json
from discorl.reports import page as page_module
from discorl.reports.markup import Html, as_script, escape, show, table
from discorl.reports.read import expand_folders, read_run
from discorl.reports.write import render_report, write_report
from discorl.settings import flat_settings

GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAUwAOw==")


def report(*folders):
    return render_report([read_run(folder) for folder in expand_folders(list(folders))])


def body(page):
    """The page without plotly's own script, which is large."""
    return page.partition("<main>")[2].partition("</main>")[0]


def test_a_training_run_is_told_whole(made):
    page = body(report(made / "other"))
    assert sections(page) == [
        "Summary", "Learning", "Entropy and updates", "Losses", "Evaluation episodes", "Time",
        "Settings", "Environment and rule", "How to reproduce",
    ]  # fmt: skip
    drawn = charts(page)
    losses = {"total loss", "pg loss", "value loss"}
    assert {"Learning curve", "Policy entropy", "Gradient norm", "Speed", *losses} <= set(drawn)
    curve = lines(drawn["total loss"])["actor_critic:entropy_cost=0.5"]
    assert curve["x"] == [1, 2, 3, 4, 5, 6]
    axes = drawn["Learning curve"]["layout"]
    assert axes["xaxis"]["title"]["text"] == "training steps"
    assert axes["yaxis"]["title"]["text"] == "return of the newest 100 episodes"
    evaluations = lines(drawn["Evaluations: greedy (solid) and sampled (dashed)"])
    assert [trace["line"]["dash"] for trace in evaluations.values()] == ["solid", "dash"]
    assert [trace["x"] for trace in evaluations.values()] == [[3, 6], [3, 6]]
    shares = charts(page)["Where the time went"]
    assert list(lines(shares)) == ["environment", "acting", "replay", "learning"]
    assert sum(trace["x"][0] for trace in shares["data"]) == pytest.approx(100, abs=0.1)
    said = text(page)
    assert "written by hand" in said
    assert "A ball drops" in said
    assert "notice" not in page


def test_settings_are_told_against_preset_and_defaults(made):
    page = body(report(made / "other"))
    said = text(page)
    assert "Nearest preset: default. These settings differ from it:" in said
    own = said.partition("setting this run preset default ")[2].partition(" more that differ")[0]
    assert "learning_rate 0.005 0.002 0.01 " in own
    assert "steps 6 1000 1000 " in own
    assert "learn_first_steps" not in own  # As in the preset, but not by default.
    assert "learn_first_steps yes no" in said.partition(" more that differ")[2]


def test_commands_make_the_same_run_again(made):
    folder = made / "other"
    for line in commands(body(report(folder))):
        program, command, *words = shlex.split(line)
        parsed = parse_arguments(command, words)
        assert program == "discorl"
        assert json.loads(json.dumps(flat_settings(parsed.config))) == read_json(
            folder / "config.json"
        )


def test_runs_that_differ_in_their_seed_are_one_line_with_a_band(made):
    page = body(report(made / "seeds", made / "other"))
    curve = charts(page)["Policy entropy"]
    assert list(lines(curve)) == ["actor_critic, 2 seeds", "actor_critic:entropy_cost=0.5"]
    assert bands(curve) == 1
    entropies = [
        [r["rule/entropy"] for r in read_run(made / "seeds" / f"seed_{seed}").records]
        for seed in (0, 1)
    ]
    mean = [sum(pair) / 2 for pair in zip(*entropies, strict=True)]
    assert lines(curve)["actor_critic, 2 seeds"]["y"] == pytest.approx(mean, rel=1e-4)
    low, high = (curve["data"][place]["y"] for place in (0, 1))
    assert all(a <= b for a, b in zip(low, high, strict=True))
    said = text(page)
    assert "Means over seeds, with 95% t-intervals in brackets." in said
    assert said.count("Nearest preset") == 2
    assert "--seed 0 --seeds 2" in commands(page)[0]


def test_returns_of_several_environments_are_not_in_one_chart(runs):
    folder = runs / "other"
    config = read_json(folder / "config.json") | {"env": "cliff"}
    (folder / "config.json").write_text(json.dumps(config))
    drawn = charts(body(report(runs / "seeds", folder)))
    assert len(lines(drawn[f"Learning curve, {ENV}"])) == 1
    assert len(lines(drawn["Learning curve, cliff"])) == 1
    assert len(lines(drawn["Policy entropy"])) == 2


def test_an_unfinished_run_tells_what_is_missing(runs, capsys):
    folder = runs / "seeds" / "seed_0"
    (folder / "result.json").unlink()
    metrics = folder / "metrics.jsonl"
    metrics.write_text(
        "".join(metrics.read_text().splitlines(keepends=True)[:4]) + '{"step": 5, "l'
    )
    out = runs / "report.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"report on 1 run written to {out}" in printed
    assert "It has not finished: step 4 of 6. The final evaluation and time shares are" in printed
    assert f"go on with: discorl resume {folder}" in printed
    page = body(out.read_text())
    assert "It has not finished: step 4 of 6" in text(page)
    assert "Where the time went" not in page
    assert "Learning curve" in charts(page)


def test_a_run_that_went_on_after_its_result_is_not_finished(runs):
    folder = runs / "other"
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7}\n')
    assert not read_run(folder).finished


def test_damage_is_told_and_the_rest_is_shown(runs):
    folder = runs / "seeds" / "seed_0"
    metrics = folder / "metrics.jsonl"
    first, *others = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([first, "{broken\n", *others]))
    (folder / "result.json").write_text("[")
    (folder / "agent.json").write_text("{}")
    (folder / "config.json").write_text("no settings")
    page = body(report(folder))
    said = text(page)
    for words in ("config.json cannot be read", "result.json cannot be read",
                  "metrics.jsonl is damaged in line 2"):  # fmt: skip
        assert words in said
    assert len(lines(charts(page)["total loss"])) == 1
    (folder / "metrics.jsonl").unlink()
    assert "It has no metrics yet" in text(body(report(folder)))


def test_a_discovery_is_told_whole(made):
    page = body(report(made / "found"))
    drawn = charts(page)
    assert list(lines(drawn["Return of the population"])) == ["all agents", ENV, "family:bandit"]
    fresh = drawn["Fresh agents at the end of their lives"]
    assert list(lines(fresh)) == ["score", ENV, "family:bandit"]
    assert lines(fresh)["score"]["x"] == [2, 4]
    assert bands(fresh) == 2
    assert {"Mean age", "Lives so far, per agent", "Meta-loss"} <= set(drawn)
    norm = drawn["Meta-gradient norm, before clipping"]
    assert norm["layout"]["xaxis"]["title"]["text"] == "meta-steps"
    assert any(title.startswith("Lives with the best rule, of meta-step") for title in drawn)
    said = text(page)
    assert "Agents live for one of 2, 4 updates" in said
    # A gallery: moments of the game, and members of the family with what sets them apart
    shown = page.partition("Gallery of environments")[2].partition("<section")[0]
    assert shown.count("data:image/png;base64,") == 6  # An episode in 3 x 3 Catch has 2 steps.
    assert f"{ENV} step 0 step 1 family:bandit arms=" in text(shown)
    assert "discovered from random by discorl" in said
    assert "notice" not in page
    for line in commands(page):
        _, command, *words = shlex.split(line)
        settings = json.loads(json.dumps(flat_settings(parse_arguments(command, words).config)))
        assert settings == read_json(made / "found" / "config.json")


def test_a_discovery_without_evaluations_or_with_damaged_ones(runs):
    folder = runs / "found"
    (folder / "evaluations.json").write_text('[{"meta_step": "x"}]')
    said = text(body(report(folder)))
    assert "evaluations.json is damaged" in said
    assert "has not been evaluated on fresh agents yet" in said


def test_a_distillation_shows_the_teacher_beside_the_student(runs):
    folder = runs / "found"
    config = read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps(config | {"teacher": "sprout"}))
    agents = [{"env": ENV, "final_return": 0.5, "curve": [[1, 0.0], [3, 0.5]]}]
    (folder / "teacher_evaluation.json").write_text(json.dumps(agents))
    page = body(report(folder))
    assert lines(charts(page)["Lives with the teacher"])[ENV]["y"] == [0, 0.5]
    assert "return with the best rule with the teacher" in text(page)


def test_a_comparison_is_told_whole(made):
    page = body(report(made / "compared"))
    drawn = charts(page)
    means = drawn["Interquartile mean of scores, with 95% intervals"]["data"][0]
    assert means["x"] == pytest.approx([0.225, 0.825])
    assert all(width >= 0 for width in means["error_x"]["array"])
    improvement = drawn["Probability of improvement, with 95% intervals"]["data"][0]
    assert improvement["x"] == [0]  # The rival wins every time.
    profile = lines(drawn["Performance profiles"])
    assert list(profile) == ["actor_critic", "actor_critic:learning_rate=0.01"]
    at_half = profile["actor_critic"]["x"].index(0.5)
    assert [profile[name]["y"][at_half] for name in profile] == [0, 1]
    assert bands(drawn["Performance profiles"]) == 2
    for env in ENVS:
        assert bands(drawn[env]) == 2
        assert lines(drawn[env])[RIVAL]["y"] == pytest.approx([0.725, 0.825])
        assert drawn[env]["layout"]["xaxis"]["title"]["text"] == "environment steps"
    _, command, *words = shlex.split(commands(page)[0])
    assert parse_arguments(command, words).config.to_json() == read_json(
        made / "compared" / "config.json"
    )
    assert "notice" not in page


def test_an_unfinished_or_damaged_comparison(runs):
    folder = runs / "compared"
    first, second, *_ = sorted((folder / "cells").iterdir())
    first.unlink()
    second.write_text("{}")
    (folder / "results.json").write_text(
        json.dumps({"failed": [{"rule": "r", "env": "e", "seed": 3, "error": "no memory"}]})
    )
    said = text(body(report(folder)))
    assert "6 of 8 runs have finished" in said
    assert f"{second.name} is no result of a cell" in said
    assert "Failed: r on e, seed 3: no memory" in said
    (folder / "environments.json").write_text("{}")
    page = body(report(folder))
    assert "environments.json is damaged" in text(page)
    assert set(ENVS) <= set(charts(page))  # Curves need no scores.


def test_every_episode_of_the_newest_evaluation_is_shown(runs):
    folder = runs / "seeds" / "seed_1"
    played = read_json(folder / "evaluation.json")
    assert played["step"] == 6
    for kind in ("greedy", "sampled"):
        assert len(played[kind]["returns"]) == len(played[kind]["lengths"]) == 2
        mean = sum(played[kind]["returns"]) / 2
        assert mean == read_json(folder / "result.json")[f"eval_return_{kind}"]
    played["sampled"] = {"returns": [1.0, 4.0, 4.0], "lengths": [2, 2, 5]}
    (folder / "evaluation.json").write_text(json.dumps(played))
    page = body(report(runs / "seeds"))
    boxes = charts(page)["Returns of the evaluation's episodes"]["data"]
    assert [box["name"] for box in boxes] == [
        "seed_0, greedy", "seed_0, sampled", "seed_1, greedy", "seed_1, sampled"
    ]  # fmt: skip
    assert boxes[-1]["x"] == [1, 4, 4]
    assert "seed_1, sampled 6 3 3 1.414 1 4 4 3" in text(page)
    (folder / "evaluation.json").write_text('{"step": 6, "greedy": {"returns": ["x"]}}')
    assert "evaluation.json is damaged" in text(body(report(runs / "seeds")))


def test_a_search_is_told_whole(made):
    page = body(report(made / "searched"))
    drawn = charts(page)
    by_trial = lines(drawn["Mean return by trial"])
    assert (by_trial["trials"]["x"], by_trial["trials"]["y"]) == ([0, 1], [0.25, 0.5])
    assert by_trial["best so far"]["y"] == [0.25, 0.5]
    rates = lines(drawn["Mean return by learning_rate"])["trials"]
    assert sorted(zip(rates["x"], rates["y"], strict=True)) == [(0.002, 0.25), (0.01, 0.5)]
    assert "Mean return by torso" not in drawn  # Its values are no numbers: the table has them.
    curves = lines(drawn["Learning curves"])
    assert curves["the best, trial 1"]["x"] == [5, 100]
    said = text(page)
    assert "1 0.5 yes 0.01 8 8" in said
    assert "the loss is not finite" in said
    _, command, *words = shlex.split(commands(page)[0])
    assert parse_arguments(command, words).config.to_json() == read_json(
        made / "searched" / "config.json"
    )
    assert f"discorl train --config {made / 'searched' / 'preset.json'}" in commands(page)
    assert "notice" not in page


def test_an_unfinished_or_damaged_search(runs):
    folder = runs / "searched"
    (folder / "trials.json").write_text('{"trials": [{"number": "x"}]}')
    assert "trials.json is damaged" in text(body(report(folder)))
    (folder / "trials.json").unlink()
    said = text(body(report(folder)))
    assert "It has not finished: its trials are told once all of them have ended." in said
    assert "discorl resume" in said


def test_films_are_inside_the_page(runs):
    (runs / "other" / "agent.gif").write_bytes(GIF)
    page = body(report(runs / "other"))
    assert f"data:image/gif;base64,{base64.b64encode(GIF).decode()}" in page
    assert "other/agent.gif" in text(page)


def test_the_newest_film_of_the_evaluations_is_shown(runs):
    videos = runs / "other" / "videos"
    videos.mkdir()
    for step in (3, 6):
        (videos / f"step_{step:08d}.gif").write_bytes(GIF)
    page = body(report(runs / "other"))
    assert "The agent at play" in sections(page)
    assert page.count("data:image/gif;base64") == 1
    assert "other/videos/step_00000006.gif" in text(page)


def test_an_agent_without_a_film_is_filmed(made, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(made / "other"), str(made / "seeds"), "--out", str(out)]) == 0
    page = body(out.read_text())
    # One for each experiment, of its first seed, and nothing in the folders
    assert page.count("data:image/gif;base64,") == 2
    assert "other: 1 episode, return" in text(page)
    assert "seed_0: 1 episode, return" in text(page)
    assert not list(made.rglob("*.gif"))
    assert main(["report", str(made / "other"), "--no-film", "--out", str(out)]) == 0
    assert "data:image/gif" not in out.read_text()


def test_why_an_agent_cannot_be_filmed(runs, tmp_path):
    folder = runs / "other"
    config = read_json(folder / "config.json") | {"env": "nowhere-v0"}
    (folder / "config.json").write_text(json.dumps(config))
    write_report([folder], tmp_path / "report.html")
    said = text(body((tmp_path / "report.html").read_text()))
    assert "There is no film of other:" in said
    assert "nowhere-v0" in said.partition("There is no film of other:")[2][:300]


def test_the_file_needs_nothing_beside_it(made, tmp_path):
    out = tmp_path / "report.html"
    write_report([made / "other"], out)
    page = out.read_text()
    without_plotly = page.replace(page_module.plotly_script(), "")
    assert len(without_plotly) < len(page)
    assert 'src="data:image/gif;base64,' in without_plotly
    without_plotly = without_plotly.replace('src="data:image/gif;base64,', "")
    for word in ("src=", "href=", "@import", "url(", "fetch("):
        outside = [line for line in without_plotly.splitlines() if f"{word}" in line]
        assert all('href="data:,"' in line or "location.href" in line for line in outside), word
    assert "prefers-color-scheme: dark" in page


def test_runs_of_several_kinds_are_parts_of_one_page(made):
    page = body(report(made / "other", made / "found", made / "compared"))
    assert '<h1 class="part">Training run</h1>' in page
    assert '<h1 class="part">Discovery found</h1>' in page
    assert '<h1 class="part">Comparison compared</h1>' in page
    idents = [part.partition('"')[0] for part in page.split(' id="')[1:]]
    assert len(idents) == len(set(idents))


def test_texts_from_files_cannot_become_markup(runs):
    folder = runs / "other"
    evil = "</script><script>alert(1)</script>"
    config = read_json(folder / "config.json") | {"rule": evil}
    (folder / "config.json").write_text(json.dumps(config))
    page = body(report(folder))
    assert evil not in page
    assert "<script>alert" not in page
    assert evil in text(page) or "alert(1)" in text(page)
    assert as_script("</script>") == '"\\u003c/script\\u003e"'
    assert escape("<b>") == "&lt;b&gt;"
    assert escape(Html("<b>")) == "<b>"
    assert "&lt;b&gt;" in table(("<b>",), [("<b>",)])


def test_values_are_shown_as_people_write_them():
    values = {
        True: "yes",
        5: "5",
        12345: "12,345",
        0.002: "0.002",
        0.0071756: "0.00718",
        1e-9: "1e-09",
        1.5: "1.5",
    }
    for value, words in values.items():
        assert show(value) == words
    assert show(None) == "–"  # noqa: RUF001
    assert show((64, 64)) == "64 64"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("report", "report: name one or more run folders"),
        ("report nowhere", "nowhere holds no run: there is no such folder"),
        ("report . --out x.pdf", "a report is a web page: let its name end in .html"),
        ("serve nowhere", "nowhere: no such folder"),
        ("serve . --port 99999", "--port: expected a number from 0 to 65535"),
    ],
)
def test_mistakes_are_told_in_one_line(args, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(args.split()) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["report", "serve"])
def test_without_plotly_the_line_that_installs_it_is_told(command, made, monkeypatch, capsys):
    monkeypatch.setattr(page_module, "find_spec", lambda _: None)
    assert main([command, str(made)]) == 2
    assert install_line("report") in capsys.readouterr().err


def test_a_folder_of_other_files_holds_no_run(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"hidden_size": 3}')
    with pytest.raises(DiscorlError, match="holds no run"):
        expand_folders([tmp_path])
