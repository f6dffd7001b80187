"""A training run on disk: the loop around the trainer, its records, and how it stops.

`runs/NAME/` holds `config.json`, `agent.json` (how the agent is built), `rule.safetensors` (of a
discovered rule), `metrics.jsonl`, `tensorboard/`, `checkpoints/`, `evaluation.json` (the episodes
of the newest evaluation), and at the end `curve.png` and `result.json`. With
`--record-evaluations` there are GIFs in `videos/` too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from discorl.envs.outcomes import Telling, mean_outcomes
from discorl.errors import DiscorlError
from discorl.files import write_json
from discorl.life.episodes import RECENT_EPISODES, EpisodeLog
from discorl.life.life import PHASES
from discorl.life.playing import Evaluation, EvaluationStopped
from discorl.rules.base import Metrics
from discorl.runs.checkpoint import save_checkpoint
from discorl.runs.folder import CHECKPOINTS, CURVE_FILE, EVALUATION_FILE, RESULT_FILE, VIDEOS
from discorl.runs.metrics import MetricsWriter, read_metrics
from discorl.runs.plots import EPISODE_RETURN, EPISODES, plot_curves, read_curve
from discorl.runs.session import (
    Callback,
    Interrupted,
    Observer,
    Progress,
    Turn,
    seen_enough,
    stop_signals,
)
from discorl.runtime import computing_on
from discorl.training.agent import BEST_AGENT_FILE, TrainedAgent, agent_of, read_agent_info
from discorl.training.records import (
    episode_record,
    field_scores,
    human_scores,
    mean_metrics,
    metric_name,
    run_notes,
)
from discorl.training.trainer import EVALUATION_SEED, Trainer


class TrainingRun:
    """The loop, and what it writes. Of several processes, only the leading one writes."""

    def __init__(
        self, trainer: Trainer, folder: Path, observer: Observer, callbacks: Sequence[Callback]
    ) -> None:
        self.trainer, self.folder, self.group = trainer, folder, trainer.group
        self.observer = observer if self.group.leads else Observer()
        self.callbacks = callbacks
        self.config = trainer.config
        self.stop: list[int] = []
        self._signum = 0
        """The signal that a process got by the end of the last step; 0 if none did."""
        self.latest: dict[str, float] = {}
        """The newest record."""
        wandb = self.config.run.wandb
        self.writer = (
            MetricsWriter(folder, trainer.step, wandb, self.config.to_json())
            if self.group.leads
            else None
        )
        self._mark = self._now()

    def run(self) -> dict[str, Any]:
        """Train until the last step, or until a callback has seen enough."""
        config = self.config
        try:
            title = f"{config.rule} on {config.env}, seed {config.seed} -> {self.folder}"
            self.observer.start(title, config.steps, run_notes(self.trainer))
            work = self.trainer.life.work
            with computing_on(config.run.threads, work), stop_signals() as self.stop:
                self._loop()
                return self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Flush the metrics."""
        if self.writer is not None:
            self.writer.close()

    def _loop(self) -> None:
        trainer = self.trainer
        # A record that was due when the run was stopped.
        enough = bool(trainer.unlogged) and self.is_due(trainer.step) and self._log()
        while trainer.step < self.config.steps and not enough:
            enough = self.after_step(self._train_step())
            self.heed_signals()

    def after_step(self, metrics: Metrics | None) -> bool:
        """Log, evaluate and checkpoint what is due; whether somebody has seen enough."""
        step, run = self.trainer.step, self.config.run
        if metrics is not None:
            self.trainer.unlogged.append((step, metrics))
        enough = self.is_due(step) and self._log()
        last = step == self.config.steps
        (self._signum,) = self.group.largest(self.stop[0] if self.stop else 0)
        if step % run.checkpoint_every == 0 or last or self._signum or enough:
            self.save()
        return enough

    def heed_signals(self) -> None:
        """Raise Interrupted if a signal asked for it; what there is has been saved."""
        if self._signum:
            raise Interrupted(self._signum, self.folder, self.trainer.step)

    def is_due(self, step: int) -> bool:
        """Whether a record is to be written after this step."""
        run = self.config.run
        return step % run.log_every == 0 or self._evaluates(step) or step == self.config.steps

    def _evaluates(self, step: int) -> bool:
        every = self.config.run.eval_every
        return every > 0 and step % every == 0

    def _train_step(self) -> Metrics | None:
        """One step; if the environment fails in it, the agent before it is saved. But not where
        other processes are in the middle of the step."""
        trainer = self.trainer
        try:
            return trainer.train_step()
        except DiscorlError as error:
            if not trainer.step or self.group.size > 1:
                raise
            self.save()
            raise DiscorlError(
                f"{str(error).rstrip('.')}. The agent as of step {trainer.step} is saved: resume "
                f"with discorl resume {self.folder}"
            ) from error

    def _log(self) -> bool:
        """Write a record and tell everybody; whether somebody has seen enough."""
        trainer, step = self.trainer, self.trainer.step
        evaluations = self._evaluate() if self._evaluates(step) else {}
        if evaluations:
            self._keep_best(evaluations["sampled"])
            self._keep_episodes(evaluations)
            self._record()
        means = mean_metrics(trainer.unlogged)
        trainer.unlogged = []
        record = {metric_name(name): value for name, value in means.items()}
        record |= episode_record(trainer) | self._speed()
        record |= {f"eval/return_{name}": e.mean_return for name, e in evaluations.items()}
        enough = self.writer is not None and self._tell(self.writer, record)
        return self.group.largest(int(enough))[0] > 0

    def _tell(self, writer: MetricsWriter, record: dict[str, float]) -> bool:
        """Write a record and tell everybody; whether somebody here has seen enough."""
        trainer, step = self.trainer, self.trainer.step
        writer.write(step, record)
        self.latest = record
        progress = Progress(
            step, self.config.steps, record, self.folder, lambda: _agent_of(trainer)
        )
        self.observer.progress(progress)
        goal = self.config.stop_at_return
        enough_episodes = record.get(EPISODES, 0) >= RECENT_EPISODES
        reached = goal is not None and enough_episodes and record[EPISODE_RETURN] >= goal
        return seen_enough(self.callbacks, progress) or reached

    def _evaluate(self) -> dict[str, Evaluation]:
        """Greedily and sampled, by the leading process; empty in the others. A signal ends it, and
        the run can be resumed."""
        turn, evaluations = Turn(self.group, self.stop), {}
        if self.group.leads:
            with suppress(EvaluationStopped):
                evaluations = {name: self._play(name, turn) for name in ("greedy", "sampled")}
        turn.end()
        if turn.signum:
            self.save()
            raise Interrupted(turn.signum, self.folder, self.trainer.step)
        return evaluations

    def _play(self, what: str, turn: Turn) -> Evaluation:
        def watch(done: int, total: int) -> bool:
            self.observer.evaluating(f"evaluating, {what}", done, total)
            return turn.beat()

        return self.trainer.evaluate(what == "greedy", watch=watch)

    def _record(self) -> None:
        """Film an episode of the agent as it is now, if the run is to; failing that, go on."""
        trainer, config = self.trainer, self.config
        if not config.record_evaluations:
            return

        def tell(done: int, total: int) -> bool:
            self.observer.evaluating("recording", done, total)
            return bool(self.stop)

        show = _agent_of(trainer).show(
            trainer.life.source,
            config.life.environment,
            seed=EVALUATION_SEED + config.seed,
            max_steps=config.eval_max_steps,
        )
        try:
            video = show.film(tell=tell)
        except DiscorlError as error:
            self.observer.message(f"warning: no video at step {trainer.step}: {error}")
            return
        self.observer.evaluating("recording", 1, 1)
        if not self.stop and self.writer is not None:
            video.save(self.folder / VIDEOS / f"step_{trainer.step:08d}.gif")
            self.writer.write_video(trainer.step, "eval/episode", video.gif, *video.shape)

    def _keep_episodes(self, evaluations: dict[str, Evaluation]) -> None:
        """Write how each episode of the newest evaluation went."""
        episodes = {
            name: {"returns": evaluation.returns, "lengths": evaluation.lengths}
            for name, evaluation in evaluations.items()
        }
        write_json(self.folder / EVALUATION_FILE, {"step": self.trainer.step, **episodes})

    def _keep_best(self, evaluation: Evaluation) -> None:
        """Save the agent beside the checkpoints if none before it did as well, sampled."""
        path = self.folder / BEST_AGENT_FILE
        best = read_agent_info(path).get("eval_return", -math.inf) if path.exists() else -math.inf
        if evaluation.mean_return > best:
            agent = _agent_of(self.trainer)
            agent.info["eval_return"] = evaluation.mean_return
            agent.save(path)

    def save(self) -> None:
        """Write a checkpoint."""
        mean_metrics(self.trainer.unlogged)  # What is not finite must not be saved.
        checkpoint = self.trainer.checkpoint()
        if checkpoint is not None:
            keep = self.config.run.keep_checkpoints
            save_checkpoint(self.folder / CHECKPOINTS, checkpoint, keep)
        self.group.wait()

    def _now(self) -> tuple[float, int, int, float]:
        trainer = self.trainer
        return time.perf_counter(), trainer.step, trainer.env_steps, self.group.seconds

    def _speed(self) -> dict[str, float]:
        """The speed since the last record."""
        before, self._mark = self._mark, self._now()
        seconds, steps, env_steps, talked = (
            now - then for now, then in zip(self._mark, before, strict=True)
        )
        seconds = max(seconds, 1e-9)
        return {
            "time/steps_per_second": steps / seconds,
            "time/env_steps_per_second": env_steps / seconds,
            "time/seconds": sum(self.trainer.life.seconds.values()),
            **({"time/communication_share": talked / seconds} if self.group.size > 1 else {}),
        }

    def finish(self) -> dict[str, Any]:
        """The last evaluation, the result and the curve; an empty result where others lead."""
        evaluations, episodes = (
            self._evaluate(),
            EpisodeLog.of_all(self.trainer.life.episodes, self.group),
        )
        env = self.trainer.life.env
        told = self.group.exchange(env.outcomes.totals() if isinstance(env, Telling) else {})
        result = (
            self._conclude(evaluations, episodes.count, mean_outcomes(told)) if evaluations else {}
        )
        self.group.wait()
        return result

    def _conclude(
        self, evaluations: dict[str, Evaluation], episodes: int, outcomes: dict[str, float]
    ) -> dict[str, Any]:
        trainer, config, folder = self.trainer, self.config, self.folder
        greedy, sampled = evaluations["greedy"], evaluations["sampled"]
        if config.run.eval_every:
            self._keep_best(sampled)
        self._keep_episodes(evaluations)
        if not self._evaluates(trainer.step):
            self._record()
        records = read_metrics(folder)
        last = records[-1] if records else {}
        seconds = trainer.life.seconds
        total = max(sum(seconds.values()), 1e-9)
        result = {
            "env": config.env,
            "rule": config.rule,
            "seed": config.seed,
            "steps": trainer.step,
            "updates": trainer.updates,
            "env_steps": trainer.env_steps,
            "episodes": episodes,
            **({"processes": self.group.size} if self.group.size > 1 else {}),
            "threads": torch.get_num_threads(),
            "episode_return": last.get(EPISODE_RETURN),
            "eval_return_greedy": greedy.mean_return,
            "eval_return_sampled": sampled.mean_return,
            "eval_episodes": greedy.episodes,
            "eval_unfinished": greedy.unfinished + sampled.unfinished,
            "seconds": round(total, 3),
            **{f"share_{phase}": round(seconds[phase] / total, 4) for phase in PHASES},
            "env_steps_per_second": round(trainer.env_steps / total, 1),
            **human_scores(config.env, last.get(EPISODE_RETURN), sampled.mean_return),
            **field_scores(config.env, last.get(EPISODE_RETURN), outcomes, sampled),
            "folder": str(folder),
        }
        write_json(folder / RESULT_FILE, result)
        if any(EPISODE_RETURN in record for record in records):
            plot_curves([read_curve(folder)], folder / CURVE_FILE)
        return result


def _agent_of(trainer: Trainer) -> TrainedAgent:
    return agent_of(trainer.life, trainer.config, trainer.step)
