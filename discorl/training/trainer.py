"""A training run in memory: one life, step by step. No files are written here."""

from __future__ import annotations

import torch
from torch import nn

from discorl.envs.sources import EnvironmentSource, find_environment
from discorl.errors import DiscorlError
from discorl.life.life import BadRewardError, Life, upgraded
from discorl.life.playing import Evaluation, Watch
from discorl.rules.base import Metrics, UpdateRule
from discorl.runs.checkpoint import Checkpoint
from discorl.training.config import TrainConfig
from discorl.tree import flatten, split_groups

EVALUATION_SEED = 1_000_003


class Trainer:
    """A life and the learner's step.

    Args:
      config: the run.
      rule: what the agent learns by.
      source: the environment, if it is not the one that the configuration names.
      network: a module to learn, in place of the network that the configuration describes.
    """

    def __init__(
        self,
        config: TrainConfig,
        rule: UpdateRule,
        source: EnvironmentSource | None = None,
        network: nn.Module | None = None,
    ) -> None:
        self.config = config
        self.device = config.run.torch_device
        source = source or find_environment(config.env, self.device, config.life.environment)
        generator = torch.Generator(self.device).manual_seed(config.seed)
        self.life = Life(
            source,
            rule.to(device=self.device),
            config.life,
            config.seed,
            generator,
            updates=config.updates,
            network=network,
            compiled=config.compile,
        )
        self.step = 0
        self.unlogged: list[tuple[int, Metrics]] = []
        """Steps and their metrics since the last record, which is their mean."""

    @property
    def env_steps(self) -> int:
        """Actions taken so far, over all copies of the environment."""
        return self.step * self.config.life.experience.rollout_steps

    def train_step(self) -> Metrics | None:
        """One rollout and its updates; no metrics until enough is stored to learn from."""
        try:
            rollout = self.life.act()
        except BadRewardError as error:
            raise DiscorlError(f"{error} at step {self.step + 1}.") from error
        metrics = None
        for update in range(self.config.life.experience.replay.replay_ratio):
            batch = self.life.batch(rollout, store=update == 0)
            metrics = None if batch is None else self.life.learn(batch)
        self.step += 1
        return metrics

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return int(self.life.state.optimiser.count)

    def evaluate(
        self,
        greedy: bool,
        episodes: int | None = None,
        seed: int | None = None,
        max_steps: int | None = None,
        watch: Watch | None = None,
    ) -> Evaluation:
        """Play whole episodes on environments of their own; training is not touched.

        Args:
          seed: by default one of the run's own.
          max_steps: of an episode; by default `eval_max_steps`.
          watch: see `evaluate_policy`.
        """
        return self.life.evaluate(
            greedy,
            episodes or self.config.eval_episodes,
            EVALUATION_SEED + self.config.seed if seed is None else seed,
            max_steps or self.config.eval_max_steps,
            watch,
        )

    def close(self) -> None:
        """Free what the environment holds."""
        self.life.close()

    def checkpoint(self) -> Checkpoint:
        """Everything needed to resume exactly from here."""
        return Checkpoint(
            step=self.step,
            tensors=flatten(self.life.state_dict()),
            values={
                "seconds": dict(self.life.seconds),
                "unlogged": [
                    [step, list(metrics), torch.stack(list(metrics.values())).tolist()]
                    for step, metrics in self.unlogged
                ],
            },
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume exactly from where the checkpoint was made, by this version or 0.1."""
        groups, values = split_groups(checkpoint.tensors), checkpoint.values
        try:
            if "recent" in values:  # Where 0.1 kept the newest episodes.
                recent = values["recent"]
                groups["recent"] = {
                    "returns": torch.tensor([total for total, _ in recent], dtype=torch.float64),
                    "lengths": torch.tensor([length for _, length in recent], dtype=torch.int64),
                    "count": torch.tensor(values["episodes"]),
                }
            self.life.load_state_dict(upgraded(groups))
            self.life.seconds |= values["seconds"]
            self.unlogged = [
                (step, dict(zip(names, torch.tensor(row, device=self.device), strict=True)))
                for step, names, row in values["unlogged"]
            ]
        except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise DiscorlError(
                f"the checkpoint of step {checkpoint.step} does not fit this run: "
                f"{type(error).__name__}: {error}"
            ) from error
        self.step = checkpoint.step
