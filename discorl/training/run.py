"""A training run on disk: the loop around the trainer, its records, and how it stops.

`runs/NAME/` holds `config.json`, `agent.json` (how the agent is built), `rule.safetensors` (of a
discovered rule), `metrics.jsonl`, `tensorboard/`, `checkpoints/`, `evaluation.json` (the episodes
of the newest evaluation), and at the end `curve.png` and `result.json`. With
`--record-evaluations` there are GIFs in `videos/` too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from discorl.envs.human_scores import human_normalized
from discorl.envs.outcomes import Telling, mean_outcomes
from discorl.envs.scores import field_score
from discorl.envs.sources import EnvironmentSource
from discorl.errors import DiscorlError
from discorl.files import write_json
from discorl.group import SOLO, Group
from discorl.library.catalogue import load_rule, parameter_count, save_rule
from discorl.library.formats import SUFFIXES
from discorl.life.episodes import EpisodeLog
from discorl.life.life import PHASES
from discorl.life.playing import Evaluation, EvaluationStopped
from discorl.processes import join_group
from discorl.rules.base import Metrics, UpdateRule
from discorl.runs.checkpoint import Checkpoint, load_latest, save_checkpoint
from discorl.runs.folder import (
    CHECKPOINTS,
    CONFIG_FILE,
    CURVE_FILE,
    EVALUATION_FILE,
    RESULT_FILE,
    RULE_FILE,
    VIDEOS,
    check_new,
    discard,
    new_folder,
    read_settings,
    require_kind,
    writing_to,
)
from discorl.runs.metrics import MetricsWriter, read_metrics
from discorl.runs.plots import EPISODE_RETURN, plot_curves, read_curve
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
from discorl.settings import change
from discorl.training.agent import (
    AGENT_FILE,
    BEST_AGENT_FILE,
    TrainedAgent,
    agent_of,
    blueprint_of,
    read_agent_info,
)
from discorl.training.config import TrainConfig, unused_settings
from discorl.training.trainer import EVALUATION_SEED, Trainer


@dataclass(frozen=True)
class Given:
    """What a run is given as objects, which its settings can only name."""

    rule: UpdateRule | None = None
    source: EnvironmentSource | None = None
    network: nn.Module | None = None


def start_run(
    config: TrainConfig,
    folder: Path,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
) -> dict[str, Any]:
    """Train from scratch in a new folder and return what `result.json` holds.

    In a group of processes only the leading one writes, calls back and returns a result.
    """
    with (
        join_group(config.run.torch_device, config.run.process_timeout) as group,
        new_run(config, folder, observer, callbacks, given, group) as run,
    ):
        return run.run()


@contextmanager
def new_run(
    config: TrainConfig,
    folder: Path,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
    group: Group = SOLO,
) -> Iterator[TrainingRun]:
    """A run that has not begun, in a new folder that is its own as long as it is entered."""
    given = given or Given()
    check_new(folder)
    group.wait()  # Nobody may find the folder that the leading process now makes.
    with new_folder(folder) if group.leads else nullcontext():
        rule = given.rule or load_rule(config.rule)
        with closing(Trainer(config, rule, given.source, given.network, group)) as trainer:
            if group.leads:
                write_json(folder / AGENT_FILE, blueprint_of(trainer.life).to_json())
                if parameter_count(rule):
                    save_rule(rule, folder / RULE_FILE)
                # Last, because it says that all else is there.
                write_json(folder / CONFIG_FILE, config.to_json())
            try:
                yield TrainingRun(trainer, folder, observer or Observer(), callbacks)
            except DiscorlError:
                if not trainer.step and group.leads:
                    discard(folder)  # There is nothing to resume; the name may be used again.
                raise


def resume_run(
    folder: Path,
    steps: int | None = None,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Resume a run from its newest intact checkpoint, or from its start if it has none; on any
    number of processes, exactly if it is the number that made the checkpoint.

    Args:
      steps: a new number of steps, to train longer than first planned.
      threads: another number of them; by default the run's own setting.
    """
    folder = Path(folder)
    config = read_config(folder)
    with (
        join_group(config.run.torch_device, config.run.process_timeout) as group,
        writing_to(folder) if group.leads else nullcontext(),
    ):
        wanted = {"steps": steps, "threads": threads}
        changed = change(config, {name: n for name, n in wanted.items() if n is not None})
        with closing(load_trainer(folder, changed, given, group=group)) as trainer:
            group.wait()  # All have read what is now written.
            if changed != config:
                _check_extension(config, changed, trainer.step)
            if group.leads and changed != config:
                write_json(folder / CONFIG_FILE, changed.to_json())
            if group.leads and not (folder / AGENT_FILE).exists():  # A run of version 0.1.
                write_json(folder / AGENT_FILE, blueprint_of(trainer.life).to_json())
            return TrainingRun(trainer, folder, observer or Observer(), callbacks).run()


def _check_extension(config: TrainConfig, changed: TrainConfig, step: int) -> None:
    """Raise DiscorlError unless a run at this step can have another end."""
    if changed.steps < step:
        raise DiscorlError(
            f"--steps {changed.steps}: the run is at step {step} of {config.steps} already"
        )


