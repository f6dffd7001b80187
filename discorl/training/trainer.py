"""A training run in memory: one life, step by step. No files are written here."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discorl.agents.base import Agent
from discorl.envs.sources import EnvironmentSource, find_environment
from discorl.errors import DiscorlError
from discorl.group import SOLO, Group
from discorl.life.life import BadRewardError, Life, upgraded
from discorl.life.playing import Evaluation, Watch
from discorl.rollout import Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.runs.checkpoint import Checkpoint
from discorl.runtime import computing_on
from discorl.training.config import TrainConfig
from discorl.training.parts import join_parts, split_parts
from discorl.tree import flatten

EVALUATION_SEED = 1_000_003
ACTING_SEED = 2_000_003
_STEP_SEED = 5_000_011


@dataclass
class Actor:
    """What acting in the background needs of its own."""

    thread: ThreadPoolExecutor
    agent: Agent
    """A copy of the one that learns: see `Life.play`."""
    generator: torch.Generator
    """Draws the actions; the life's own draws what is replayed, at the same time."""
    newest: Rollout | None = None
    """What is learned from while the next one is made; None at the start and after a restart."""

    @classmethod
    def make(cls, life: Life, seed: int) -> Actor:
        """An actor that has done nothing yet."""
        generator = torch.Generator(life.device).manual_seed(seed + ACTING_SEED)
        agent = copy.deepcopy(life.mind.learner.agent)
        # One thread of its own, and the others learn: see `_act_and_learn`.
        thread = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
        return cls(thread, agent, generator)


class Trainer:
    """A life and the learner's step.

    Args:
      config: the run.
      rule: what the agent learns by.
      source: the environment, if it is not the one that the configuration names.
      network: a module to learn, in place of the network that the configuration describes.
      group: processes that train one agent; each has an equal part of all that `config` counts.
    """

    def __init__(
        self,
        config: TrainConfig,
        rule: UpdateRule,
        source: EnvironmentSource | None = None,
        network: nn.Module | None = None,
        group: Group = SOLO,
    ) -> None:
        if config.compile and group.size > 1:
            raise DiscorlError("--compile: not with several processes; drop it")
        self.config = config
        self.group = group
        self.resumed_from = group.size
        """How many processes made what this run was resumed from."""
        self.device = config.run.torch_device
        source = source or find_environment(config.env, self.device, config.life.environment)
        if network is not None:
            group.follow(network)
        # The agent is born alike in all processes; what each draws after that is its own.
        generator = torch.Generator(self.device).manual_seed(config.seed)
        seed = group.seed(config.seed)
        self.life = Life(
            source,
            rule.to(device=self.device),
            config.life.share(group),
            seed,
            generator,
            updates=config.updates,
            network=network,
            compiled=config.compile,
            group=group,
        )
        if group.rank:
            generator.manual_seed(seed)
        self._actor = Actor.make(self.life, seed) if config.overlap else None
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
            if self._actor is None:
                rollout = self.life.act()
                metrics = self._learn(rollout, store=True)
            else:
                rollout, metrics = self._act_and_learn(self._actor)
        except BadRewardError as error:
            raise DiscorlError(f"{error} at step {self.step + 1}.") from error
        self.step += 1
        return metrics

    def _learn(self, rollout: Rollout, store: bool) -> Metrics | None:
        """The updates of one step, and the metrics of the last."""
        metrics = None
        updates = self.config.life.experience.replay.replay_ratio
        for update in range(updates):
            batch = self.life.batch(rollout, store=store and update == 0)
            last = update == updates - 1
            metrics = None if batch is None else self.life.learn(batch, measured=last)
        return metrics

    def _act_and_learn(self, actor: Actor) -> tuple[Rollout, Metrics | None]:
        """Act with the agent as it is now, and at the same time learn from what was before."""
        life, metrics = self.life, None
        playing = actor.thread.submit(
            life.play, life.state.params, actor.generator, agent=actor.agent
        )
        try:
            if actor.newest is not None:
                with computing_on(max(1, torch.get_num_threads() - 1), work=0):
                    metrics = self._learn(actor.newest, store=False)
        finally:
            played = playing.result()
        actor.newest = life.take_in(played)
        life.mind.store(actor.newest)
        return actor.newest, metrics

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
        if self._actor is not None:
            self._actor.thread.shutdown()
        self.life.close()

    def checkpoint(self) -> Checkpoint | None:
        """Everything needed to resume exactly from here; None except in the leading process."""
        groups = self.life.state_dict()
        if self._actor is not None:
            groups["actor"] = {"generator": self._actor.generator.get_state()}
        tensors = join_parts(self.group, flatten(groups))
        if tensors is None:
            return None
        return Checkpoint(
            step=self.step,
            tensors=tensors,
            values={
                "processes": self.group.size,
                "seconds": dict(self.life.seconds),
                "unlogged": [
                    [step, list(metrics), torch.stack(list(metrics.values())).tolist()]
                    for step, metrics in self.unlogged
                ],
            },
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume exactly from where the checkpoint was made, by this version or 0.1.

        One that was made by another number of processes is dealt out anew: see `Life.inherit`.
        """
        values = checkpoint.values
        try:
            self.resumed_from = int(values.get("processes", 1))
            parts = split_parts(checkpoint.tensors, self.resumed_from)
            groups = parts[0]
            if "recent" in values:  # Where 0.1 kept the newest episodes.
                recent = values["recent"]
                groups["recent"] = {
                    "returns": torch.tensor([total for total, _ in recent], dtype=torch.float64),
                    "lengths": torch.tensor([length for _, length in recent], dtype=torch.int64),
                    "count": torch.tensor(values["episodes"]),
                }
            parts[0] = upgraded(groups)
            if self.resumed_from == self.group.size:
                self._continue(parts[self.group.rank])
            else:
                self._inherit(parts, checkpoint.step)
            self.life.seconds |= {name: float(n) for name, n in values["seconds"].items()}
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

    def _continue(self, groups: dict[str, dict[str, Tensor]]) -> None:
        self.life.load_state_dict(groups)
        if self._actor is not None:
            self._actor.generator.set_state(groups["actor"]["generator"].cpu())

    def _inherit(self, parts: list[dict[str, dict[str, Tensor]]], step: int) -> None:
        seed = self.group.seed(self.config.seed) + (step + 1) * _STEP_SEED
        self.life.inherit(parts, seed)
        if self._actor is not None:
            self._actor.generator.manual_seed(seed + ACTING_SEED)
