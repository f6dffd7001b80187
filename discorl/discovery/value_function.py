"""The value network that judges agents in discovery, part of neither the agent nor the rule.

There are two ways to give credit. In the published code its V-trace runs over the *actor's own*
time indexing: the advantage of an action is built from the reward that arrived with the observation
it was chosen on, not from the one that it brought, and an episode's first action gets none.
`aligned` credit gives every action the reward and the end that follow it, as a learner's own
V-trace does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from discorl.agents.bodies import make_body
from discorl.agents.config import NetworkConfig
from discorl.agents.network import torso_function
from discorl.agents.torsos import Body, Redrawable, Remembering
from discorl.errors import DiscorlError
from discorl.gradients import leaves, vector_jacobian
from discorl.layers import Params, affine, truncated_normal
from discorl.observations import ObservationSpec
from discorl.optim import AdamState, ClippedAdam, Schedule, apply_updates
from discorl.rollout import Rollout
from discorl.settings import Positive, Share, Sizes, check_fields
from discorl.stacking import ALONE, Each
from discorl.tree import tree_map
from discorl.values import MovingAverage, ValueReading, importance_weights, vtrace
from discorl.values.losses import value_loss_from_td
from discorl.values.returns import VTraceReturns

_READING = ValueReading(nonlinear=True)
_OUTPUT = ValueReading()


@dataclass(frozen=True)
class ValueConfig:
    """Sizes and constants; the defaults are the published ones."""

    credit: Literal["published", "aligned"] = "published"
    """What an action is judged by: the reward that came before it, as in the published code, or
    the one that it brought."""
    value_torso: Sizes = (256, 256)
    """Units of the fully connected layers of the value network that judges the agents."""
    value_learning_rate: Positive = 1e-3
    """Learning rate of the value network."""
    value_discount: Share = 0.99
    """Discount of the returns that the value network judges by."""
    value_lambda: Share = 0.96
    """Trace decay of the value network's V-trace."""
    value_average_decay: Share = 0.99
    """Decay of the moving averages of the value network's advantages and TD errors."""
    value_head_std: Positive = 0.01
    """Initial deviation of the weights of the value network's last layer."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.value_torso:
            raise DiscorlError("--value-torso: expected one or more positive sizes")


@dataclass(frozen=True)
class ValueState:
    """What the value network has learned and keeps track of."""

    params: dict[str, Tensor]
    optimiser: AdamState
    advantage: MovingAverage
    td: MovingAverage


@dataclass(frozen=True)
class Judgement:
    """How an agent did on a rollout of L = T + 1 steps; [T, B] unless said otherwise."""

    returns: VTraceReturns
    normalized_advantage: Tensor
    normalized_td: Tensor
    values: Tensor
    """[T + 1, B]."""
    rho: Tensor
    """Importance weights."""
    net_out: Tensor
    """[T + 1, B, 1]: the network's raw output, with gradient."""
    advantage: MovingAverage
    """The moving averages after this rollout."""
    td: MovingAverage


