"""Discovered rules: values by Retrace, targets by the meta-network, loss by KL.

Oh et al., "Discovering state-of-the-art reinforcement learning algorithms", Nature 648 (2025).
docs/symbols.md has the symbols of its equations and their names here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Transitions
from discorl.rules.base import Metrics
from discorl.rules.meta_network import (
    MetaInputs,
    MetaNetworkSizes,
    MetaRNNState,
    apply_meta_network,
    initial_params,
)
from discorl.settings import NotNegative, Positive, Range, Search, Share, check_fields
from discorl.values import (
    MovingAverage,
    RetraceReturns,
    ValueReading,
    importance_weights,
    lookup,
    retrace,
    update_together,
    value_loss_from_target,
)
from discorl.values.distributions import entropy_of, kl_of, mask_logits, unmasked


@dataclass(frozen=True)
class DiscoConfig:
    """What a discovered rule fixes besides its parameters; the defaults are Disco103's."""

    sizes: MetaNetworkSizes = field(default_factory=MetaNetworkSizes)
    num_bins: Annotated[int, Range(2)] = 601
    """Bins of the agent's categorical action value q."""
    max_abs_value: Positive = 300.0
    """Range of those bins, on the squashed scale."""
    discount: Annotated[Share, Search(0.95, 0.999)] = 0.997
    """What a reward is worth if it comes one step later."""
    retrace_lambda: Share = 0.95
    """Retrace's trace decay."""
    policy_cost: NotNegative = 1.0
    """Weight of the divergence from the policy's target."""
    y_cost: NotNegative = 1.0
    """Weight of the divergence from y's target."""
    z_cost: NotNegative = 1.0
    """Weight of the divergence from z's target."""
    aux_policy_cost: NotNegative = 1.0
    """Weight of predicting the next step's policy."""
    value_cost: NotNegative = 0.2
    """Weight of the action values' loss."""
    target_params_decay: Share = 0.9
    """How slowly target parameters follow the agent's."""
    moving_average_decay: Share = 0.99
    """Decay of the moving averages of advantages and TD errors."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class DiscoState:
    """What the rule remembers about one agent."""

    rnn: MetaRNNState
    advantage: MovingAverage
    td: MovingAverage


@dataclass(frozen=True)
class DiscoTargets:
    """What the agent should move towards. Logits carry gradient only when asked for."""

    policy: Tensor
    """[T, B, A] logits."""
    y: Tensor
    """[T, B, P] logits."""
    z: Tensor
    """[T, B, P] logits, for the action taken."""
    meta_input: Tensor
    """[T, B, 1]."""
    returns: RetraceReturns
    """Retrace estimates."""
    normalized_advantage: Tensor
    """[T, B]."""
    normalized_qv_advantage: Tensor
    """[T + 1, B, A]."""
    normalized_q_td: Tensor
    """[T, B]."""
    q_values: Tensor
    """[T + 1, B, A]: the agent's own."""
    target_logits: Tensor
    """[T, B, A]: the target network's policy."""
    value_target: Tensor
    """[T, B]: what the taken action's value should be: what it is, and its TD error."""
    mean_z: Tensor
    """[]: mean of the agent's z logits over all actions, for the metrics."""


