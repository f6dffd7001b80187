"""A training run on disk: the loop around the trainer, its records, and how it stops.

`runs/NAME/` holds `config.json`, `rule.safetensors` (of a discovered rule), `metrics.jsonl`,
`tensorboard/`, `checkpoints/`, and at the end `curve.png` and `result.json`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from discorl.envs.human_scores import human_normalized
from discorl.errors import DiscorlError
from discorl.files import write_json
from discorl.rules.base import Metrics, UpdateRule
from discorl.rules.disco import DiscoRule
from discorl.rules.library import load_rule, save_rule
from discorl.runs.checkpoint import load_latest, save_checkpoint
from discorl.runs.folder import (
    CHECKPOINTS,
    CONFIG_FILE,
    CURVE_FILE,
    RESULT_FILE,
    RULE_FILE,
    read_settings,
    refuse_existing,
)
from discorl.runs.metrics import MetricsWriter, read_metrics
from discorl.runs.plots import EPISODE_RETURN, plot_curves, read_curve
from discorl.runs.session import Interrupted, Observer, Progress, stop_signals
from discorl.training.config import TrainConfig
from discorl.training.trainer import PHASES, Trainer


def start_run(
    config: TrainConfig, folder: Path, observer: Observer | None = None
) -> dict[str, Any]:
    """Train from the beginning in a new folder and return what `result.json` holds."""
    refuse_existing(folder, "train")
    rule = load_rule(config.rule)
    trainer = Trainer(config, rule)
    write_json(folder / CONFIG_FILE, config.to_json())
    if isinstance(rule, DiscoRule):
        save_rule(rule, folder / RULE_FILE)
    return _run(trainer, folder, observer)


def resume_run(
    folder: Path, steps: int | None = None, observer: Observer | None = None
) -> dict[str, Any]:
    """Go on with a run from its newest whole checkpoint, or from its start if it has none.

    Args:
      steps: a new number of steps, to train longer than first meant.
    """
    config = read_config(folder)
    if steps is not None and steps != config.steps:
        if config.learning_rate_schedule != "constant":
            raise DiscorlError("--steps: a run with a learning-rate schedule cannot be extended")
        config = replace(config, steps=steps)
        write_json(folder / CONFIG_FILE, config.to_json())
    trainer = load_trainer(folder, config, require_checkpoint=False)
    return _run(trainer, folder, observer)


def load_trainer(
    folder: Path, config: TrainConfig | None = None, require_checkpoint: bool = True
) -> Trainer:
    """The trainer of a run folder as its newest whole checkpoint left it."""
    config = config or read_config(folder)
    trainer = Trainer(config, _run_rule(folder, config))
    checkpoint = load_latest(folder / CHECKPOINTS)
    if checkpoint is not None:
        trainer.restore(checkpoint)
    elif require_checkpoint:
        raise DiscorlError(f"{folder} has no whole checkpoint yet")
    return trainer


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run folder."""
    return TrainConfig.from_json(read_settings(folder))


def _run_rule(folder: Path, config: TrainConfig) -> UpdateRule:
    """The rule as it was when the run began, if it was copied into the folder."""
    path = folder / RULE_FILE
    return load_rule(path if path.exists() else config.rule)


def _run(trainer: Trainer, folder: Path, observer: Observer | None) -> dict[str, Any]:
    config = trainer.config
    writer = MetricsWriter(folder, trainer.step, config.wandb, config.to_json())
    try:
        if observer:
            title = f"{config.rule} on {config.env}, seed {config.seed} -> {folder}"
            observer.start(title, config.steps, _notes(trainer))
        with stop_signals() as stop:
            _loop(trainer, folder, writer, observer, stop)
        return _finish(trainer, folder, writer)
    finally:
        trainer.close()
        writer.close()


def _loop(
    trainer: Trainer,
    folder: Path,
    writer: MetricsWriter,
    observer: Observer | None,
    stop: list[int],
) -> None:
    """Train until the last step; log, evaluate and checkpoint on the way."""
    config = trainer.config
    clock = _Clock(trainer)
    while trainer.step < config.steps:
        metrics = _train_step(trainer, folder)
        step = trainer.step
        if metrics is not None:
            trainer.unlogged.append((step, metrics))
        last = step == config.steps
        evaluates = config.eval_every > 0 and step % config.eval_every == 0
        if step % config.log_every == 0 or evaluates or last:
            record = _record(trainer) | clock.record()
            if evaluates:
                record |= _evaluation_record(trainer)
            writer.write(step, record)
            if observer:
                observer.progress(Progress(step, config.steps, record))
        if step % config.checkpoint_every == 0 or last or stop:
            check_finite(trainer.unlogged)
            save_checkpoint(folder / CHECKPOINTS, trainer.checkpoint(), config.keep_checkpoints)
        if stop:
            raise Interrupted(stop[0], folder, step)


