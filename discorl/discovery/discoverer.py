"""A rule's life: a population acts and learns by it, and it learns from what they become."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from discorl.discovery.config import PopulationConfig, deal_environments
from discorl.discovery.curriculum import Curriculum
from discorl.discovery.member import Death, Member, SeatMaker, member_seed
from discorl.discovery.stack import is_one_computation, meta_step_together, seats, stacks
from discorl.errors import DiscorlError
from discorl.group import SOLO, Group
from discorl.layers import Params
from discorl.optim import AdamState, ClippedAdam, Schedule, apply_updates, global_norm
from discorl.rules.disco import DiscoRule
from discorl.runs.checkpoint import Checkpoint
from discorl.stacking import Each
from discorl.tree import flatten, split_groups, stack, tree_map, unflatten, unstack

AGENT_METRICS = (
    "meta_loss",
    "pg_loss",
    "reg_loss",
    "entropy",
    "adv",
    "normalized_adv",
    "value",
    "val_importance_weight",
)
"""Metrics of the meta-loss, in the order of the table's columns."""
_EXTRA = ("grad_norm", "finite", "return", "has_return", "age", "lives", "inner_loss")


@dataclass(frozen=True)
class AgentReport:
    """One agent's row at a meta-step."""

    env: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class MetaStepReport:
    """What happened in a meta-step."""

    agents: list[AgentReport]
    update_norm: float
    """Norm of the rule's update."""
    skipped: int
    """Agents whose meta-gradient was not finite and did not count."""


class Lesson(Protocol):
    """What one agent says about the rule."""

    @property
    def grads(self) -> dict[str, Tensor]:
        """By the rule's parameter names."""
        ...

    @property
    def metrics(self) -> dict[str, Tensor]:
        """Scalars about the rule."""
        ...

    @property
    def inner_metrics(self) -> dict[str, Tensor]:
        """Scalars of the agent's last update."""
        ...


