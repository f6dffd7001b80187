"""Run folders: what is in them, how a run goes on, and what a mishap leaves behind."""

import errno
import json
import os
import signal
import subprocess
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule, save_rule
from discorl.runs import checkpoint as checkpoint_module
from discorl.runs.checkpoint import Checkpoint, list_checkpoints, load_latest, save_checkpoint
from discorl.runs.metrics import MetricsWriter, read_metrics
from discorl.runs.plots import plot_curves, read_curve
from discorl.runs.session import Interrupted, Observer
from discorl.training.config import TrainConfig
from discorl.training.handle import load_agent
from discorl.training.records import mean_metrics
from discorl.training.start import load_trainer, read_config, resume_run, start_run
from discorl.training.trainer import Trainer

CLOCKS = ("time/",)


def config(**settings):
    small = {
        "env": "catch:rows=5,columns=5",
        "rule": "actor_critic",
        "steps": 30,
        "torso": (16, 16),
        "model_size": 8,
        "head_hidden": 8,
        "batch_size": 8,
        "num_envs": 2,
        "rollout_length": 9,
        "replay_capacity": 32,
        "learning_rate": 1e-3,
        "log_every": 5,
        "checkpoint_every": 10,
        "eval_episodes": 5,
    }
    return TrainConfig.from_json(small | settings)


def last_tensors(folder):
    return load_file(list_checkpoints(folder / "checkpoints")[-1] / "state.safetensors")


def assert_same_end(one, other):
    """Bit-identical last checkpoints and, but for the clocks, metrics."""
    first, second = last_tensors(one), last_tensors(other)
    assert list(first) == list(second)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
    assert timeless(one) == timeless(other)


def timeless(folder):
    return [
        {k: v for k, v in record.items() if not k.startswith(CLOCKS)}
        for record in read_metrics(folder)
    ]


class StopAt(Observer):
    """An observer that sends a signal when a step is logged."""

    def __init__(self, step, signum=signal.SIGINT):
        self.step, self.signum, self.notes = step, signum, []

    def start(self, title, steps, notes):
        self.notes += notes

    def progress(self, progress):
        if progress.step == self.step:
            os.kill(os.getpid(), self.signum)


class Crash(Exception):
    pass


class CrashAt(StopAt):
    """An observer that breaks the run off without a word."""

    def progress(self, progress):
        if progress.step == self.step:
            raise Crash


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    result = start_run(config(), folder)
    return folder, result


def test_a_run_folder_has_everything(whole):
    folder, result = whole
    assert TrainConfig.from_json(json.loads((folder / "config.json").read_text())) == config()
    assert json.loads((folder / "result.json").read_text()) == result
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert list((folder / "tensorboard").glob("events.out.tfevents.*"))
    names = [p.name for p in list_checkpoints(folder / "checkpoints")]
    assert names == ["step_00000020", "step_00000030"]
    assert not (folder / "rule.safetensors").exists()
    assert [p.name for p in folder.rglob(".*")] == [".lock"]