def load_trainer(
    folder: Path,
    config: TrainConfig | None = None,
    given: Given | None = None,
    checkpoint: Checkpoint | None = None,
    group: Group = SOLO,
) -> Trainer:
    """The trainer of a run folder as a checkpoint left it, by default its newest intact one; as it
    began if there is none."""
    config, given = config or read_config(folder), given or Given()
    rule = given.rule or _run_rule(folder, config)
    trainer = Trainer(config, rule, given.source, given.network, group)
    try:
        checkpoint = checkpoint or load_latest(folder / CHECKPOINTS)
        if checkpoint is not None:
            trainer.restore(checkpoint)
    except BaseException:
        trainer.close()
        raise
    return trainer


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run folder."""
    require_kind(folder, "train")
    return TrainConfig.from_json(read_settings(folder))


def run_name(config: TrainConfig) -> str:
    """What a training run's folder is called by default."""
    rule = config.rule
    rule = Path(rule).stem if rule.endswith(SUFFIXES) else rule
    return f"{config.env}-{rule}-s{config.seed}"


def _run_rule(folder: Path, config: TrainConfig) -> UpdateRule:
    """The rule as it was when the run began, if it was copied into the folder."""
    path = folder / RULE_FILE
    return load_rule(path if path.exists() else config.rule)


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
        record |= _episode_record(trainer) | self._speed()
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
        reached = goal is not None and record.get(EPISODE_RETURN, -math.inf) >= goal
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
            **_human_normalized(config.env, last.get(EPISODE_RETURN), sampled.mean_return),
            **_scores(config.env, last.get(EPISODE_RETURN), outcomes, sampled),
            "folder": str(folder),
        }
        write_json(folder / RESULT_FILE, result)
        if any(EPISODE_RETURN in record for record in records):
            plot_curves([read_curve(folder)], folder / CURVE_FILE)
        return result


def mean_metrics(pending: list[tuple[int, Metrics]]) -> dict[str, float]:
    """Means of the pending metrics; raises DiscorlError, naming the first that is not finite."""
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


def _agent_of(trainer: Trainer) -> TrainedAgent:
    return agent_of(trainer.life, trainer.config, trainer.step)


def _episode_record(trainer: Trainer) -> dict[str, float]:
    episodes = EpisodeLog.of_all(trainer.life.episodes, trainer.group)
    record: dict[str, float] = {
        "charts/env_steps": trainer.env_steps,
        "charts/episodes": episodes.count,
    }
    if episodes.recent:
        record[EPISODE_RETURN] = episodes.mean_return()
        record["charts/episode_length"] = episodes.mean_length()
    return record


def _human_normalized(env: str, trained: float | None, sampled: float) -> dict[str, Any]:
    """Scores of the returns in `result.json`; nothing if it is not a game with known scores."""
    if human_normalized(env, sampled) is None:
        return {}
    scores = {"episode_return": trained, "eval_return_sampled": sampled}
    return {
        "human_normalized": {
            name: None if score is None else human_normalized(env, score)
            for name, score in scores.items()
        }
    }


def _scores(
    env: str, trained: float | None, outcomes: dict[str, float], sampled: Evaluation
) -> dict[str, Any]:
    """The field's score of the training episodes and of the sampled evaluation, and what episodes
    came to on average; nothing where the field reports returns and none is told."""
    result: dict[str, Any] = {}
    training = None if trained is None else field_score(env, trained, outcomes)
    evaluation = field_score(env, sampled.mean_return, sampled.outcomes)
    if (score := evaluation or training) is not None:
        result["score"] = score.name
        result["score_training"] = training and training.value
        result["score_evaluation"] = evaluation and evaluation.value
    if outcomes or sampled.outcomes:
        result["outcomes"] = {"training": outcomes, "evaluation": sampled.outcomes}
    return result


def run_notes(trainer: Trainer) -> list[str]:
    """What a person should know before the work begins."""
    life = trainer.life
    parameters = sum(p.numel() for p in life.state.params.values())
    processes = trainer.group.size
    notes = [
        f"{trainer.config.life.experience.num_envs} x {trainer.config.env}, "
        f"{life.env.num_actions} actions; network of {parameters:,} parameters"
    ]
    if processes > 1:
        notes.append(
            f"{processes} processes with {life.env.num_envs} of these each, and the same part of "
            "replay and batch"
        )
    if (replay := life.mind.replay) is not None:
        notes.append(
            f"replay of {replay.capacity} trajectories takes {replay.memory() / 2**20:.1f} MiB "
            f"({replay.spec.bytes_per_step()} bytes per step)"
        )
    if trainer.step:
        notes.append(f"resuming from step {trainer.step}")
    if trainer.resumed_from != processes:
        notes.append(
            f"processes: {processes}, before {trainer.resumed_from}. What was stored is dealt out "
            "anew, and the environments begin new episodes"
        )
    first = trainer.config.life.experience.first_update
    if trainer.config.steps < first:
        notes.append(
            f"warning: nothing is learned in {trainer.config.steps} steps: replay holds a batch "
            f"only at step {first}. Raise --steps, or lower --batch-size"
        )
    return notes + unused_settings(trainer.config)