class Teaching(Protocol):
    """An agent of the population that the rule learns from."""

    index: int
    env_name: str
    age: int
    lives: int
    death: Death | None

    @property
    def mean_return(self) -> float:
        """Of its newest episodes; not a number before the first has ended."""
        ...

    def meta_step(self, rule: DiscoRule) -> Lesson:
        """Act and learn N times, and say what that means for the rule."""
        ...

    def be_born(self) -> None:
        """A new agent takes this one's place."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here, in groups."""
        ...

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Resume exactly from what `state_dict` returned, flattened."""
        ...

    def close(self) -> None:
        """Free what the environment holds."""
        ...


class Discoverer:
    """A rule, its optimiser and this process's share of the population.

    Args:
      make_member: makes an agent from configuration, index, environment, rule and seat; by default
        one whose meta-gradient improves the rule.
      metrics: which scalars of an agent's lesson are reported.
      curriculum: takes note of deaths, and chooses members of families, if `make_member` asks it.
    """

    def __init__(
        self,
        config: PopulationConfig,
        rule: DiscoRule,
        group: Group | None = None,
        make_member: Callable[[Any, int, str, DiscoRule, SeatMaker | None], Teaching] = Member,
        metrics: tuple[str, ...] = AGENT_METRICS,
        curriculum: Curriculum | None = None,
    ):
        self.config = config
        self.curriculum = curriculum
        self.metrics = metrics
        self.group = group or SOLO
        dtype = torch.float64 if config.float64 else torch.float32
        # Copies, because tensors read from a file lie at any address: see `restore`.
        params = {
            n: p.to(config.run.torch_device, dtype, copy=True) for n, p in rule.params.items()
        }
        self.rule = rule.with_params(params)
        self.env_of = deal_environments(config.envs, config.agents)
        self.members: list[Teaching] = []
        try:
            own = [index for index in range(config.agents) if self.group.owns(index)]
            envs = [self.env_of[index] for index in own]
            places = seats(config, envs, [member_seed(config, index) for index in own], own)
            for index, env, seat in zip(own, envs, places, strict=True):
                self.members.append(make_member(config, index, env, self.rule, seat))
        except BaseException:
            self.close()
            raise
        meta = config.meta
        cosine = config.meta_steps if meta.meta_learning_rate_schedule == "cosine" else None
        self.optimiser = ClippedAdam(
            Schedule(meta.meta_learning_rate, cosine), max_step=float("inf")
        )
        self.per_agent = meta.meta_optimiser == "per_agent"
        self.adam = self.optimiser.init(self.rule.params)
        """For the mean meta-gradient; unused if every agent has its own."""
        self.adam_of = {
            m.index: self.optimiser.init(self.rule.params) for m in self.members if self.per_agent
        }
        self.step = 0
        self.skipped = 0

    def meta_step(self) -> MetaStepReport:
        """Every agent acts and learns; then the rule is updated."""
        table = torch.zeros(
            self.config.agents,
            len(self.metrics) + len(_EXTRA),
            dtype=torch.float64,
            device=self.config.run.torch_device,
        )
        total = {name: torch.zeros_like(p) for name, p in self.rule.params.items()}
        for members in stacks(self.members, self.config):
            result = self._lessons(members)
            contribution, finite = self._contribution(members, result)
            for name, tensor in contribution.items():
                total[name] += tensor.sum(dim=0)
            table[[m.index for m in members]] = self._rows(members, result, finite)
            for member, fine in zip(members, finite.tolist(), strict=True):
                if not fine:
                    member.be_born()  # What broke the meta-gradient may have broken the agent.
        self.group.sum(table)
        updates = self._updates(self._sum_over_group(total), table)
        self.rule = self.rule.with_params(apply_updates(self.rule.params, updates))
        self.step += 1
        if self.curriculum is not None:
            self.curriculum.take_note(self.members, self.env_of, self.group)
        return self._report(table, updates)

    def close(self) -> None:
        """Free what the environments hold."""
        for member in self.members:
            member.close()

    def checkpoint(self) -> Checkpoint | None:
        """Everything needed to resume exactly from here; None except in the leading process."""
        shares = self.group.gather(self._shared_tensors())
        if shares is None:
            return None
        tensors = {f"rule/{name}": p for name, p in self.rule.params.items()}
        if not self.per_agent:
            tensors |= flatten({"meta_adam": self.adam})
        for share in shares:
            tensors |= share
        values: dict[str, Any] = {"skipped": self.skipped}
        if self.curriculum is not None:
            values["curriculum"] = self.curriculum.state_dict()
        return Checkpoint(self.step, tensors, values)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint, made by any number of processes."""
        # Tensors read from a file may lie at any address, and rounding depends on alignment.
        groups = split_groups({name: t.clone() for name, t in checkpoint.tensors.items()})
        try:
            params = unflatten(dict(self.rule.params), groups["rule"])
            self.rule = self.rule.with_params(params)
            if not self.per_agent:
                self.adam = unflatten(self.adam, groups["meta_adam"])
            for member in self.members:
                tensors = groups[f"agent_{member.index:04d}"]
                if self.per_agent:
                    adam = split_groups(tensors)["meta_adam"]
                    self.adam_of[member.index] = unflatten(self.adam, adam)
                member.load_state_dict(tensors)
            self.skipped = int(checkpoint.values["skipped"])
            if self.curriculum is not None:
                self.curriculum.load_state_dict(checkpoint.values["curriculum"])
        except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise DiscorlError(
                f"the checkpoint of meta-step {checkpoint.step} does not fit this run: "
                f"{type(error).__name__}: {error}"
            ) from error
        self.step = checkpoint.step

    def _lessons(self, members: list[Any]) -> Lesson:
        """What members of one stack say about the rule: everything [P, ...]."""
        if is_one_computation(self.config):
            clips = self.config.meta.meta_clip is not None
            return meta_step_together(members, self.rule, apart=self.per_agent or clips)
        (member,) = members
        lesson: Lesson = member.meta_step(self.rule)
        return tree_map(lambda tensor: tensor.unsqueeze(0), lesson)

    def _contribution(
        self, members: list[Teaching], result: Lesson
    ) -> tuple[dict[str, Tensor], Tensor]:
        """What each agent adds to the sum: its meta-gradient, or its own Adam's update; zero if
        the meta-gradient is not finite. And whether it is: [P]."""
        each = Each(len(members))
        norm = each(global_norm)(result.grads)
        finite = torch.isfinite(norm)
        clip = self.config.meta.meta_clip
        if clip is None and not self.per_agent and bool(finite.all()):
            return result.grads, finite
        scale = torch.ones_like(norm) if clip is None else (clip / norm).clamp(max=1)

        def clipped(grads: Params, scale: Tensor, finite: Tensor) -> dict[str, Tensor]:
            return {name: torch.where(finite, grad * scale, 0.0) for name, grad in grads.items()}

        grads = each(clipped)(result.grads, scale, finite)
        if not self.per_agent:
            return grads, finite

        def adapt(grads: Params, old: AdamState, finite: Tensor) -> tuple[Params, AdamState]:
            updates, new = self.optimiser.update(grads, old, self.rule.params)
            kept = stack([new, old], lambda pair: torch.where(finite, pair[0], pair[1]))
            return {n: torch.where(finite, update, 0.0) for n, update in updates.items()}, kept

        old = stack([self.adam_of[member.index] for member in members])
        updates, adams = each(adapt)(grads, old, finite)
        for member, adam in zip(members, unstack(adams, len(members)), strict=True):
            self.adam_of[member.index] = adam
        return dict(updates), finite

    def _updates(self, total: Params, table: Tensor) -> dict[str, Tensor]:
        """The rule's update from the sum over agents."""
        finite = table[:, len(self.metrics) + _EXTRA.index("finite")].sum()
        if not bool(finite):
            return {name: torch.zeros_like(tensor) for name, tensor in total.items()}
        count = finite.to(next(iter(total.values())).dtype)
        mean = {name: tensor / count for name, tensor in total.items()}
        if self.per_agent:
            return mean
        updates, self.adam = self.optimiser.update(mean, self.adam, self.rule.params)
        return updates

    def _sum_over_group(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One all-reduce for all tensors together."""
        if self.group.size == 1:
            return tensors
        flat = self.group.sum(torch.cat([t.flatten() for t in tensors.values()]))
        parts = flat.split([t.numel() for t in tensors.values()])
        return {
            name: part.reshape(tensor.shape)
            for (name, tensor), part in zip(tensors.items(), parts, strict=True)
        }

    def _rows(self, members: list[Teaching], result: Lesson, finite: Tensor) -> Tensor:
        """The members' rows of the table."""
        returns = [member.mean_return for member in members]
        known = [not math.isnan(value) for value in returns]
        extra: dict[str, Any] = {
            "grad_norm": Each(len(members))(global_norm)(result.grads),
            "finite": finite,
            "return": [v if has else 0.0 for v, has in zip(returns, known, strict=True)],
            "has_return": known,
            "age": [member.age for member in members],
            "lives": [member.lives for member in members],
            "inner_loss": result.inner_metrics["total_loss"],
        }
        values = [result.metrics[name] for name in self.metrics] + [extra[n] for n in _EXTRA]
        device = self.config.run.torch_device
        columns = [torch.as_tensor(v, dtype=torch.float64, device=device) for v in values]
        return torch.stack(columns, dim=1)

    def _report(self, table: Tensor, updates: Params) -> MetaStepReport:
        names = (*self.metrics, *_EXTRA)
        agents = []
        for env, row in zip(self.env_of, table.tolist(), strict=True):
            metrics = dict(zip(names, row, strict=True))
            if not metrics.pop("has_return"):
                del metrics["return"]
            agents.append(AgentReport(env, metrics))
        skipped = sum(not agent.metrics["finite"] for agent in agents)
        self.skipped += skipped
        return MetaStepReport(agents, float(global_norm(updates)), skipped)

    def _shared_tensors(self) -> dict[str, Tensor]:
        """The tensors that only this process has, on the host, by name."""
        tensors: dict[str, Tensor] = {}
        for member in self.members:
            own: dict[str, Any] = flatten(member.state_dict())
            if self.per_agent:
                own |= flatten({"meta_adam": self.adam_of[member.index]})
            # Copies: what is part of a stack shares its memory, and files cannot hold that.
            tensors |= {f"agent_{member.index:04d}/{k}": v.cpu().clone() for k, v in own.items()}
        return tensors
