"""What a comparison tells of the runs that are under way."""

import io

import pytest
from rich.console import Console

from discorl.comparison.cells import Cell
from discorl.comparison.display import ComparisonDisplay
from discorl.comparison.peers import PeerConfig
from discorl.comparison.progress import Progress, ProgressFile, forget_progress, read_progress
from discorl.comparison.runners import finish_cell, run_cell
from discorl.comparison.unfinished import Unfinished
from discorl.training.presets import make_config

CATCH = "catch:rows=3,columns=3"


def rule_cell():
    sizes = {"num_envs": 4, "rollout_length": 9, "torso": (4,), "replay_fraction": 0.0}
    return Cell(
        "actor_critic", make_config(CATCH, "actor_critic", steps=4, **sizes), "actor_critic"
    )


def peer_cell():
    pytest.importorskip("stable_baselines3")
    settings = {"num_envs": 2, "n_steps": 8}
    return Cell("sb3/a2c", PeerConfig(CATCH, 0, 64, "a2c", settings), "sb3/a2c")


@pytest.mark.parametrize("make", [rule_cell, peer_cell])
def test_a_run_tells_how_far_it_is(make, tmp_path):
    told, cell = [], make()
    result = run_cell(cell, lambda *progress: told.append(progress), Unfinished(tmp_path, cell))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1
    assert told[-1][1] == pytest.approx(result.final_return)


def test_others_read_it_until_the_run_ends(tmp_path, monkeypatch):
    # Given a run that looks at what others would see
    seen = []
    note = ProgressFile.note

    def look(file, share, mean_return):
        note(file, share, mean_return)
        seen.extend(read_progress(tmp_path))

    monkeypatch.setattr(ProgressFile, "note", look)
    monkeypatch.setattr("discorl.comparison.progress._SECONDS_BETWEEN_WRITES", 0.0)
    cell = rule_cell()
    finish_cell(tmp_path, cell)
    # Then it is there from its first record to its last, and gone after it
    assert [progress.share for progress in seen] == [0.25, 0.5, 0.75, 1.0]
    assert {progress.run for progress in seen} == {str(cell)}
    assert read_progress(tmp_path) == []


def test_it_is_not_written_all_the_time_and_can_be_cleared_away(tmp_path):
    file = ProgressFile(tmp_path, rule_cell())
    file.note(0.25, None)
    file.note(0.5, 1.0)  # Within a second.
    assert [(p.share, p.mean_return) for p in read_progress(tmp_path)] == [(0.25, None)]
    # A file that is damaged, or that its run removes just now, is passed over.
    (tmp_path / "under_way" / "a.json").write_text("{")
    assert len(read_progress(tmp_path)) == 1
    forget_progress(tmp_path)
    assert read_progress(tmp_path) == []
    # A run goes on where nothing can be written.
    (tmp_path / "under_way").write_text("a file in its place")
    with ProgressFile(tmp_path, rule_cell()) as blocked:
        blocked.note(0.25, None)
    assert read_progress(tmp_path) == []


def test_it_is_shown(monkeypatch):
    monkeypatch.setattr("discorl.comparison.display._SECONDS_BETWEEN_LINES", 0.0)
    text = io.StringIO()
    with ComparisonDisplay(Console(file=text, width=200)) as display:
        display.start("3 runs", 3, 1)
        display.waiting(lambda: [Progress("a on b, seed 0", 0.25, None), Progress("c", 0.5, 1.5)])
    assert (
        "1/3  under way for 0:00:00; a on b, seed 0: 25%; c: 50%, return 1.500" in text.getvalue()
    )
    # On a terminal, the bar counts the parts.
    monkeypatch.setattr("discorl.comparison.display._SECONDS_BETWEEN_LOOKS", 0.0)
    screen = io.StringIO()
    with ComparisonDisplay(Console(file=screen, width=200, force_terminal=True)) as display:
        display.start("2 runs", 2, 0)
        display.waiting(lambda: [Progress("a on b, seed 0", 0.5, 2.0)])
    shown = screen.getvalue()
    assert "0/2 runs" in shown
    assert "25%" in shown
    assert "a on b, seed 0: 50%, return 2.000" in shown
