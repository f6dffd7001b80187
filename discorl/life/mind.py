"""What an agent is, wherever it lives: what it knows, what it has stored, and how it learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from discorl.learner import Learner, LearnerState
from discorl.life.acting import burn_in
from discorl.life.config import ReplayConfig
from discorl.replay import Replay, ReplaySpec, concatenate, deal_out, first_trajectories
from discorl.rollout import Rollout
from discorl.rules.base import Metrics
from discorl.tree import unflatten

LearnerStep = Callable[[LearnerState, Rollout], tuple[LearnerState, Metrics]]


class Mind:
    """A learner and its state, the replay it learns from, and the generator that draws.

    Args:
      state: an agent, newborn or not.
      burn_in: steps at the start of a trajectory that only refresh the agent's memory.
      step: how to learn, by default `learner.step`; a compiled one is faster.
    """

    def __init__(
        self,
        learner: Learner,
        state: LearnerState,
        config: ReplayConfig,
        generator: torch.Generator,
        burn_in: int = 0,
        step: LearnerStep | None = None,
    ) -> None:
        self.learner = learner
        self.state = state
        self.config = config
        self.generator = generator
        self.burn_in = burn_in
        self.replay: Replay | None = None
        """What is stored; None if none of it would be drawn."""
        self._step = step

    def make_room(self, spec: ReplaySpec, length: int, newest: int) -> None:
        """Allocate replay for rollouts of `newest` trajectories, if any are drawn from it."""
        if self.config.shares(newest)[1]:
            device = self.generator.device
            self.replay = Replay(self.config.replay_capacity, length, spec, device)

    def store(self, rollout: Rollout) -> None:
        """Keep a rollout for replay, if there is one."""
        if self.replay is not None:
            self.replay.add(rollout)

    def batch(self, rollout: Rollout) -> Rollout | None:
        """The newest trajectories and replayed ones, as the configuration mixes them.

        None until enough is stored.
        """
        fresh, replayed = self.config.shares(rollout.actions.shape[1])
        if self.replay is not None and self.replay.size < replayed:
            return None
        parts = [first_trajectories(rollout, fresh)] if fresh else []
        if self.replay is not None:
            parts.append(self.replay.sample(replayed, self.generator))
        return parts[0] if len(parts) == 1 else concatenate(parts)

    def remember(self, batch: Rollout) -> Rollout:
        """The batch without its first steps, if those are only there to refresh the memory."""
        if not (self.burn_in and batch.memory):
            return batch
        return burn_in(self.learner.agent, self.state.params, batch, self.burn_in)

    def learn(self, batch: Rollout, measured: bool = True) -> Metrics:
        """One update; its metrics may be left out unless `measured`."""
        batch = self.remember(batch)
        if self._step is None:
            self.state, metrics = self.learner.step(self.state, batch, measured=measured)
        else:  # A second graph without metrics would take as long again to compile.
            self.state, metrics = self._step(self.state, batch)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume exactly from here, in groups."""
        groups: dict[str, Any] = {
            "learner": self.state,
            "generator": {"state": self.generator.get_state()},
        }
        if self.replay is not None:
            groups["replay"] = self.replay.state_dict()
        return groups

    def load_state_dict(self, groups: dict[str, dict[str, Tensor]]) -> None:
        """Resume from the groups that `state_dict` returned, each flattened.

        Raises ValueError or KeyError, naming what does not fit.
        """
        self.state = unflatten(self.state, groups["learner"])
        if self.replay is not None:
            self.replay.load_state_dict(groups["replay"])
        self.generator.set_state(groups["generator"]["state"].cpu())

    def inherit(self, parts: Sequence[dict[str, dict[str, Tensor]]], newest: int) -> None:
        """Go on from the groups of another number of processes: what they stored is dealt out.

        Args:
          newest: trajectories in a rollout.
        """
        group, replay = self.learner.group, self.replay
        self.state = unflatten(self.state, parts[0]["learner"])
        if replay is None:
            return
        capacity = replay.capacity * group.size // len(parts)
        old = []
        for part in parts:
            ring = Replay(capacity, replay.length, replay.spec, self.generator.device)
            ring.load_state_dict(part["replay"])
            old.append(ring)
        deal_out(old, replay, group, newest)
