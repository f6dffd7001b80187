"""The page of the zoo: joined comparisons, what it says of them, and that it is current."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from discorl.cli.__main__ import main
from discorl.comparison.config import CompareConfig
from discorl.comparison.run import start_comparison
from discorl.envs.scores import FieldScore
from discorl.errors import DiscorlError

DOCS = Path(__file__).parents[1] / "docs"
SMALL = ("num_envs=4", "rollout_length=5", "batch_size=4", "replay_capacity=16", "torso=8")
CATCH = "catch:rows=3,columns=3"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("zoo_page", DOCS / "zoo_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["zoo_page"] = module  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


def compare(folder: Path, rule: str, *envs: str) -> Path:
    config = CompareConfig(rules=(rule,), envs=envs, seeds=2, env_steps=400, set=SMALL)
    start_comparison(config, folder, jobs=1)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two rules on Catch, in folders of their own, one of them on cart-pole too."""
    at = tmp_path_factory.mktemp("zoo")
    return [
        compare(at / "a", "actor_critic", CATCH, "cartpole"),
        compare(at / "b", "actor_critic:entropy_cost=0.01,learning_rate=0.001", CATCH),
    ]


def test_comparisons_are_joined(script: ModuleType, folders: list[Path], tmp_path: Path) -> None:
    # When the page is made of comparisons
    script.main([*map(str, folders), "--main", "actor_critic"], docs=tmp_path)
    # Then the file has every run, with a short curve,
    data = json.loads((tmp_path / "zoo.json").read_text())
    assert [*data["tasks"]] == [CATCH, "cartpole"]
    column = data["tasks"][CATCH]["entrants"]["actor_critic"]
    assert [run["seed"] for run in column["runs"]] == [0, 1]
    for run in column["runs"]:
        assert run["env_steps"] == 400
        assert 1 < len(run["curve_steps"]) == len(run["curve_returns"]) <= script.CURVE_POINTS
        assert run["curve_steps"][-1] == 400
    # every task has a picture,
    assert {path.name for path in (tmp_path / "images/zoo").iterdir()} == {
        "catch_rows_3_columns_3.png",
        "cartpole.png",
    }
    # and what was not run is said.
    page = (tmp_path / "zoo.md").read_text()
    other = "`actor_critic:entropy_cost=0.01,learning_rate=0.001`"
    assert f"| {other} | not run |" in page.partition("## cartpole")[2]


def test_comparisons_are_added_to_what_is_there(
    script: ModuleType, folders: list[Path], tmp_path: Path
) -> None:
    script.main([*map(str, folders), "--main", "actor_critic"], docs=tmp_path)
    together = (tmp_path / "zoo.json").read_text()
    # When they come one after the other, and the first one again,
    script.main([str(folders[0]), "--main", "actor_critic"], docs=tmp_path)
    script.main([*map(str, folders), "--add"], docs=tmp_path)
    # then nothing is lost and nothing is there twice.
    assert (tmp_path / "zoo.json").read_text() == together


def test_without_folders_everything_is_made_again(
    script: ModuleType, folders: list[Path], tmp_path: Path
) -> None:
    script.main([str(folders[0]), "--main", "actor_critic"], docs=tmp_path)
    before = (tmp_path / "zoo.md").read_text()
    (tmp_path / "zoo.md").unlink()
    script.main([], docs=tmp_path)
    assert (tmp_path / "zoo.md").read_text() == before
    zoo = script.load((tmp_path / "zoo.json").read_text())
    assert script.dump(zoo) == (tmp_path / "zoo.json").read_text()


