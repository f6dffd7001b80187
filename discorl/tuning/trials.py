"""One trial: several agents side by side, and their mean return as they learn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

from discorl.library.catalogue import load_rule
from discorl.training.records import mean_metrics
from discorl.training.trainer import Trainer
from discorl.tuning.config import TuneConfig

POINTS = 20
"""How often in its life a trial's agents are looked at."""


class Stopped(Exception):
    """A signal came before the trial's end."""


def learning_curve(
    config: TuneConfig, values: Mapping[str, Any], stop: list[int]
) -> Iterator[tuple[int, float]]:
    """(look, mean over agents of the return of their newest 100 episodes), until the end.

    Looks go from 1 to POINTS and are at equal shares of the run, however many steps it has; one
    before an agent's first episode has ended is left out. Raises DiscorlError if the values clash
    or numbers are not finite, and Stopped once `stop` is not empty.
    """
    with ExitStack() as stack:
        trainers = [
            stack.enter_context(closing(_trainer(config, values, seed)))
            for seed in range(config.seeds)
        ]
        for look in range(1, POINTS + 1):
            for trainer in trainers:
                _advance(trainer, math.ceil(trainer.config.steps * look / POINTS), stop)
            if all(trainer.life.episodes.recent for trainer in trainers):
                yield look, statistics.fmean(t.life.episodes.mean_return() for t in trainers)


def _trainer(config: TuneConfig, values: Mapping[str, Any], seed: int) -> Trainer:
    settings = config.train_config(values, seed)
    return Trainer(settings, load_rule(settings.rule))


def _advance(trainer: Trainer, step: int, stop: list[int]) -> None:
    losses = []
    while trainer.step < step:
        if stop:
            raise Stopped
        metrics = trainer.train_step()
        if metrics is not None:
            losses.append((trainer.step, metrics))
    mean_metrics(losses)  # Raises if one is not finite.