class ValueFunction:
    """A state-value network and its update.

    Args:
      spec: the observations it reads.
      network: the value network has the same body and memory as agents built with this; its memory
        starts empty with each rollout.
    """

    def __init__(
        self,
        spec: ObservationSpec,
        config: ValueConfig | None = None,
        network: NetworkConfig | None = None,
    ):
        self.config = config or ValueConfig()
        network = replace(
            network or NetworkConfig(body="mlp"),
            torso=self.config.value_torso,
            activate_torso=False,
        )
        self._torso = make_body(spec, network)
        self._memory_spec = (
            self._torso.memory_spec if isinstance(self._torso, Remembering) else None
        )
        self._call = torso_function(self._torso)
        self._torso_names = [name for name, _ in self._torso.named_parameters()]
        self._optimiser = ClippedAdam(Schedule(self.config.value_learning_rate))

    def init(self, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> ValueState:
        """A fresh network that has seen nothing."""
        self._torso.to(generator.device)
        assert isinstance(self._torso, Redrawable)
        assert isinstance(self._torso, Body)
        self._torso.init_(generator)
        params = {f"torso.{n}": p.detach().clone() for n, p in self._torso.named_parameters()}
        shape = (1, self._torso.output_size)
        params["head.weight"] = truncated_normal(shape, self.config.value_head_std, generator)
        params["head.bias"] = torch.zeros(1, device=generator.device)
        return self.init_from({name: p.to(dtype) for name, p in params.items()})

    def init_from(self, params: dict[str, Tensor]) -> ValueState:
        """A network with the given parameters that has seen nothing."""
        example = params["head.bias"]
        return ValueState(
            params=params,
            optimiser=self._optimiser.init(params),
            advantage=MovingAverage.initial(example.dtype, example.device),
            td=MovingAverage.initial(example.dtype, example.device),
        )

    def judge(self, state: ValueState, rollout: Rollout, logits: Tensor) -> Judgement:
        """Values and advantages of a rollout under the policy `logits` [T + 1, B, A]."""
        net_out = self._forward(state.params, rollout)
        values = _READING(net_out).detach()
        rho = importance_weights(logits[:-1].detach(), rollout.logits[:-1], rollout.actions[:-1])
        returns = self._returns(rollout, rho, values)
        decay = self.config.value_average_decay
        advantage = state.advantage.update(returns.advantage, decay)
        td = state.td.update(returns.td, decay)
        return Judgement(
            returns=returns,
            normalized_advantage=advantage.normalize(returns.advantage),
            normalized_td=td.scale(returns.td),
            values=values,
            rho=rho,
            net_out=net_out,
            advantage=advantage,
            td=td,
        )

    def _returns(self, rollout: Rollout, rho: Tensor, values: Tensor) -> VTraceReturns:
        """V-trace, with credit as configured."""
        config, transitions = self.config, rollout.transitions()
        if config.credit == "published":
            discounts = config.value_discount * rollout.discounts[:-1].to(values.dtype)
            # Judged as if episodes had ended where they were cut off: the next step is another's.
            discounts = transitions.without_gaps(discounts)
            rewards = rollout.rewards[:-1]
            return vtrace(rewards, discounts, rho, values, values, config.value_lambda)
        returns = vtrace(
            transitions.rewards,
            config.value_discount * transitions.continues,
            rho,
            values,
            values,
            transitions.trace_decay(config.value_lambda),
        )
        return tree_map(transitions.without_gaps, returns)

    def update(
        self, state: ValueState, rollout: Rollout, logits: Tensor, each: Each = ALONE
    ) -> ValueState:
        """One step towards V-trace targets.

        Args:
          logits: the agent's, before its own update.
          each: one agent, or a stack of them that are judged at once.
        """
        leaf_state = replace(state, params=leaves(state.params))
        with torch.enable_grad():
            loss, advantage, td = each(self._loss)(leaf_state, rollout, logits)
            grads = vector_jacobian({"loss": loss.sum()}, leaf_state.params)
        with torch.no_grad():
            update = each(self._optimiser.update)
            updates, optimiser = update(grads, state.optimiser, state.params)
            new_params = apply_updates(state.params, updates)
        return ValueState(new_params, optimiser, advantage, td)

    def _loss(
        self, state: ValueState, rollout: Rollout, logits: Tensor
    ) -> tuple[Tensor, MovingAverage, MovingAverage]:
        """The loss [], and the moving averages after the rollout."""
        judgement = self.judge(state, rollout, logits)
        # The network's raw output moves by the scaled TD error of the value it stands for.
        loss = value_loss_from_td(judgement.net_out[:-1], judgement.normalized_td, _OUTPUT)
        return loss.mean(), judgement.advantage, judgement.td

    def _forward(self, params: Params, rollout: Rollout) -> Tensor:
        torso_params = {name: params[f"torso.{name}"] for name in self._torso_names}
        if self._memory_spec is None:
            features = self._call(torso_params, rollout.observations)
        else:
            batch, head = rollout.actions.shape[1], params["head.bias"]
            empty = {k: head.new_zeros(batch, *shape) for k, shape in self._memory_spec.items()}
            features, _ = self._call(torso_params, rollout.window(empty))
        return affine(features, params["head.weight"], params["head.bias"])
