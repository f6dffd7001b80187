"""The learner, its replay and its optimiser around a module of your own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from discorl.agents.check import check_outputs, check_parameters, require_module, trainable
from discorl.agents.module import SequenceModuleAgent, module_agent, original_module
from discorl.envs.base import ArraySpec, ObservationSpec
from discorl.errors import DiscorlError
from discorl.learner import Learner, LearnerState
from discorl.optim import ClippedAdam, Schedule
from discorl.replay import Replay, ReplaySpec
from discorl.rollout import HeadSpec, Observation, Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.rules.disco import DiscoRule
from discorl.rules.library import load_rule
from discorl.tree import flatten, split_groups, tree_map, unflatten


class DiscoTrainer:
    """Learns from the rollouts of your loop; the module's own parameters are what changes.

    Args:
      agent: a module whose forward maps observations [..., *shape] to a dictionary of the heads
        that `rule.heads(num_actions)` names; `DiscoHeads` gives them all. Or a module in
        disco-torch's style, which has `forward(observations [T, B, ...], should_reset [T, B])`
        and `forward_step(observations, state)`. Frozen parameters stay as they are.
      rule: a name, a file or a rule.
      lr: the learning rate.
      device: where to learn; the agent must be there. By default where it is.
      batch_size: trajectories in an update, drawn from replay. None learns from the newest
        rollout and keeps no replay.
      replay_capacity: trajectories that are kept.
      replay_ratio: updates for each rollout.
      learn_first_steps: whether an episode's first step counts in the loss; as published it does
        not.
      weights_path: another word for a rule's file, in place of `rule`.
      seed: of the draws from replay.
    """

    def __init__(
        self,
        agent: nn.Module,
        rule: str | Path | UpdateRule = "disco103",
        *,
        lr: float = 0.01,
        device: torch.device | str | None = None,
        batch_size: int | None = 64,
        replay_capacity: int = 1024,
        replay_ratio: int = 1,
        learn_first_steps: bool = False,
        weights_path: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        _check_settings(lr, batch_size, replay_capacity, replay_ratio)
        self.agent = agent
        self.batch_size = batch_size
        self.replay_capacity = replay_capacity
        self.replay_ratio = replay_ratio
        # A compiled module acts; what was compiled learns, as its parameters are swapped there.
        self._module = original_module(require_module(agent))
        check_parameters(self._module, None if device is None else _canonical(device))
        example = next(iter(trainable(self._module).values()))
        self.device, self._dtype = example.device, example.dtype
        self.learner = Learner(
            # How many actions there are is known with the first rollout.
            agent=module_agent(self._module, HeadSpec({})),
            rule=_prepare_rule(weights_path or rule, self._dtype, self.device),
            optimiser=ClippedAdam(Schedule(lr)),
            learn_first_steps=learn_first_steps,
        )
        self.state: LearnerState = self.learner.init_from(self._current())
        self.replay: Replay | None = None
        """Made with the first rollout, which says how much room it takes."""
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.grad_steps = 0
        self.acting_steps = 0

    def step(self, rollout: Rollout) -> Metrics:
        """Store a rollout, and learn `replay_ratio` times.

        Returns:
          Metrics of the last update: 0-dim tensors on the agent's device, which wait for nothing
          until they are read. Until `batch_size` trajectories are stored nothing is learned, and
          `total_loss`, which alone is there then, is not a number.
        """
        kind = self.device.type
        autocast = None
        if torch.is_autocast_enabled(kind):
            autocast = torch.autocast(kind, dtype=torch.get_autocast_dtype(kind))
        with torch.autocast(kind, enabled=False):
            rollout = self._receive(rollout)
            metrics = {"total_loss": torch.full((), math.nan, device=self.device)}
            agent = module_agent(self._module, self.learner.agent.heads, autocast)
            learner = replace(self.learner, agent=agent)
            for _ in range(self.replay_ratio):
                batch = self._batch(rollout)
                if batch is not None:
                    metrics = self._update(learner, batch)
        if autocast is not None:
            # It holds the parameters rounded as they were before.
            torch.clear_autocast_cache()
        return metrics

    def state_dict(self) -> dict[str, Tensor]:
        """All of it: parameters, optimiser, the rule's memory, replay, draws and counts.

        Tensors by name, copied: for `torch.save` or safetensors.
        """
        self.state = replace(self.state, params=self._current())
        groups: dict[str, Any] = {
            "learner": tree_map(_copy, self.state),
            "generator": {"state": self.generator.get_state()},
            "counts": {"steps": torch.tensor([self.grad_steps, self.acting_steps])},
        }
        if self.replay is not None:
            groups["replay"] = self.replay.state_dict()
        return flatten(groups)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on exactly from what `state_dict` gave; the module's parameters are overwritten."""
        groups = split_groups(state)
        try:
            learner = tree_map(_copy, unflatten(self.state, groups["learner"]))
            replay = self._restored_replay(groups["replay"]) if "replay" in groups else None
            grad_steps, acting_steps = groups["counts"]["steps"].tolist()
            self.generator.set_state(groups["generator"]["state"].cpu())
        except (KeyError, ValueError) as error:
            raise DiscorlError(
                f"the state does not fit this trainer, build it as the one it is from: {error}"
            ) from error
        self._adopt(learner)
        self.replay = replay
        self.grad_steps, self.acting_steps = grad_steps, acting_steps

    def _current(self) -> dict[str, Tensor]:
        """The module's parameters as they are now: it may have been given others."""
        return {name: p.detach() for name, p in trainable(self._module).items()}

    def _adopt(self, state: LearnerState) -> None:
        """Keep a state, its parameters in the module."""
        with torch.no_grad():
            for name, p in trainable(self._module).items():
                p.copy_(state.params[name])
        self.state = replace(state, params=self._current())

    def _update(self, learner: Learner, batch: Rollout) -> Metrics:
        state, metrics = learner.step(replace(self.state, params=self._current()), batch)
        self._adopt(state)
        self.grad_steps += 1
        return metrics

    def _receive(self, rollout: Rollout) -> Rollout:
        """Check what came, and store it."""
        if not isinstance(rollout, Rollout):
            raise DiscorlError(
                f"rollout: expected a discorl.Rollout, as discorl.collect_rollout gives it, got "
                f"{type(rollout).__name__}"
            )
        if rollout.memory is not None:
            raise DiscorlError(
                "rollout: agents that remember learn with discorl.train or discorl.Learner, and "
                "a Network; here a rollout has no memory"
            )
        rollout = tree_map(lambda t: t.to(self.device), rollout).to(self._dtype)
        heads = self.learner.rule.heads(rollout.num_actions)
        if heads != self.learner.agent.heads:
            agent = module_agent(self._module, heads)
            check_outputs(agent, self._current(), rollout.observations)
            self.learner = replace(self.learner, agent=agent)
        if self.batch_size is not None:
            self._store(rollout)
        self.acting_steps += 1
        return rollout

    def _store(self, rollout: Rollout) -> None:
        try:
            if self.replay is None:
                self.replay = self._make_replay(rollout)
            self.replay.add(rollout)
        except ValueError as error:
            raise DiscorlError(
                f"replay: this rollout does not fit; all must be alike, and replay_capacity at "
                f"least their trajectories: {error}"
            ) from error

    def _batch(self, rollout: Rollout) -> Rollout | None:
        """What to learn from now; nothing until enough is stored."""
        if self.batch_size is not None:
            assert self.replay is not None
            if self.replay.size < self.batch_size:
                return None
            rollout = self.replay.sample(self.batch_size, self.generator)
        if isinstance(self.learner.agent, SequenceModuleAgent):
            # Empty but there: then the agent is told where episodes begin.
            return replace(rollout, memory={})
        return rollout

    def _make_replay(self, rollout: Rollout) -> Replay:
        spec = ReplaySpec(
            _spec(rollout.observations),
            rollout.num_actions,
            reward_dtype=self._dtype,
            final=rollout.final is not None,
        )
        return Replay(self.replay_capacity, len(rollout.actions), spec, self.device)

    def _restored_replay(self, state: dict[str, Tensor]) -> Replay:
        prefix = "observations/"
        entries = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        stored = Rollout(
            observations=entries or state["observations"],
            actions=state["actions"],
            rewards=state["rewards"],
            discounts=state["discounts"],
            logits=state["logits"],
            final=state.get("final"),
        )
        replay = self._make_replay(stored)
        replay.load_state_dict(state)
        return replay


