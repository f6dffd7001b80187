"""Optuna's study in a file that several processes share: what to try next, and what came of it."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from discorl.settings import Search
from discorl.tuning.config import PrunerName, TuneConfig
from discorl.tuning.trials import POINTS

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_FIRST_TRIALS = 5
"""Trials before anything is pruned."""
_WHERE, _AGAIN = "process", "again"
"""What is noted of a trial: who works on it, and which interrupted one it repeats."""


@dataclass(frozen=True)
class Trial:
    """A trial that has come to its end."""

    number: int
    values: dict[str, Any]
    mean_return: float | None
    """Mean over agents of the return of their newest 100 episodes; the newest known, if it was
    pruned."""
    finished: bool
    """Whether it went through to the end of the budget."""
    curve: list[tuple[int, float]]
    """(look, mean return)."""
    error: str | None = None
    """Why its agents could not learn, if they could not."""


class Study:
    """What has been tried, and what to try next.

    Args:
      space: setting -> where it is searched.
      path: the study's file; made if it is not there.
    """

    def __init__(self, config: TuneConfig, space: Mapping[str, Search], path: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._config = config
        self._space = dict(space)
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="discorl",
            direction="maximize",
            load_if_exists=True,
            pruner=_pruner(config.pruner),
        )
        self._study.enqueue_trial(self._present(), skip_if_exists=True)
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if _is_dead(trial.user_attrs.get(_WHERE, "")):
                self._put_back(trial.number, trial.params)

    def ended(self) -> int:
        """How many trials have come to an end, in all processes together."""
        return len(self._study.get_trials(deepcopy=False, states=_ENDED))

    def ask(self) -> tuple[optuna.Trial, dict[str, Any]]:
        """The next trial and its values: what the preset has first, then what may be better."""
        trial = self._study.ask()
        trial.set_user_attr(_WHERE, f"{platform.node()} {os.getpid()}")
        before = self._study.get_trials(deepcopy=False)[: trial.number]
        # As if no trial had ever been interrupted.
        place = sum(_AGAIN not in earlier.user_attrs for earlier in before)
        seed = int(np.random.default_rng([self._config.seed % 2**63, place]).integers(2**31))
        # Of the trial's own: processes draw different values, and the same study the same again.
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        drawn = {name: _draw(trial, name, part) for name, part in self._space.items()}
        return trial, {name: self._value(name, value) for name, value in drawn.items()}

    def finish(self, trial: optuna.Trial, value: float) -> None:
        """The trial went through."""
        self._study.tell(trial, value)

    def prune(self, trial: optuna.Trial, error: str | None = None) -> None:
        """The trial is not worth going on with."""
        if error is not None:
            trial.set_user_attr("error", error)
        self._study.tell(trial, state=TrialState.PRUNED)

    def forget(self, trial: optuna.Trial) -> None:
        """The trial broke down: it counts for nothing."""
        self._study.tell(trial, state=TrialState.FAIL)

    def put_back(self, trial: optuna.Trial) -> None:
        """The trial was interrupted: it counts for nothing, and its values are tried next."""
        self._put_back(trial.number, trial.params)

    def _put_back(self, number: int, params: dict[str, Any]) -> None:
        self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
        known = self._study.get_trials(deepcopy=False)
        if all(trial.user_attrs.get(_AGAIN) != number for trial in known):
            self._study.enqueue_trial(params, user_attrs={_AGAIN: number})

    def trials(self) -> list[Trial]:
        """All that have come to an end, the best first."""
        trials = [self._read(t) for t in self._study.get_trials(deepcopy=False, states=_ENDED)]
        return sorted(trials, key=_rank)

    def _read(self, trial: FrozenTrial) -> Trial:
        curve = sorted(trial.intermediate_values.items())
        return Trial(
            number=trial.number,
            values={name: self._value(name, value) for name, value in trial.params.items()},
            mean_return=curve[-1][1] if curve else None,
            finished=trial.state == TrialState.COMPLETE,
            curve=curve,
            error=trial.user_attrs.get("error"),
        )

    def _present(self) -> dict[str, Any]:
        """What the preset has, as far as it lies where the search looks."""
        present = {}
        for name, part in self._space.items():
            value = self._config.present(name)
            if value in part.choices:
                present[name] = _word(value)
            elif not part.choices and value is not None and part.low <= value <= part.high:
                present[name] = value
        return present

    def _value(self, name: str, drawn: Any) -> Any:
        """A setting's value; Optuna keeps several numbers as text."""
        choices = self._space[name].choices
        return next(c for c in choices if _word(c) == drawn) if choices else drawn


def _is_dead(process: str) -> bool:
    """Whether a process, noted as machine and number, was one of this machine and is gone."""
    machine, _, number = process.rpartition(" ")
    if not number or machine != platform.node() or os.name != "posix":
        return False
    try:
        os.kill(int(number), 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def _word(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def _draw(trial: optuna.Trial, name: str, part: Search) -> Any:
    if part.choices:
        return trial.suggest_categorical(name, [_word(choice) for choice in part.choices])
    if isinstance(part.low, int):
        return trial.suggest_int(name, part.low, int(part.high), log=part.log)
    return trial.suggest_float(name, part.low, part.high, log=part.log)


def _pruner(name: PrunerName) -> optuna.pruners.BasePruner:
    if name == "median":
        quarter = POINTS // 4
        return optuna.pruners.MedianPruner(_FIRST_TRIALS, n_warmup_steps=quarter)
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=2)
    return optuna.pruners.NopPruner()


def _rank(trial: Trial) -> tuple[bool, float]:
    value = -math.inf if trial.mean_return is None else trial.mean_return
    return not trial.finished, -value
