"""Runs of a comparison that were cut off go on from where they were."""

import shutil
from dataclasses import replace

import pytest

from discorl.comparison.cells import Cell
from discorl.comparison.config import CompareConfig
from discorl.comparison.run import resume_comparison, start_comparison
from discorl.comparison.runners import finish_cell
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer

CATCH = "catch:rows=3,columns=3"
STEPS = 8


@pytest.fixture(autouse=True)
def saved_at_every_step(monkeypatch):
    monkeypatch.setattr("discorl.comparison.unfinished._SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr("discorl.comparison.unfinished._WAIT_AFTER_WRITING", 0.0)


@pytest.fixture
def steps_taken(monkeypatch):
    """The steps that trainers took; `steps_taken.limit` is where the next one dies."""

    class Steps(list):
        limit = None

    taken, step = Steps(), Trainer.train_step

    def counted(trainer):
        if trainer.step == taken.limit:
            raise MemoryError("killed")
        taken.append(trainer.step)
        return step(trainer)

    monkeypatch.setattr(Trainer, "train_step", counted)
    return taken


def make_cell(**settings):
    sizes = {"num_envs": 4, "rollout_length": 9, "torso": (4,), "replay_capacity": 16, **settings}
    config = make_config(CATCH, "actor_critic", steps=STEPS, **sizes)
    return Cell("actor_critic", config, "actor_critic")


def cut_off(folder, cell, steps_taken, at=5):
    steps_taken.limit = at
    with pytest.raises(MemoryError):
        finish_cell(folder, cell)
    steps_taken.limit = None
    steps_taken.clear()


def test_a_run_that_was_cut_off_goes_on_and_is_the_same_run(tmp_path, steps_taken):
    whole = finish_cell(tmp_path / "whole", make_cell())
    steps_taken.clear()
    cut_off(tmp_path / "cut", make_cell(), steps_taken)
    resumed = finish_cell(tmp_path / "cut", make_cell())
    assert steps_taken == [5, 6, 7]
    assert replace(resumed, seconds=whole.seconds) == whole
    assert len(list((tmp_path / "cut").rglob("*.*"))) == 1  # The result, and nothing else.


def test_another_run_does_not_take_it(tmp_path, steps_taken):
    cut_off(tmp_path, make_cell(), steps_taken)
    finish_cell(tmp_path, make_cell(learning_rate=0.01))
    assert steps_taken == list(range(STEPS))


def test_what_does_not_fit_is_left_with_a_warning(tmp_path, steps_taken):
    # Given the checkpoint of a larger agent under this one's name
    small, large = make_cell(), make_cell(torso=(8,))
    cut_off(tmp_path, large, steps_taken)
    at = tmp_path / "under_way"
    shutil.move(at / large.name, at / small.name)
    # When the run begins, then it begins from the start
    with pytest.warns(UserWarning, match="from the start"):
        result = finish_cell(tmp_path, small)
    assert steps_taken == list(range(STEPS))
    assert result == replace(finish_cell(tmp_path / "b", small), seconds=result.seconds)


def test_a_disk_that_takes_nothing_does_not_end_a_run(tmp_path, steps_taken):
    (tmp_path / "under_way").write_text("a file in its place")
    with pytest.warns(UserWarning, match="cannot be resumed"):
        finish_cell(tmp_path, make_cell())
    assert steps_taken == list(range(STEPS))


def test_a_comparison_that_was_stopped_keeps_it_and_one_that_is_done_does_not(
    tmp_path, steps_taken
):
    settings = ("num_envs=4", "rollout_length=9", "torso=4", "replay_capacity=16")
    config = CompareConfig(
        rules=("actor_critic",), envs=(CATCH,), seeds=1, steps=STEPS, set=settings
    )
    folder = tmp_path / "cmp"
    whole = start_comparison(config, tmp_path / "whole", jobs=1)
    # Given a comparison without its result, with a run that was killed on the way
    start_comparison(config, folder, jobs=1)
    (result,) = (folder / "cells").glob("*.json")
    result.unlink()
    cell = Cell("actor_critic", config.run_config(config.entrants()[0], CATCH, 0), "actor_critic")
    cut_off(folder / "cells", cell, steps_taken)
    (at,) = (folder / "cells" / "under_way").iterdir()
    assert at.name == result.stem
    # When it is resumed
    summary = resume_comparison(folder, jobs=1)
    # Then its result is that of one that nobody stopped, and nothing is left
    ((run,),) = (group.runs for group in summary.groups.values())
    ((other,),) = (group.runs for group in whole.groups.values())
    assert replace(run, seconds=0) == replace(other, seconds=0)
    assert sorted(path.name for path in (folder / "cells").iterdir()) == [result.name]