def _train_step(trainer: Trainer, folder: Path) -> Metrics | None:
    """One step; if the environment fails in it, the agent before it is saved."""
    try:
        return trainer.train_step()
    except DiscorlError as error:
        if not trainer.step:
            raise
        check_finite(trainer.unlogged)
        checkpoint = trainer.checkpoint()
        save_checkpoint(folder / CHECKPOINTS, checkpoint, trainer.config.keep_checkpoints)
        raise DiscorlError(
            f"{error} The agent as of step {trainer.step} is saved; "
            f"discorl train --resume {folder} goes on from there."
        ) from error


def check_finite(pending: list[tuple[int, Metrics]]) -> dict[str, float]:
    """Means of the pending metrics; a DiscorlError names the first that is not finite."""
    if not pending:
        return {}
    names = list(pending[0][1])
    # One transfer from the device for all metrics of all steps.
    rows = [torch.stack([metrics[name] for name in names]).double() for _, metrics in pending]
    table = torch.stack(rows).cpu()
    bad = (~torch.isfinite(table)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise DiscorlError(
            f"{metric_name(names[column])} is not finite at step {pending[row][0]}. Training "
            "stopped; every checkpoint is from before it. A smaller --learning-rate may help."
        )
    return dict(zip(names, table.mean(dim=0).tolist(), strict=True))


def metric_name(name: str) -> str:
    """The stable name of a learner's metric: `losses/pi_loss`, `rule/entropy`, ..."""
    return f"losses/{name}" if name.endswith("loss") else f"rule/{name}"


def _record(trainer: Trainer) -> dict[str, float]:
    means = check_finite(trainer.unlogged)
    trainer.unlogged = []
    record = {metric_name(name): value for name, value in means.items()}
    record["charts/env_steps"] = trainer.env_steps
    record["charts/episodes"] = trainer.episodes
    if trainer.recent:
        lengths = [e.length for e in trainer.recent]
        record[EPISODE_RETURN] = trainer.mean_return()
        record["charts/episode_length"] = sum(lengths) / len(lengths)
    return record


def _evaluation_record(trainer: Trainer) -> dict[str, float]:
    return {
        "eval/return_greedy": trainer.evaluate(greedy=True).mean_return,
        "eval/return_sampled": trainer.evaluate(greedy=False).mean_return,
    }


class _Clock:
    """Speed since the last record."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._mark = (time.perf_counter(), trainer.step, trainer.env_steps)

    def record(self) -> dict[str, float]:
        then, step, env_steps = self._mark
        self._mark = (time.perf_counter(), self._trainer.step, self._trainer.env_steps)
        seconds = max(self._mark[0] - then, 1e-9)
        return {
            "time/steps_per_second": (self._mark[1] - step) / seconds,
            "time/env_steps_per_second": (self._mark[2] - env_steps) / seconds,
            "time/seconds": sum(self._trainer.seconds.values()),
        }


def _finish(trainer: Trainer, folder: Path, writer: MetricsWriter) -> dict[str, Any]:
    config = trainer.config
    greedy, sampled = trainer.evaluate(greedy=True), trainer.evaluate(greedy=False)
    records = read_metrics(folder)
    last = records[-1] if records else {}
    seconds = trainer.seconds
    total = max(sum(seconds.values()), 1e-9)
    result = {
        "env": config.env,
        "rule": config.rule,
        "seed": config.seed,
        "steps": trainer.step,
        "env_steps": trainer.env_steps,
        "episodes": trainer.episodes,
        "episode_return": last.get(EPISODE_RETURN),
        "eval_return_greedy": greedy.mean_return,
        "eval_return_sampled": sampled.mean_return,
        "eval_episodes": greedy.episodes,
        "seconds": round(total, 3),
        **{f"share_{phase}": round(seconds[phase] / total, 4) for phase in PHASES},
        "env_steps_per_second": round(trainer.env_steps / total, 1),
        **_human_normalized(config.env, last.get(EPISODE_RETURN), sampled.mean_return),
        "folder": str(folder),
    }
    write_json(folder / RESULT_FILE, result)
    if any(EPISODE_RETURN in record for record in records):
        plot_curves([read_curve(folder)], folder / CURVE_FILE)
    return result


def _human_normalized(env: str, trained: float | None, sampled: float) -> dict[str, Any]:
    """Of the returns that `result.json` names; nothing if it is no game with known scores."""
    if human_normalized(env, sampled) is None:
        return {}
    scores = {"episode_return": trained, "eval_return_sampled": sampled}
    return {
        "human_normalized": {
            name: None if score is None else human_normalized(env, score)
            for name, score in scores.items()
        }
    }


def _notes(trainer: Trainer) -> list[str]:
    """What a person should know before the work begins."""
    config = trainer.config
    parameters = sum(p.numel() for p in trainer.state.params.values())
    notes = [
        f"{trainer.env.num_envs} x {config.env}, {trainer.env.num_actions} actions; "
        f"network of {parameters:,} parameters"
    ]
    if (replay := trainer.replay) is not None:
        memory = replay.memory()
        notes.append(
            f"replay of {replay.capacity} trajectories takes {memory / 2**20:.1f} MiB "
            f"({replay.spec.bytes_per_step()} bytes a step)"
        )
    if trainer.step:
        notes.append(f"going on from step {trainer.step}")
    return notes
