"""Policy gradient with an entropy bonus; the advantages come from outside."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Transitions
from discorl.rules.base import HandWritten, Metrics
from discorl.settings import NotNegative, check_fields
from discorl.values.distributions import entropy, log_prob


@dataclass(frozen=True)
class PolicyGradient(HandWritten):
    """`-log pi(a) advantage - entropy_cost entropy(pi)` (Williams, 1992).

    Set `Transitions.advantages`: this rule has no critic of its own.
    """

    pg_cost: NotNegative = 1.0
    """Weight of the policy gradient."""
    entropy_cost: NotNegative = 0.01
    """Weight of the entropy bonus."""

    name = "policy_gradient"
    needs_advantages = True

    def __post_init__(self) -> None:
        check_fields(self)

    def heads(self, num_actions: int) -> HeadSpec:
        """A policy and nothing else."""
        return HeadSpec(state={"logits": (num_actions,)})

    def targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs | None,
        transitions: Transitions,
        state: None,
        differentiable: bool = False,
    ) -> tuple[Tensor, None]:
        """The advantages [T, B] that came with the transitions."""
        steps, batch = transitions.rewards.shape
        outputs.check(self.heads(transitions.behaviour_logits.shape[-1]), steps + 1, batch)
        if transitions.advantages is None:
            raise ValueError(
                "advantages: policy_gradient estimates none itself; set Transitions.advantages "
                "to a [T, B] tensor, or use the actor_critic rule"
            )
        return transitions.advantages.detach(), None

    def loss(
        self, outputs: TakenOutputs, targets: Tensor, transitions: Transitions
    ) -> tuple[Tensor, Metrics]:
        """Per-step loss [T, B] and metrics."""
        logits = outputs.logits[:-1]
        policy_entropy = entropy(logits)
        pg_loss = -log_prob(logits, transitions.actions) * targets
        loss = self.pg_cost * pg_loss - self.entropy_cost * policy_entropy
        return loss, {"entropy": policy_entropy.detach().mean(), "pg_advs": targets.mean()}