def test_the_result_says_what_happened(whole):
    _, result = whole
    assert (result["steps"], result["env_steps"]) == (30, 30 * 9 * 2)
    assert result["episodes"] == 2 * ((30 * 9 - 1) // 4)
    assert -1 <= result["eval_return_greedy"] <= 1
    assert result["eval_episodes"] == 5
    phases = ("environment", "acting", "replay", "learning")
    shares = [result[f"share_{phase}"] for phase in phases]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert all(0 <= share <= 1 for share in shares)


def test_metrics_are_recorded(whole):
    folder, _ = whole
    records = read_metrics(folder)
    assert [r["step"] for r in records] == [5, 10, 15, 20, 25, 30]
    wanted = {
        "charts/env_steps",
        "charts/episodes",
        "charts/episode_return",
        "charts/episode_length",
        "losses/total_loss",
        "losses/pg_loss",
        "rule/entropy",
        "rule/global_gradient_norm",
        "time/steps_per_second",
    }
    for record in records:
        assert wanted <= set(record)
        assert record["charts/env_steps"] == record["step"] * 18
    assert records[-1]["charts/episode_length"] == 4


def test_logged_losses_are_means_of_the_steps_between():
    trainer = Trainer(config(), load_rule("actor_critic"))
    losses = []
    for _ in range(10):
        metrics = trainer.train_step()
        losses.append(metrics and metrics["total_loss"].double().item())
    expected = sum(losses[5:]) / 5
    pending = [(s, {"total_loss": torch.tensor(x)}) for s, x in enumerate(losses[5:])]
    assert mean_metrics(pending)["total_loss"] == pytest.approx(expected, rel=1e-6)


def test_tensorboard_holds_the_same_numbers(whole):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = whole
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    scalars = events.Scalars("losses/total_loss")
    records = read_metrics(folder)
    assert [s.step for s in scalars] == [r["step"] for r in records]
    for scalar, record in zip(scalars, records, strict=True):
        assert scalar.value == pytest.approx(record["losses/total_loss"], rel=1e-6)


def test_the_config_reproduces_the_run(whole, tmp_path):
    folder, _ = whole
    start_run(read_config(folder), tmp_path / "again")
    assert_same_end(folder, tmp_path / "again")


def test_evaluations_on_the_way_do_not_change_the_run(whole, tmp_path):
    folder, _ = whole
    start_run(config(eval_every=10), tmp_path / "run")
    assert [r["step"] for r in read_metrics(tmp_path / "run") if "eval/return_greedy" in r] == [
        10,
        20,
        30,
    ]
    for name, tensor in last_tensors(folder).items():
        assert torch.equal(tensor, last_tensors(tmp_path / "run")[name]), name


def test_an_evaluation_between_two_records_is_not_lost(tmp_path):
    start_run(config(steps=12, log_every=5, eval_every=4), tmp_path / "run")
    steps = [r["step"] for r in read_metrics(tmp_path / "run") if "eval/return_greedy" in r]
    assert len(steps) == 3


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_checkpoint_and_the_run_goes_on_exactly(whole, tmp_path, signum):
    before = signal.getsignal(signal.SIGINT)
    folder = tmp_path / "run"
    with pytest.raises(Interrupted) as stop:
        start_run(config(), folder, StopAt(15, signum))
    assert stop.value.exit_code == 128 + signum
    assert stop.value.folder == folder
    assert list_checkpoints(folder / "checkpoints")[-1].name == f"step_{stop.value.step:08d}"
    assert not (folder / "result.json").exists()
    observer = StopAt(None)
    resume_run(folder, observer=observer)
    assert any("resuming from step" in note for note in observer.notes)
    assert_same_end(whole[0], folder)
    # The handlers of before are back.
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_between_two_records_changes_no_record(whole, tmp_path, monkeypatch):
    """The losses of steps before the stop belong to the next record."""
    folder, step = tmp_path / "run", Trainer.train_step

    def train_step(self):
        metrics = step(self)
        if self.step == 13:
            os.kill(os.getpid(), signal.SIGTERM)
        return metrics

    monkeypatch.setattr(Trainer, "train_step", train_step)
    with pytest.raises(Interrupted):
        start_run(config(), folder)
    monkeypatch.undo()
    resume_run(folder)
    assert_same_end(whole[0], folder)


def test_a_broken_off_run_drops_later_metrics(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_run(config(), folder, CrashAt(25))
    assert [r["step"] for r in read_metrics(folder)][-1] == 25
    assert list_checkpoints(folder / "checkpoints")[-1].name == "step_00000020"
    resume_run(folder)
    assert [r["step"] for r in read_metrics(folder)] == [5, 10, 15, 20, 25, 30]
    assert_same_end(whole[0], folder)


def test_a_run_without_a_checkpoint_begins_again(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_run(config(), folder, CrashAt(5))
    assert not list_checkpoints(folder / "checkpoints")
    with pytest.raises(DiscorlError, match="no intact checkpoint"):
        load_agent(folder)
    resume_run(folder)
    assert_same_end(whole[0], folder)


def test_a_cut_last_line_of_metrics_is_dropped(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_run(config(), folder, CrashAt(25))
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 26, "losses/tot')
    resume_run(folder)
    assert_same_end(whole[0], folder)


def test_more_steps_can_be_asked_for(whole, tmp_path):
    folder = tmp_path / "run"
    start_run(config(steps=17), folder)
    result = resume_run(folder, steps=30)
    assert result["steps"] == 30
    assert read_config(folder).steps == 30
    for name, tensor in last_tensors(whole[0]).items():
        assert torch.equal(tensor, last_tensors(folder)[name]), name


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path):
    folder = tmp_path / "run"
    start_run(config(steps=12), folder)
    before = timeless(folder), last_tensors(folder)
    assert resume_run(folder)["steps"] == 12
    assert timeless(folder) == before[0]
    assert all(torch.equal(t, last_tensors(folder)[n]) for n, t in before[1].items())


def test_a_schedule_is_stretched_to_a_new_end(tmp_path):
    folder = tmp_path / "run"
    start_run(config(steps=6, learning_rate_schedule="linear"), folder)
    before = last_tensors(folder)
    assert resume_run(folder, steps=12)["steps"] == 12
    assert read_config(folder).steps == 12
    # A run that had reached its end learns again: it is in the middle of a longer fall now
    params = [name for name in before if name.startswith("learner/params")]
    assert params
    assert any(not torch.equal(before[name], last_tensors(folder)[name]) for name in params)


def test_a_folder_with_a_run_is_not_overwritten(whole):
    folder, _ = whole
    before = (folder / "config.json").read_bytes()
    with pytest.raises(DiscorlError, match=r"already holds a training run.*discorl resume"):
        start_run(config(seed=1), folder)
    assert (folder / "config.json").read_bytes() == before


def test_a_folder_without_a_run_is_said(tmp_path):
    with pytest.raises(DiscorlError, match=r"holds no run: there is no config\.json"):
        resume_run(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DiscorlError, match=r"config\.json cannot be read"):
        resume_run(tmp_path)


def test_a_damaged_config_value_is_said(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"steps": "many"}))
    with pytest.raises(DiscorlError):
        resume_run(tmp_path)


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("state.safetensors", "cut"),
        ("state.safetensors", "flip"),
        ("state.safetensors", "remove"),
        ("meta.json", "cut"),
        ("meta.json", "remove"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(whole, tmp_path, file, damage):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_run(config(), folder, CrashAt(25))
    path = list_checkpoints(folder / "checkpoints")[-1] / file
    if damage == "cut":
        cut_in_half(path)
    elif damage == "remove":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.warns(UserWarning, match="step_00000020.*trying the checkpoint before"):
        assert load_trainer(folder).step == 10
    with pytest.warns(UserWarning, match="step_00000020"):
        resume_run(folder)
    assert_same_end(whole[0], folder)


def test_with_no_whole_checkpoint_a_run_begins_again(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_run(config(), folder, CrashAt(25))
    for path in list_checkpoints(folder / "checkpoints"):
        cut_in_half(path / "state.safetensors")
    with pytest.warns(UserWarning, match="damaged"):
        resume_run(folder)
    assert_same_end(whole[0], folder)


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / ".tmp_abc").mkdir(parents=True)
    (folder / ".tmp_abc" / "state.safetensors").write_bytes(b"half")
    save_checkpoint(folder, Checkpoint(1, {"x": torch.ones(2)}, {}), keep=1)
    assert [p.name for p in folder.iterdir()] == ["step_00000001"]


def test_checkpoints_come_back_as_they_were(tmp_path):
    tensors = {
        "a/b": torch.randn(3, 2).t(),
        "count": torch.tensor(5),
        "flags": torch.tensor([True, False]),
        "bytes": torch.arange(4, dtype=torch.uint8),
        "empty": torch.zeros(0, 3),
    }
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, Checkpoint(step, tensors, {"n": [1, 0.1]}), keep=2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step_00000002", "step_00000003"]
    found = load_latest(tmp_path)
    assert (found.step, found.values) == (3, {"n": [1, 0.1]})
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_a_checkpoint_may_be_written_again(tmp_path):
    for value in (1.0, 2.0):
        save_checkpoint(tmp_path, Checkpoint(7, {"x": torch.tensor(value)}, {}), keep=2)
    assert load_latest(tmp_path).tensors["x"].item() == 2.0


@pytest.fixture
def nan_at(monkeypatch):
    """Let the update of one step break: a metric and all new parameters become NaN."""

    def install(step):
        plain = Trainer.train_step

        def train_step(self):
            metrics = plain(self)
            if self.step == step:
                state = self.life.state
                nan = {n: p * torch.nan for n, p in state.params.items()}
                self.life.mind.state = replace(state, params=nan)
                metrics["pg_loss"] = torch.tensor(torch.nan)
            return metrics

        monkeypatch.setattr(Trainer, "train_step", train_step)

    return install


@pytest.mark.parametrize(("bad", "log_every", "kept"), [(23, 5, 20), (10, 7, None), (20, 50, 10)])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, nan_at, bad, log_every, kept):
    nan_at(bad)
    folder = tmp_path / "run"
    with pytest.raises(DiscorlError, match=rf"losses/pg_loss is not finite at step {bad}\b"):
        start_run(config(log_every=log_every), folder)
    found = load_latest(folder / "checkpoints")
    assert (found and found.step) == kept
    if found:
        assert all(torch.isfinite(t).all() for t in found.tensors.values() if t.is_floating_point())
    assert not (folder / "result.json").exists()
    assert "NaN" not in (folder / "metrics.jsonl").read_text()


def test_a_non_finite_run_that_is_mended_goes_on(whole, tmp_path, nan_at, monkeypatch):
    nan_at(23)
    folder = tmp_path / "run"
    with pytest.raises(DiscorlError):
        start_run(config(), folder)
    monkeypatch.undo()
    resume_run(folder)
    assert_same_end(whole[0], folder)


def test_the_first_bad_metric_is_named():
    fine, bad = torch.tensor(1.0), torch.tensor(torch.inf)
    with pytest.raises(DiscorlError, match="rule/entropy is not finite at step 4"):
        mean_metrics([(3, {"loss": fine, "entropy": fine}), (4, {"loss": fine, "entropy": bad})])
    assert mean_metrics([]) == {}


@contextmanager
def small_disk(path: Path, size: str):
    """A file system of its own, so that it can really be full."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(folder: Path) -> Path:
    """Take all the space there is."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017
    return path


class FillDiskAt(StopAt):
    def __init__(self, step, disk):
        super().__init__(step)
        self.disk = disk

    def progress(self, progress):
        if progress.step == self.step:
            fill(self.disk)


def test_a_full_disk_is_said_and_loses_nothing(whole, tmp_path):
    with small_disk(tmp_path / "disk", "4m") as disk:
        folder = disk / "run"
        with pytest.raises(DiscorlError, match=r"(?i)no space left"):
            start_run(config(), folder, FillDiskAt(15, disk))
        found = load_latest(folder / "checkpoints")
        assert found.step == 10
        (disk / "ballast").unlink()
        resume_run(folder)
        assert_same_end(whole[0], folder)


def test_a_disk_full_at_the_checkpoint_is_said_and_loses_nothing(whole, tmp_path):
    with small_disk(tmp_path / "disk", "4m") as disk:
        folder = disk / "run"
        # The record of step 20 was written when the observer hears of it.
        with pytest.raises(DiscorlError, match=r"(?i)step_00000020.*no space left"):
            start_run(config(log_every=10), folder, FillDiskAt(20, disk))
        assert [p.name for p in (folder / "checkpoints").iterdir()] == ["step_00000010"]
        assert load_latest(folder / "checkpoints").step == 10
        (disk / "ballast").unlink()
        resume_run(folder)
        for name, tensor in last_tensors(whole[0]).items():
            assert torch.equal(tensor, last_tensors(folder)[name]), name


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_write_leaves_the_earlier_checkpoint(tmp_path, monkeypatch, code):
    def fail(_path):
        raise OSError(code, os.strerror(code))

    save_checkpoint(tmp_path, Checkpoint(1, {"x": torch.ones(2)}, {}), keep=1)
    monkeypatch.setattr(checkpoint_module, "sync", fail)
    with pytest.raises(DiscorlError, match=r"step_00000002.*cannot be written"):
        save_checkpoint(tmp_path, Checkpoint(2, {"x": torch.ones(2)}, {}), keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000001"]
    assert load_latest(tmp_path).step == 1


def test_a_discovered_rule_is_kept_with_the_run(tiny_rule, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_rule(tiny_rule, path)
    settings = config(rule=str(path), steps=12)
    start_run(settings, tmp_path / "whole")
    with pytest.raises(Crash):
        start_run(settings, tmp_path / "run", CrashAt(10))
    path.unlink()  # The run has its own copy.
    resume_run(tmp_path / "run")
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    assert "losses/pi_loss" in read_metrics(tmp_path / "run")[-1]


def test_a_stopped_metrics_writer_goes_on_after_the_given_step(tmp_path):
    writer = MetricsWriter(tmp_path)
    for step in (1, 2, 3):
        writer.write(step, {"x": float(step)})
    writer.close()
    writer = MetricsWriter(tmp_path, start_step=2)
    writer.write(3, {"x": 30.0})
    writer.close()
    assert [r["x"] for r in read_metrics(tmp_path)] == [1.0, 2.0, 30.0]


def test_no_warnings_on_a_healthy_resume(whole):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_trainer(whole[0]).step == 30


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_curves_are_drawn_in_the_format_asked_for(whole, tmp_path, suffix, start):
    path = tmp_path / f"curves.{suffix}"
    plot_curves([read_curve(whole[0])] * 2, path)
    assert path.read_bytes().startswith(start)


def test_a_picture_in_an_unknown_format_is_said(whole, tmp_path):
    with pytest.raises(DiscorlError, match="xyz"):
        plot_curves([read_curve(whole[0])], tmp_path / "curves.xyz")
    assert not list(tmp_path.iterdir())


def test_a_metric_that_is_not_there_is_said(whole, tmp_path):
    with pytest.raises(DiscorlError, match="no metric 'losses/none'"):
        read_curve(whole[0], "losses/none")
    with pytest.raises(DiscorlError, match=r"holds no run: there is no config\.json"):
        read_curve(tmp_path)
