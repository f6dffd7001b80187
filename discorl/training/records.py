"""What a training run tells: its records, its scores, and notes before it begins."""

from __future__ import annotations

from typing import Any

import torch

from discorl.envs.human_scores import human_normalized
from discorl.envs.scores import field_score
from discorl.errors import DiscorlError
from discorl.life.episodes import EpisodeLog
from discorl.life.playing import Evaluation
from discorl.rules.base import Metrics
from discorl.runs.plots import EPISODE_RETURN, EPISODES
from discorl.runtime import emulates_bfloat16
from discorl.training.config import unused_settings
from discorl.training.trainer import Trainer


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
            "stopped; every checkpoint is from before it. A smaller --learning-rate may help, and "
            "if observations are large, --normalize-observations."
        )
    return dict(zip(names, table.mean(dim=0).tolist(), strict=True))


def metric_name(name: str) -> str:
    """The stable name of a learner's metric: `losses/pi_loss`, `rule/entropy`, ..."""
    return f"losses/{name}" if name.endswith("loss") else f"rule/{name}"


def episode_record(trainer: Trainer) -> dict[str, float]:
    """What is known of the episodes so far."""
    episodes = EpisodeLog.of_all(trainer.life.episodes, trainer.group)
    record: dict[str, float] = {
        "charts/env_steps": trainer.env_steps,
        EPISODES: episodes.count,
    }
    if episodes.recent:
        record[EPISODE_RETURN] = episodes.mean_return()
        record["charts/episode_length"] = episodes.mean_length()
    return record


def human_scores(env: str, trained: float | None, sampled: float) -> dict[str, Any]:
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


def field_scores(
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
    if getattr(life.env, "offers_masks", False):
        notes.append(
            "warning: the environment tells which actions are legal, but not in what agents see, "
            "so they may take any. --mask-actions keeps to legal ones"
        )
    if trainer.config.life.network.bfloat16 and emulates_bfloat16(life.device):
        notes.append(
            "warning: this processor has no instructions for bfloat16 and computes it several "
            "times slower than float32. Leave --bfloat16 out"
        )
    return notes + unused_settings(trainer.config)
