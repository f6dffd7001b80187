"""Teacher and student side by side on the life of one agent, which learns by one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from discorl.distillation.merging import Merging
from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Transitions
from discorl.rules.base import Metrics
from discorl.rules.disco import DiscoConfig, DiscoRule, DiscoState, DiscoTargets
from discorl.values.distributions import categorical_kl

Leader = Literal["teacher", "student"]


@dataclass(frozen=True)
class PairState:
    """What both remember about the agent: each has a meta-RNN of its own."""

    teacher: DiscoState
    student: DiscoState


@dataclass(frozen=True)
class PairTargets:
    """What both ask for, in the student's bins; the student's carry gradient."""

    leader: DiscoTargets
    """What the agent learns from."""
    teacher: dict[str, Tensor]
    """`policy` [T, B, A], `y` and `z` [T, B, P] logits."""
    student: dict[str, Tensor]


@dataclass(frozen=True)
class Pair:
    """A rule: its agents learn by the leader, and it computes the other's targets too.

    The agent has the leader's heads. The other sees its y and z merged, or spread.
    """

    teacher: DiscoRule
    student: DiscoRule
    leads: Leader
    merging: Merging | None = None

    needs_advantages: ClassVar[bool] = False

    @property
    def leader(self) -> DiscoRule:
        return self.teacher if self.leads == "teacher" else self.student

    @property
    def name(self) -> str:
        return f"{self.student.name} beside {self.teacher.name}"

    @property
    def params(self) -> dict[str, Tensor]:
        return self.student.params

    @property
    def config(self) -> DiscoConfig:
        return self.leader.config

    @property
    def target_params_decay(self) -> float:
        return self.leader.target_params_decay

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Self:
        """See `UpdateRule.to`."""
        teacher, student = self.teacher.to(dtype, device), self.student.to(dtype, device)
        return replace(self, teacher=teacher, student=student)

    def configured(self, **settings: Any) -> Self:
        """See `UpdateRule.configured`."""
        teacher = self.teacher.configured(**settings)
        return replace(self, teacher=teacher, student=self.student.configured(**settings))

    def for_run(self, updates: int) -> Self:
        """The same: neither changes with the length of a run."""
        return self

    def heads(self, num_actions: int) -> HeadSpec:
        """The leader's."""
        return self.leader.heads(num_actions)

    def initial_state(self, dtype: torch.dtype, device: torch.device | str) -> PairState:
        """Neither has seen the agent."""
        return PairState(
            self.teacher.initial_state(dtype, device), self.student.initial_state(dtype, device)
        )

    def targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs | None,
        transitions: Transitions,
        state: PairState,
        differentiable: bool = False,
    ) -> tuple[PairTargets, PairState]:
        """Both rules' targets; those of the student can always be differentiated by its
        parameters, also through its memory, but never by the agent's outputs."""
        assert target_outputs is not None
        by_teacher = by_student = _detached(outputs), _detached(target_outputs)
        merging = self.merging
        with torch.no_grad():
            if merging is not None and self.leads == "student":
                by_teacher = merging.spread(by_teacher[0]), merging.spread(by_teacher[1])
            elif merging is not None:
                by_student = merging.merge(by_student[0]), merging.merge(by_student[1])
            wanted, teacher_state = self.teacher.targets(*by_teacher, transitions, state.teacher)
            teacher = {"policy": wanted.policy, "y": wanted.y, "z": wanted.z}
            if merging is not None:
                teacher |= {"y": merging.y.merge(wanted.y), "z": merging.z.merge(wanted.z)}
        with torch.enable_grad():
            own, student_state = self.student.targets(
                *by_student, transitions, state.student, differentiable=True
            )
        student = {"policy": own.policy, "y": own.y, "z": own.z}
        leader = wanted
        if self.leads == "student":
            leader = replace(own, policy=own.policy.detach(), y=own.y.detach(), z=own.z.detach())
        return PairTargets(leader, teacher, student), PairState(teacher_state, student_state)

    def loss(
        self, outputs: TakenOutputs, targets: PairTargets, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """The leader's."""
        return self.leader.loss(outputs, targets.leader, transitions)


def divergences(targets: PairTargets) -> dict[str, Tensor]:
    """Mean KL from each of the teacher's targets to the student's: []."""
    return {
        name: categorical_kl(wanted, targets.student[name]).mean()
        for name, wanted in targets.teacher.items()
    }


def _detached(outputs: AgentOutputs) -> AgentOutputs:
    return AgentOutputs(
        {name: t.detach() for name, t in outputs.state.items()},
        {name: t.detach() for name, t in outputs.action.items()},
    )