def _check_settings(
    lr: float, batch_size: int | None, replay_capacity: int, replay_ratio: int
) -> None:
    if not lr > 0:
        raise DiscorlError(f"lr: expected a positive number, got {lr}")
    if replay_ratio < 1:
        raise DiscorlError(f"replay_ratio: expected at least 1, got {replay_ratio}")
    if batch_size is not None and not 1 <= batch_size <= replay_capacity:
        raise DiscorlError(
            f"batch_size: expected 1 to replay_capacity ({replay_capacity}), or None to learn "
            f"from the newest rollout, got {batch_size}"
        )


def _prepare_rule(
    rule: str | Path | UpdateRule, dtype: torch.dtype, device: torch.device
) -> UpdateRule:
    if isinstance(rule, str | Path):
        rule = load_rule(rule)
    if rule.needs_advantages:
        raise DiscorlError(
            f"rule {rule.name}: it needs advantages from outside, which this trainer does not "
            "give; actor_critic estimates its own"
        )
    return rule.to(dtype, device) if isinstance(rule, DiscoRule) else rule


def _canonical(device: torch.device | str) -> torch.device:
    """With its index, as tensors name it: `cuda` is `cuda:0`."""
    return torch.empty(0, device=device).device


def _spec(observations: Observation) -> ObservationSpec:
    if isinstance(observations, Tensor):
        return ArraySpec(tuple(observations.shape[2:]), observations.dtype)
    return {k: ArraySpec(tuple(v.shape[2:]), v.dtype) for k, v in observations.items()}


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)
