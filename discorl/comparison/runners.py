"""What a cell runs: a rule's training, or a peer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch

from discorl.comparison.cells import CURVE_POINTS, Cell, CellResult, read_cell, write_cell
from discorl.comparison.peers import PeerConfig
from discorl.comparison.progress import ProgressFile, Told
from discorl.comparison.stable_baselines import run_peer
from discorl.comparison.unfinished import Curve, Unfinished
from discorl.envs.outcomes import told_by
from discorl.errors import DiscorlError
from discorl.runtime import tune_process
from discorl.training.records import mean_metrics
from discorl.training.trainer import Trainer


def finish_cell(folder: Path, cell: Cell) -> CellResult:
    """Run a cell and save its result in the folder, unless it is there already.

    So a cell may be repeated anywhere, and outlives whoever asked for it. A rule's run that was cut
    off goes on.
    """
    result = read_cell(folder, cell)
    if result is None:
        unfinished = Unfinished(folder, cell)
        with ProgressFile(folder, cell) as progress:
            result = run_cell(cell, progress.note, unfinished)
        write_cell(folder, cell, result)
        unfinished.forget()
    return result


def run_cell(cell: Cell, told: Told, unfinished: Unfinished) -> CellResult:
    """Learn on one thread, in a process of its own, which it tunes."""
    torch.set_num_threads(1)
    tune_process()
    if isinstance(cell.config, PeerConfig):
        return run_peer(cell, told)
    trainer, curve = unfinished.begin()
    with closing(trainer):
        _learn(trainer, curve, told, unfinished)
        return _result(cell, trainer, curve)


def _result(cell: Cell, trainer: Trainer, curve: Curve) -> CellResult:
    if not curve:
        raise DiscorlError(
            f"no episode ended in {trainer.step} steps: raise --steps or --env-steps"
        )
    return CellResult(
        rule=cell.label,
        env=cell.config.env,
        seed=cell.config.seed,
        final_return=trainer.life.episodes.mean_return(),
        steps=trainer.step,
        env_steps=trainer.env_steps,
        episodes=trainer.life.episodes.count,
        seconds=round(sum(trainer.life.seconds.values()), 3),
        curve=curve,
        config=cell.config.to_json(),
        outcomes=told_by([trainer.life.env]),
    )


def _learn(trainer: Trainer, curve: Curve, told: Told, unfinished: Unfinished) -> None:
    """Train to the end; the learning curve grows."""
    steps = trainer.config.steps
    every = max(steps // CURVE_POINTS, 1)
    while trainer.step < steps:
        metrics = trainer.train_step()
        if metrics is not None:
            trainer.unlogged.append((trainer.step, metrics))
        if trainer.step % every == 0 or trainer.step == steps:
            mean_metrics(trainer.unlogged)
            trainer.unlogged = []
            if trainer.life.episodes.recent:
                curve.append((trainer.step, trainer.life.episodes.mean_return()))
            told(trainer.step / steps, curve[-1][1] if curve else None)
            unfinished.save(trainer, curve)
