"""One agent of the population: a life that teacher and student both look at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from discorl.discovery.member import Resident, begin_life, next_batch
from discorl.distillation.config import DistilConfig
from discorl.distillation.merging import Merging
from discorl.distillation.pair import Leader, Pair, PairTargets, divergences
from discorl.gradients import leaves
from discorl.rules.disco import DiscoRule
from discorl.tree import split_groups, tree_map
from discorl.values.distributions import categorical_kl

METRICS = ("loss", "policy_kl", "y_kl", "z_kl", "policy_step", "student_led")
"""What an agent's lesson says, in the order of the table's columns."""


@dataclass(frozen=True)
class Comparison:
    """How far the student was from the teacher over N updates of an agent."""

    grads: dict[str, Tensor]
    """By the student's parameter names."""
    metrics: dict[str, Tensor]
    inner_metrics: dict[str, Tensor]
    """Scalars of the agent's last update."""


class Pupil(Resident):
    """An agent that learns by the teacher or by the student, decided at birth.

    Args:
      teacher: with the student's bins of action values.
    """

    def __init__(
        self,
        config: DistilConfig,
        index: int,
        env: str,
        student: DiscoRule,
        teacher: DiscoRule,
        merging: Merging | None,
    ) -> None:
        super().__init__(config, index, env)
        self.config = config
        self.pair = Pair(teacher, student, "teacher", merging)
        self.updates = 0
        """Of all its lives."""
        self.be_born()

    def meta_step(self, rule: DiscoRule) -> Comparison:
        """Act, learn N times by the leader, and return how the student's targets should change."""
        config, updates = self.config, self.config.inner_steps
        if not self.outlives(updates):
            self.be_born()
        life, params = self.life, leaves(rule.params)
        pair = replace(self.pair, student=rule.with_params(params))
        learner = replace(life.mind.learner, rule=pair)
        found: list[dict[str, Tensor]] = []
        for _ in range(updates):
            batch = next_batch(life, life.act())
            update = learner.update(life.state, batch)
            life.mind.state = update.state  # The student's memory carries gradient to the next.
            assert isinstance(update.targets, PairTargets)
            found.append(divergences(update.targets))
        means = {name: torch.stack([f[name] for f in found]).mean() for name in found[0]}
        loss = torch.stack([config.weights[name] * kl for name, kl in means.items()]).sum()
        gradients = torch.autograd.grad(
            loss, list(params.values()), allow_unused=True, materialize_grads=True
        )
        life.mind.state = tree_map(Tensor.detach, life.state)
        self.age += updates
        self.updates += updates
        wanted = categorical_kl(update.targets.teacher["policy"], update.outputs.logits[:-1])
        metrics = {f"{name}_kl": kl.detach() for name, kl in means.items()} | {
            "loss": loss.detach(),
            "policy_step": wanted.mean(),
            "student_led": torch.tensor(float(self.pair.leads == "student")),
        }
        grads = dict(zip(params, gradients, strict=True))
        return Comparison(grads, metrics, update.metrics)

    def be_born(self) -> None:
        """A new agent takes this one's place, and learns by whom chance chooses."""
        share = self.config.student_share
        if self.config.student_rise:
            steps = self.updates / self.config.inner_steps
            share *= min(steps / self.config.student_rise, 1)
        drawn = torch.rand((), generator=self.generator, device=self.generator.device)
        self._begin("student" if float(drawn) < share else "teacher")

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here, in groups."""
        led = int(self.pair.leads == "student")
        numbers = [self.age, self.lifetime, self.lives, self.updates, led]
        return self.life.state_dict() | {"life": {"numbers": torch.tensor(numbers)}}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Resume exactly from what `state_dict` returned, flattened."""
        groups = split_groups(tensors)
        age, lifetime, lives, updates, led = (int(n) for n in groups["life"]["numbers"])
        self.lives = lives - 1
        self._begin("student" if led else "teacher")
        self.age, self.lifetime, self.updates = age, lifetime, updates
        self.life.load_state_dict(groups)

    def _begin(self, leads: Leader) -> None:
        """A life in an environment of its own; the leader decides which heads the agent has."""
        if hasattr(self, "life"):
            self.life.close()
        self.lives += 1
        self.pair = replace(self.pair, leads=leads)
        self.life = begin_life(
            self.config, self.index, self.env_name, self.seed_of_life, self.pair, self.generator
        )
        self.age = 0
        self.lifetime = self._draw_lifetime()
