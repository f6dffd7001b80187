"""Several seeds of one training run as one computation, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import mean
from typing import Any

from discorl.errors import DiscorlError
from discorl.life.life import BadRewardError
from discorl.life.together import act_together, learn_together
from discorl.processes import group_size
from discorl.rollout import Rollout
from discorl.rules.base import Metrics
from discorl.runs.folder import SEED_FOLDER
from discorl.runs.session import Interrupted, Observer, Progress, stop_signals
from discorl.runtime import computing_on
from discorl.settings import change
from discorl.training.config import TrainConfig
from discorl.training.records import run_notes
from discorl.training.run import TrainingRun
from discorl.training.start import new_run
from discorl.training.trainer import Trainer


def start_runs(
    config: TrainConfig, seeds: Sequence[int], folder: Path, observer: Observer | None = None
) -> list[dict[str, Any]]:
    """Train an agent for each seed, side by side; returns what each `result.json` holds.

    The runs are those of `start_run` but for rounding, and each can be resumed alone.

    Args:
      folder: gets a run folder `seed_N` for each seed.
    """
    if config.compile or config.overlap:
        word = "--compile" if config.compile else "--overlap"
        raise DiscorlError(f"--stacked: not with {word}; drop one of them")
    if group_size() > 1:
        raise DiscorlError("--stacked: not in several processes; drop it")
    observer = observer or Observer()
    with ExitStack() as opened:
        runs = [
            opened.enter_context(
                new_run(
                    change(config, {"seed": seed}),
                    folder / f"{SEED_FOLDER}{seed}",
                    _Aside(observer),
                )
            )
            for seed in seeds
        ]
        for run in runs:
            opened.callback(run.close)
        title = f"{config.rule} on {config.env}, {len(runs)} seeds -> {folder}"
        observer.start(title, config.steps, run_notes(runs[0].trainer))
        return _Seeds(runs, observer).run()


class _Aside(Observer):
    """Of one seed among many, only evaluations are shown."""

    def __init__(self, shown: Observer) -> None:
        self._shown = shown

    def evaluating(self, what: str, done: int, total: int) -> None:
        """See `Observer.evaluating`."""
        self._shown.evaluating(what, done, total)


class _Seeds:
    """The loop over runs that take their steps together."""

    def __init__(self, runs: Sequence[TrainingRun], observer: Observer) -> None:
        self.runs, self.observer = runs, observer
        self.going = list(runs)

    def run(self) -> list[dict[str, Any]]:
        """Train until all runs are at their end."""
        work = sum(run.trainer.life.work for run in self.runs)
        threads = self.runs[0].config.run.threads
        with computing_on(threads, work), stop_signals() as stop:
            for run in self.runs:
                run.stop = stop
            try:
                while self.going:
                    self._step()
                return [run.finish() for run in self.runs]
            except (DiscorlError, Interrupted):
                self._save_all()
                raise

    def _save_all(self) -> None:
        for run in self.going:
            if run.trainer.step:
                with suppress(DiscorlError):  # What is not finite is not saved.
                    run.save()

    def _step(self) -> None:
        metrics = train_together([run.trainer for run in self.going])
        done = [run.after_step(own) for run, own in zip(self.going, metrics, strict=True)]
        self._show()
        self.going[0].heed_signals()
        self.going = [
            run
            for run, enough in zip(self.going, done, strict=True)
            if not enough and run.trainer.step < run.config.steps
        ]

    def _show(self) -> None:
        """The mean of the records of the runs that go on."""
        first = self.going[0]
        step, steps = first.trainer.step, first.config.steps
        if first.is_due(step):
            records = [run.latest for run in self.going]
            known = [name for name in records[0] if all(name in record for record in records)]
            shown = {name: mean(record[name] for record in records) for name in known}
            self.observer.progress(Progress(step, steps, shown, first.folder.parent))


def train_together(trainers: Sequence[Trainer]) -> list[Metrics | None]:
    """`Trainer.train_step` of each: all have one configuration but for the seed."""
    lives = [trainer.life for trainer in trainers]
    try:
        rollouts = act_together(lives)
    except BadRewardError as error:
        raise DiscorlError(f"{error} at step {trainers[0].step + 1}.") from error
    metrics: list[Metrics | None] = [None] * len(lives)
    for update in range(trainers[0].config.life.experience.replay.replay_ratio):
        batches = [
            life.batch(rollout, store=update == 0)
            for life, rollout in zip(lives, rollouts, strict=True)
        ]
        ready: list[Rollout] = [batch for batch in batches if batch is not None]
        if ready:  # All or none: they have seen equally much.
            metrics = list(learn_together(lives, ready))
    for trainer in trainers:
        trainer.step += 1
    return metrics