def test_commands_run_it_again(
    script: ModuleType, folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the command for a rule with settings of its own
    zoo = script.read_comparisons(folders, main="actor_critic")
    task = zoo.tasks[CATCH]
    (name,) = {*task.entrants} - {"actor_critic"}
    command = script._with_seeds(name, task.entrants[name])
    assert "--rule actor_critic:entropy_cost=0.01 --env-steps 400" in command
    assert "--learning-rate 0.001" in command
    # When it is typed
    monkeypatch.chdir(tmp_path)
    assert main([*command.split()[1:], "--out", "run", "--eval-episodes", "1"]) == 0
    # Then the result is the same
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["episode_return"] == pytest.approx(task.entrants[name].runs[0].final_return)


def test_what_does_not_fit_together_is_refused(
    script: ModuleType, folders: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(DiscorlError, match="seed 0: is there already"):
        script.read_comparisons([folders[0], folders[0]], main="actor_critic")
    with pytest.raises(DiscorlError, match="no run of disco103"):
        script.read_comparisons(folders)
    with pytest.raises(SystemExit):
        script.main([], docs=tmp_path)


def invented(script: ModuleType, **returns: list[float]) -> object:
    """A zoo of one task with these final returns."""
    columns = {
        name.replace("_", "/"): script.Column(
            f"discorl train {name}",
            [script.Run(seed, value, 9, 1.0, [5, 9], [0.0, value]) for seed, value in enumerate(v)],
        )
        for name, v in returns.items()
    }
    task = script.Task(["--env-steps", "9"], 0.0, entrants=columns)
    return script.Zoo("zoo", "ours", {"Taxi-v4": task})


def test_verdicts_and_scores(script: ModuleType) -> None:
    zoo = invented(script, ours=[9.0, 10, 11], zoo_ppo=[1.0, 2, 3], zoo_dqn=[8.0, 10, 13], a=[20.0])
    text = script.page(zoo)
    # Three entrants with intervals, and one with a single seed, which has none
    assert "| `zoo/ppo` | 2.00 [-0.48, 4.48] | 3 | 9 | 1 | 8.00 [5.73, 10.27] | better |" in text
    assert "| level |" in text
    assert "| `a` | 20.00 | 1 | 9 | 1 |  |  |" in text
    assert "`a`: seeds not run: 1, 2." in text
    assert "| at least level |  |  | 1 of 1 | 1 of 1 |  |" in text
    assert "| 0.500 [0.450, 0.550] |" in text
    assert "| 1.000, single seeds |" in text
    assert "`zoo/ppo`: no entry in the zoo; the package's own defaults." in text
    # 0 is random play, 1 the best mean
    np.testing.assert_allclose(zoo.tasks["Taxi-v4"].scores("ours"), [0.45, 0.5, 0.55])
    worse = invented(script, ours=[1.0, 2, 3], zoo_ppo=[9.0, 10, 11])
    assert "| worse |" in script.page(worse)
    assert "| at least level |  |  | 0 of 1 |" in script.page(worse)
    # An entrant that ran on some tasks only
    worse.tasks["other"] = invented(script, ours=[1.0, 2, 3]).tasks["Taxi-v4"]
    assert "| has 1 of 2 tasks |" in script.page(worse)


def test_compiled_runs_are_told(script: ModuleType) -> None:
    # Given runs of one rule, some of which were compiled
    zoo = invented(script, ours=[1.0, 2, 3])
    runs = zoo.tasks["Taxi-v4"].entrants["ours"].runs
    runs[1:] = [replace(run, compiled=True) for run in runs[1:]]
    # Then the page says which, and they have one command.
    text = script.page(zoo)
    assert (
        "`ours`: run with `--compile`, which is faster and rounds differently: seeds 1, 2." in text
    )
    config = CompareConfig(rules=("actor_critic",), envs=(CATCH,), set=("compile=true",))
    (entrant,) = config.entrants()
    assert "--compile" not in script._command(config, entrant, CATCH)


def test_every_rule_is_held_against_the_tuned_peers(script: ModuleType) -> None:
    peers = {"zoo_ppo": [1.0, 2, 3], "zoo_dqn": [8.0, 10, 13]}
    text = script.page(invented(script, ours=[9.0, 10, 11], b=[3.0, 3, 4], a=[20.0], **peers))
    # One is level with both, one worse than one of them, and one has too few seeds to tell.
    assert (
        "At least level with `zoo/ppo` and `zoo/dqn`, where all have two seeds or more: "
        "`ours` on 1 of 1 tasks, `b` on 0 of 1 tasks." in text
    )


def test_a_task_where_nobody_beats_random_play_has_no_scores(script: ModuleType) -> None:
    zoo = invented(script, ours=[-2.0, -1], zoo_ppo=[-3.0, -1])
    assert "no entrant does better than random play: `Taxi-v4`" in script.page(zoo)


def test_the_fields_own_scores_stand_beside_returns(script: ModuleType) -> None:
    # Given a task that the field reports by a score, of which one entrant has two seeds
    runs = [script.Run(seed, 4.0, 9, 1.0, [9], [4.0], score=2.0 + seed) for seed in (0, 1)]
    columns = {"ours": script.Column("a", runs), "sb3/ppo": script.Column("b", runs[:1])}
    task = script.Task(["--env-steps", "9"], 1.5, "crafter_score", 1.625, columns)
    text = script.page(script.Zoo("worlds_zoo", "ours", {"crafter": task}))
    # Then the section has it with its interval, and random play's
    assert "random play: 1.500, crafter score 1.62." in text
    assert "| entrant | return [95% interval] | crafter score | n |" in text
    assert "| `ours` | 4.000 [4.000, 4.000] | 2.50 [-3.85, 8.85] | 2 |" in text
    assert "| `sb3/ppo` | 4.000 | 2.00 | 1 |" in text
    assert "(images/worlds_zoo/crafter.png)" in text
    # and where there is one seed, that of its episodes, if it is known.
    task.entrants["sb3/ppo"].runs = [replace(runs[0], score_interval=[1.5, 2.625])]
    text = script.page(script.Zoo("worlds_zoo", "ours", {"crafter": task}))
    assert "| `sb3/ppo` | 4.000 | 2.00, episodes: [1.50, 2.62] | 1 |" in text


def test_scores_are_read_from_comparisons(
    script: ModuleType, folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a field that reports twice the return of one environment
    def double(env: str, value: float, outcomes: object) -> FieldScore | None:
        return FieldScore("doubled", 2 * value) if env == "cartpole" else None

    monkeypatch.setattr(script, "field_score", double)
    monkeypatch.setattr("discorl.comparison.summary.field_score", double)
    # When its page is made and read again
    script.main([str(folders[0]), "--main", "actor_critic", "--page", "worlds_zoo"], docs=tmp_path)
    zoo = script.load((tmp_path / "worlds_zoo.json").read_text())
    # Then that one has the scores
    task = zoo.tasks["cartpole"]
    assert task.score_name == "doubled"
    assert task.random_score == pytest.approx(2 * task.random_return, abs=1e-5)
    for run in task.entrants["actor_critic"].runs:
        assert run.score == pytest.approx(2 * run.final_return, abs=1e-5)
    assert zoo.tasks[CATCH].score_name is None
    assert (tmp_path / "worlds_zoo.md").read_text() == script.page(zoo)


@pytest.mark.parametrize("name", ["zoo", "worlds_zoo"])
def test_the_pages_are_up_to_date(script: ModuleType, name: str) -> None:
    # If not: python docs/zoo_page.py --page NAME
    if not (DOCS / f"{name}.json").exists():
        pytest.skip(f"no comparison was put into docs/{name}.json yet")
    zoo = script.load((DOCS / f"{name}.json").read_text())
    assert (DOCS / f"{name}.md").read_text() == script.page(zoo)
    pictures = {path.name for path in (DOCS / "images" / name).iterdir()}
    assert pictures == {script.picture_name(env) for env in zoo.tasks}
