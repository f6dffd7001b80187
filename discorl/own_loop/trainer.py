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
from discorl.errors import DiscorlError
from discorl.group import SOLO, Group
from discorl.learner import Learner, LearnerState
from discorl.library.catalogue import DEFAULT_RULE, as_rule
from discorl.life.config import ReplayConfig
from discorl.life.mind import Mind
from discorl.optim import ClippedAdam, Schedule
from discorl.outputs import HeadSpec
from discorl.replay import Replay, ReplaySpec
from discorl.rollout import Rollout
from discorl.rules.base import Metrics, UpdateRule
from discorl.tree import flatten, split_groups, tree_map


class DiscoTrainer:
    """Learns from your loop's rollouts, and changes the module's own parameters.

    Args:
      agent: a module whose forward maps observations [..., *shape] to a dictionary of the heads
        that `rule.heads(num_actions)` names; `DiscoHeads` gives them all. Or a module in
        disco-torch's style, which has `forward(observations [T, B, ...], should_reset [T, B])`
        and `forward_step(observations, state)`. Frozen parameters stay as they are.
      rule: a name, a file or a rule.
      lr: the learning rate.
      device: where to learn; the agent must be there. By default, wherever it is.
      batch_size: trajectories in an update, drawn from replay. None learns from the newest
        rollout and keeps no replay.
      replay_capacity: trajectories that are kept.
      replay_ratio: updates for each rollout.
      learn_first_steps: whether an episode's first step counts in the loss; as published it does
        not.
      weights_path: a rule's file, in place of `rule`.
      seed: of the draws from replay.
      group: processes that train one module, each with a trainer of its own and rollouts of equal
        length; `discorl.join_group` gives it. All begin with the leading one's module. They share
        `batch_size` and `replay_capacity` equally.
    """

    def __init__(
        self,
        agent: nn.Module,
        rule: str | Path | UpdateRule = DEFAULT_RULE,
        *,
        lr: float = 0.01,
        device: torch.device | str | None = None,
        batch_size: int | None = 64,
        replay_capacity: int = 1024,
        replay_ratio: int = 1,
        learn_first_steps: bool = False,
        weights_path: str | Path | None = None,
        seed: int = 0,
        group: Group = SOLO,
    ) -> None:
        _check_settings(lr, batch_size, replay_capacity, replay_ratio)
        if batch_size is not None:
            batch_size = group.share("batch_size", batch_size)
            replay_capacity = group.share("replay_capacity", replay_capacity)
        self.agent = agent
        # A compiled module acts; its original learns, because there parameters can be swapped.
        self._module = original_module(require_module(agent))
        check_parameters(self._module, None if device is None else _canonical(device))
        group.follow(self._module)
        example = next(iter(trainable(self._module).values()))
        self.device, self._dtype = example.device, example.dtype
        learner = Learner(
            # The number of actions is known with the first rollout.
            agent=module_agent(self._module, HeadSpec({})),
            rule=_prepare_rule(weights_path or rule, self._dtype, self.device),
            optimiser=ClippedAdam(Schedule(lr)),
            learn_first_steps=learn_first_steps,
            group=group,
        )
        replayed = 0.0 if batch_size is None else 1.0
        self._mind = Mind(
            learner,
            learner.init_from(self._current()),
            ReplayConfig(batch_size, replay_capacity, replayed, replay_ratio),
            torch.Generator(self.device).manual_seed(group.seed(seed)),
        )
        self.grad_steps = 0
        self.acting_steps = 0

    @property
    def learner(self) -> Learner:
        """Who learns, by which rule."""
        return self._mind.learner

    @property
    def state(self) -> LearnerState:
        """What the module knows, and what the rule and the optimiser remember about it."""
        return self._mind.state

    @property
    def replay(self) -> Replay | None:
        """Made with the first rollout, which tells how much room it takes."""
        return self._mind.replay

    @property
    def generator(self) -> torch.Generator:
        """Draws from replay. If it draws the actions too, `state_dict` holds all randomness."""
        return self._mind.generator

    def step(self, rollout: Rollout) -> Metrics:
        """Store a rollout, and learn `replay_ratio` times.

        Returns:
          Metrics of the last update: 0-dim tensors on the agent's device, so nothing waits until
          they are read. Until `batch_size` trajectories are stored nothing is learned, and
          `total_loss`, the only metric then, is not a number.
        """
        kind = self.device.type
        autocast = None
        if torch.is_autocast_enabled(kind):
            autocast = torch.autocast(kind, dtype=torch.get_autocast_dtype(kind))
        with torch.autocast(kind, enabled=False):
            rollout = self._receive(rollout)
            metrics = {"total_loss": torch.full((), math.nan, device=self.device)}
            agent = module_agent(self._module, self.learner.agent.heads, autocast)
            self._mind.learner = replace(self.learner, agent=agent)
            for _ in range(self._mind.config.replay_ratio):
                batch = self._mind.batch(rollout)
                # One that has enough stored waits for those that do not.
                (waits,) = self.learner.group.largest(int(batch is None))
                if batch is not None and not waits:
                    metrics = self._update(batch)
        if autocast is not None:
            # It holds rounded parameters from before the update.
            torch.clear_autocast_cache()
        return metrics

    def state_dict(self) -> dict[str, Tensor]:
        """Everything: parameters, optimiser, the rule's memory, replay, draws and counts.

        Tensors by name, copied: for `torch.save` or safetensors.
        """
        self._mind.state = replace(self.state, params=self._current())
        groups: dict[str, Any] = self._mind.state_dict() | {
            "counts": {"steps": torch.tensor([self.grad_steps, self.acting_steps])}
        }
        return {name: _copy(tensor) for name, tensor in flatten(groups).items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume exactly from what `state_dict` returned; overwrites the module's parameters."""
        groups = split_groups({name: _copy(tensor) for name, tensor in state.items()})
        before = self._mind.state, self._mind.replay
        try:
            if "replay" in groups:
                self._make_replay(_stored(groups["replay"]))
            else:
                self._mind.replay = None
            grad_steps, acting_steps = groups["counts"]["steps"].tolist()
            self._mind.load_state_dict(groups)
        except (KeyError, ValueError) as error:
            self._mind.state, self._mind.replay = before
            raise DiscorlError(
                f"the state does not fit this trainer, build it as the one it is from: {error}"
            ) from error
        self._adopt()
        self.grad_steps, self.acting_steps = grad_steps, acting_steps

    def _current(self) -> dict[str, Tensor]:
        """The module's parameters as they are now: it may have been given others."""
        return {name: p.detach() for name, p in trainable(self._module).items()}

    def _adopt(self) -> None:
        """Put the learned parameters into the module, and continue from those."""
        with torch.no_grad():
            for name, p in trainable(self._module).items():
                p.copy_(self.state.params[name])
        self._mind.state = replace(self.state, params=self._current())

    def _update(self, batch: Rollout) -> Metrics:
        if isinstance(self.learner.agent, SequenceModuleAgent):
            # Empty but present, so that the agent is told where episodes begin.
            batch = replace(batch, memory={})
        self._mind.state = replace(self.state, params=self._current())
        metrics = self._mind.learn(batch)
        self._adopt()
        self.grad_steps += 1
        return metrics

    def _receive(self, rollout: Rollout) -> Rollout:
        """Check a rollout and store it."""
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
            self._mind.learner = replace(self.learner, agent=agent)
        self._store(rollout)
        self.acting_steps += 1
        return rollout

    def _store(self, rollout: Rollout) -> None:
        try:
            if self.replay is None:
                self._make_replay(rollout)
            self._mind.store(rollout)
        except ValueError as error:
            raise DiscorlError(
                f"replay: this rollout does not fit; all must be alike, and replay_capacity at "
                f"least their trajectories: {error}"
            ) from error

    def _make_replay(self, rollout: Rollout) -> None:
        steps, newest = rollout.actions.shape
        self._mind.make_room(ReplaySpec.of(rollout, self._dtype), steps, newest)


def _stored(state: dict[str, Tensor]) -> Rollout:
    """What a replay's state holds, as a rollout of the same shapes."""
    prefix = "observations/"
    entries = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    return Rollout(
        observations=entries or state["observations"],
        actions=state["actions"],
        rewards=state["rewards"],
        discounts=state["discounts"],
        logits=state["logits"],
        final=state.get("final"),
    )


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
    rule = as_rule(rule)
    if rule.needs_advantages:
        raise DiscorlError(
            f"rule {rule.name}: it needs advantages from outside, which this trainer does not "
            "give; actor_critic estimates its own"
        )
    return rule.to(dtype, device)


def _canonical(device: torch.device | str) -> torch.device:
    """With its index, as tensors name it: `cuda` is `cuda:0`."""
    return torch.empty(0, device=device).device


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)