@dataclass(frozen=True)
class DiscoRule:
    """A discovered rule: a configuration and the parameters of its meta-network."""

    config: DiscoConfig
    params: dict[str, Tensor]
    name: str = "disco"
    provenance: dict[str, str] = field(default_factory=dict)
    """Where it came from, in words: kept with the rule when it is saved."""

    def __post_init__(self) -> None:
        check_params(self.params, self.config.sizes)

    @classmethod
    def random(cls, config: DiscoConfig | None = None, seed: int = 0) -> DiscoRule:
        """A fresh rule with random parameters, the starting point of discovery."""
        config = config or DiscoConfig()
        generator = torch.Generator().manual_seed(seed)
        params = initial_params(config.sizes, generator)
        provenance = {"origin": f"random parameters, seed {seed}"}
        return cls(config, params, name="random", provenance=provenance)

    def with_params(self, params: dict[str, Tensor]) -> DiscoRule:
        """The same rule with other parameters, for instance ones that require gradient."""
        return replace(self, params=params)

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> DiscoRule:
        """The same rule in another type or on another device."""
        return self.with_params(
            {k: v.to(dtype=dtype, device=device) for k, v in self.params.items()}
        )

    def configured(self, **settings: Any) -> DiscoRule:
        """The same rule with other settings, which its provenance then lists."""
        before = self.provenance.get("changed_settings")
        told = [*([before] if before else []), *(f"{k}={v}" for k, v in settings.items())]
        provenance = self.provenance | {"changed_settings": ", ".join(told)}
        return replace(self, config=replace(self.config, **settings), provenance=provenance)

    def for_run(self, updates: int) -> DiscoRule:
        """The same: what changes with an agent's age is in the rule's state."""
        return self

    needs_advantages: ClassVar[bool] = False

    @property
    def target_params_decay(self) -> float:
        return self.config.target_params_decay

    @property
    def reading(self) -> ValueReading:
        """How q stands for a value."""
        return ValueReading(self.config.max_abs_value, nonlinear=True)

    def heads(self, num_actions: int) -> HeadSpec:
        """See `disco_heads`."""
        return disco_heads(self.config, num_actions)

    def initial_state(self, dtype: torch.dtype, device: torch.device | str) -> DiscoState:
        """No memory and no moments yet."""
        hidden = torch.zeros(self.config.sizes.meta_hidden, dtype=dtype, device=device)
        return DiscoState(
            rnn=MetaRNNState(hidden, hidden.clone()),
            advantage=MovingAverage.initial(dtype, device),
            td=MovingAverage.initial(dtype, device),
        )

    def targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs | None,
        transitions: Transitions,
        state: DiscoState,
        differentiable: bool = False,
    ) -> tuple[DiscoTargets, DiscoState]:
        """Targets for T transitions and the new state; see `UpdateRule.targets`."""
        if target_outputs is None:
            raise ValueError("target_outputs: a discovered rule needs the target network's outputs")
        steps, batch = transitions.rewards.shape
        heads = self._heads(transitions).for_targets()
        outputs.check(heads, steps + 1, batch)
        target_outputs.check(heads, steps + 1, batch)
        with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            return self._targets(outputs, target_outputs, transitions, state)

    def _targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs,
        transitions: Transitions,
        state: DiscoState,
    ) -> tuple[DiscoTargets, DiscoState]:
        policy = torch.softmax(outputs.logits.detach(), dim=-1)
        q_values = self.reading(outputs.action["q"].detach())
        target_q_values = self.reading(target_outputs.action["q"].detach())
        values = (policy * q_values).sum(dim=-1)
        returns = self._returns(outputs, transitions, policy, q_values, target_q_values)
        decay = self.config.moving_average_decay
        advantage_average, td_average = update_together(
            (state.advantage, state.td),
            (returns.advantage, returns.q_td),
            decay,
            transitions.group,
        )
        mean, deviation = advantage_average.mean_and_deviation()
        normalized_advantage = (returns.advantage - mean) / deviation
        normalized_qv_advantage = (returns.qv_advantage - mean) / deviation
        meta_outputs, rnn = apply_meta_network(
            self.params,
            MetaInputs(
                policy=policy,
                behaviour_policy=torch.softmax(transitions.behaviour_logits, dim=-1),
                target_policy=torch.softmax(target_outputs.logits[:-1].detach(), dim=-1),
                actions=transitions.actions,
                rewards=transitions.rewards,
                continues=transitions.continues,
                links=transitions.links,
                values=values,
                advantage=returns.advantage,
                normalized_advantage=normalized_advantage,
                target_q=target_q_values[:-1],
                qv_advantage=returns.qv_advantage[:-1],
                normalized_qv_advantage=normalized_qv_advantage[:-1],
                y=outputs.state["y"],
                target_y=target_outputs.state["y"],
                z=outputs.action["z"],
                target_z=target_outputs.action["z"],
            ),
            state.rnn,
            transitions.group,
        )
        targets = DiscoTargets(
            policy=mask_logits(meta_outputs.policy, unmasked(outputs.logits[:-1])),
            y=meta_outputs.y,
            z=meta_outputs.z,
            meta_input=meta_outputs.meta_input,
            returns=returns,
            normalized_advantage=normalized_advantage,
            normalized_qv_advantage=normalized_qv_advantage,
            normalized_q_td=td_average.scale(returns.q_td),
            q_values=q_values,
            target_logits=target_outputs.logits[:-1].detach(),
            value_target=lookup(q_values[:-1], transitions.actions) + returns.q_td,
            mean_z=outputs.action["z"][:-1].detach().mean(),
        )
        return targets, DiscoState(rnn, advantage_average, td_average)

    def _returns(
        self,
        outputs: AgentOutputs,
        transitions: Transitions,
        policy: Tensor,
        q_values: Tensor,
        target_q_values: Tensor,
    ) -> RetraceReturns:
        """Retrace with the online policy throughout and the target net's action values."""
        rho = importance_weights(
            outputs.logits[:-1], transitions.behaviour_logits, transitions.actions
        )
        returns = retrace(
            rewards=transitions.rewards,
            discounts=self.config.discount * transitions.continues,
            rho=rho,
            actions=transitions.actions,
            target_values=(policy * target_q_values).sum(dim=-1),
            q_values=q_values,
            target_q_values=target_q_values,
            lambda_=transitions.trace_decay(self.config.retrace_lambda),
        )
        return replace(
            returns,
            advantage=transitions.without_gaps(returns.advantage),
            q_td=transitions.without_gaps(returns.q_td),
        )

    def loss(
        self, outputs: TakenOutputs, targets: DiscoTargets, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """Per-step loss [T, B] and metrics; the sum of the two losses below."""
        outputs.check(self._heads(transitions), *transitions.rewards.shape)
        prediction_loss, prediction_metrics = self.prediction_loss(outputs, targets, transitions)
        value_loss, value_metrics = self.value_loss(outputs, targets, transitions)
        return prediction_loss + value_loss, prediction_metrics | value_metrics

    def prediction_loss(
        self, outputs: TakenOutputs, targets: DiscoTargets, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """KL to the policy, y and z targets, and to the next step's policy: [T, B]."""
        config = self.config
        logits, y = outputs.logits[:-1], outputs.state["y"][:-1]
        z, aux_policy = outputs.action["z"], outputs.action["aux_pi"]
        log_policy, log_y = torch.log_softmax(logits, dim=-1), torch.log_softmax(y, dim=-1)
        log_z, log_aux = torch.log_softmax(z, dim=-1), torch.log_softmax(aux_policy, dim=-1)
        log_policy_target = torch.log_softmax(targets.policy, dim=-1)
        log_next_policy = torch.log_softmax(outputs.logits[1:].detach(), dim=-1)
        policy_loss = kl_of(log_policy_target, log_policy)
        y_loss = kl_of(torch.log_softmax(targets.y, dim=-1), log_y)
        z_loss = kl_of(torch.log_softmax(targets.z, dim=-1), log_z)
        aux_loss = transitions.continues * kl_of(log_next_policy, log_aux)
        loss = (
            config.policy_cost * policy_loss
            + config.y_cost * y_loss
            + config.z_cost * z_loss
            + config.aux_policy_cost * aux_loss
        )
        if not transitions.measured:
            return loss, {}
        with torch.no_grad():
            metrics = {
                "logits": _mean_of_legal(logits),
                "y": y.mean(),
                "z": targets.mean_z,
                "entropy": entropy_of(log_policy).mean(),
                "y_entropy": entropy_of(log_y).mean(),
                "z_entropy": entropy_of(log_z).mean(),
                "pi_loss": policy_loss.mean(),
                "y_loss": y_loss.mean(),
                "z_loss": z_loss.mean(),
                "aux_kl_loss": aux_loss.mean(),
                "pi_hat": _mean_of_legal(targets.policy),
                "y_hat": targets.y.mean(),
                "z_hat": targets.z.mean(),
                "pi_hat_entropy": entropy_of(log_policy_target).mean(),
                "aux_policy_entropy": entropy_of(log_aux).mean(),
                "aux_target_entropy": entropy_of(log_next_policy).mean(),
            }
        return loss, metrics

    def value_loss(
        self, outputs: TakenOutputs, targets: DiscoTargets, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """Cross-entropy of q to its Retrace target [T, B]; passes no gradient to the rule."""
        returns = targets.returns
        q_loss = value_loss_from_target(outputs.action["q"], targets.value_target, self.reading)
        if not transitions.measured:
            return self.config.value_cost * q_loss, {}
        with torch.no_grad():
            metrics = {
                "q_target": returns.q_target.mean(),
                "agent_q_mean": targets.q_values.mean(),
                "q_loss": q_loss.mean(),
                "td": returns.q_td.mean(),
                "normalized_td": targets.normalized_q_td.mean(),
            }
        return self.config.value_cost * q_loss, metrics

    def _heads(self, transitions: Transitions) -> HeadSpec:
        return self.heads(transitions.behaviour_logits.shape[-1])


def _mean_of_legal(logits: Tensor) -> Tensor:
    """[]: the mean of logits [T, B, A], with zeros in place of masked ones."""
    return torch.where(unmasked(logits), logits, 0.0).mean()


def disco_heads(config: DiscoConfig, num_actions: int) -> HeadSpec:
    """Policy, two predictions, action values and a one-step policy prediction."""
    predictions = (config.sizes.predictions,)
    return HeadSpec(
        state={"logits": (num_actions,), "y": predictions},
        action={"z": predictions, "aux_pi": (num_actions,), "q": (config.num_bins,)},
        loss_only=frozenset({"aux_pi"}),
        value_range={"q": config.max_abs_value},
        squashed={"q": True},
    )


def check_params(params: dict[str, Tensor], sizes: MetaNetworkSizes) -> None:
    """Raise ValueError, naming the tensor, unless all are there in the right shapes."""
    shapes = sizes.shapes()
    for name, shape in shapes.items():
        if name not in params:
            raise ValueError(f"{name}: expected a tensor of shape {list(shape)}, found none")
        if tuple(params[name].shape) != shape:
            raise ValueError(f"{name}: expected {list(shape)}, found {list(params[name].shape)}")
    extra = sorted(set(params) - set(shapes))
    if extra:
        raise ValueError(f"{extra[0]}: expected no such tensor, found {len(extra)} extra")
