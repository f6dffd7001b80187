"""A search on disk: a study that one or more processes work on, and what they found.

`runs/NAME/` holds `config.json`, `study.journal` (all trials), and at the end `preset.json` (the
best settings, which `discorl train --config` reads), `trials.json` and `study.png`.
"""

from __future__ import annotations

import signal
import time
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from discorl.errors import DiscorlError
from discorl.files import explain_write_errors, write_json
from discorl.library.catalogue import load_rule
from discorl.runs.folder import (
    CONFIG_FILE,
    TRIALS_FILE,
    check_empty,
    read_settings,
    require_kind,
)
from discorl.runs.session import Interrupted, stop_signals
from discorl.runtime import computing_on
from discorl.settings import flag
from discorl.training.trainer import Trainer
from discorl.tuning.config import TuneConfig
from discorl.tuning.pictures import plot_study
from discorl.tuning.study import Study, Trial
from discorl.tuning.trials import Stopped, learning_curve

STUDY_FILE = "study.journal"
PRESET_FILE = "preset.json"
PICTURE_FILE = "study.png"
_CLAIM_SECONDS = 10.0
"""How long a process waits for another that is making the folder this search's."""


class TuningInterrupted(Interrupted):
    """A signal asked the search to stop; trials that have ended are kept."""

    def __init__(self, signum: int, folder: Path, done: int, trials: int) -> None:
        super().__init__(signum, folder, done)
        name = signal.Signals(signum).name
        self.args = (f"stopped by {name} with {done} of {trials} trials done",)


@dataclass(frozen=True)
class Tuning:
    """What a search has found."""

    config: TuneConfig
    folder: Path
    trials: list[Trial]
    """All that have come to an end, in all processes, the best first."""

    @property
    def best(self) -> Trial:
        """The trial with the highest mean return, of those that went through."""
        return self.trials[0]

    @property
    def preset(self) -> Path:
        """A file with the best trial's settings, for `discorl train --config`."""
        return self.folder / PRESET_FILE

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `trials.json`."""
        return {
            "config": self.config.to_json(),
            "preset": str(self.preset),
            "trials": [asdict(trial) for trial in self.trials],
        }


class TuningObserver(Protocol):
    """Shows a search to a person."""

    def start(self, title: str, trials: int, done: int) -> None:
        """The work begins, or resumes."""
        ...

    def trying(self, number: int, values: dict[str, Any], look: int, value: float | None) -> None:
        """A trial has come this far."""
        ...

    def finished(self, trial: Trial, done: int) -> None:
        """A trial has come to its end, as the so many-th of all processes."""
        ...


def start_tuning(
    config: TuneConfig, folder: Path, observer: TuningObserver | None = None
) -> Tuning:
    """Search in a new folder, or work on the study in one that holds this very search.

    Several processes may do so at once. Each takes up new trials until `config.trials` have come to
    an end; so the last ones of the others may be a few more.
    """
    space = config.space()
    settings = config.train_config({})
    with closing(Trainer(settings, load_rule(settings.rule))):
        pass  # What cannot run at all is told before anything is written.
    _claim(config, folder)
    study = Study(config, space, folder / STUDY_FILE)
    if observer:
        names = ", ".join(space)
        title = f"{config.rule} on {config.env}, searching {names} -> {folder}"
        observer.start(title, config.trials, study.ended())
    # Several processes share the machine, and numbers depend on threads.
    with stop_signals() as stop, computing_on(1, 0):
        while not stop and study.ended() < config.trials:
            _try_one(study, config, stop, observer)
        if stop:
            raise TuningInterrupted(stop[0], folder, study.ended(), config.trials)
    return _write_results(config, folder, study.trials())


def resume_tuning(
    folder: Path, trials: int | None = None, observer: TuningObserver | None = None
) -> Tuning:
    """Go on with a search, or join the processes that work on it.

    Args:
      trials: a new number of trials.
    """
    config = read_tune_config(folder)
    return start_tuning(replace(config, trials=trials or config.trials), folder, observer)


def read_tune_config(folder: Path) -> TuneConfig:
    """The configuration of a search's folder."""
    require_kind(folder, "tune")
    return TuneConfig.from_json(read_settings(folder))


def read_tuning(folder: Path) -> Tuning:
    """What a search has found so far."""
    config = read_tune_config(folder)
    study = Study(config, config.space(), folder / STUDY_FILE)
    return Tuning(config, folder, study.trials())


def _try_one(
    study: Study, config: TuneConfig, stop: list[int], observer: TuningObserver | None
) -> None:
    trial, values = study.ask()
    value = None
    if observer:
        observer.trying(trial.number, values, 0, None)
    try:
        for look, value in learning_curve(config, values, stop):
            trial.report(value, look)
            if observer:
                observer.trying(trial.number, values, look, value)
            if trial.should_prune():
                study.prune(trial)
                break
        else:
            if value is None:
                raise DiscorlError("no episode ended: raise --steps or --env-steps")
            study.finish(trial, value)
    except Stopped:
        study.put_back(trial)
        return
    except DiscorlError as error:
        study.prune(trial, str(error))
    except BaseException:
        study.forget(trial)
        raise
    if observer:
        observer.finished(
            next(t for t in study.trials() if t.number == trial.number), study.ended()
        )


def _claim(config: TuneConfig, folder: Path) -> None:
    """Make the folder this search's, or see that it is."""
    waited_until = time.monotonic() + _CLAIM_SECONDS
    while not (folder / CONFIG_FILE).exists():
        try:
            check_empty(folder)
        except DiscorlError:
            if not _is_being_claimed(folder) or time.monotonic() > waited_until:
                raise
            time.sleep(0.05)
            continue
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG_FILE, config.to_json())
    own = read_tune_config(folder)  # Another process may have been faster.
    names = [f.name for f in fields(own) if f.name != "trials"]
    changed = [flag(n) for n in names if getattr(config, n) != getattr(own, n)]
    if changed:
        raise DiscorlError(
            f"{folder} holds a search with other settings ({', '.join(changed)}): choose another "
            f"--out, or resume it with `discorl resume {folder}`"
        )
    if config.trials != own.trials:
        write_json(folder / CONFIG_FILE, config.to_json())


def _is_being_claimed(folder: Path) -> bool:
    """Whether another process has just made the folder this search's, or is about to."""
    return any(path.name.strip(".").startswith(CONFIG_FILE) for path in folder.iterdir())


def _write_results(config: TuneConfig, folder: Path, trials: list[Trial]) -> Tuning:
    if not trials[0].finished:
        errors = [trial.error for trial in trials if trial.error]
        raise DiscorlError(
            f"none of {len(trials)} trials went through" + (f": {errors[-1]}" if errors else "")
        )
    tuning = Tuning(config, folder, trials)
    write_json(tuning.preset, config.train_config(tuning.best.values).to_json())
    write_json(folder / TRIALS_FILE, tuning.as_json())
    plot_study(tuning.trials, folder / PICTURE_FILE)
    return tuning
