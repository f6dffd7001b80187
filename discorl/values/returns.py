"""Off-policy returns: V-trace (Espeholt et al., 2018) and Retrace (Munos et al., 2016).

Indices: T transitions need values of T + 1 states. `discount_t` is the factor on the value of
the state *after* transition t, zero where that transition ended the episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discorl.shapes import check_shape
from discorl.values.distributions import log_prob, lookup


@dataclass(frozen=True)
class VTraceReturns:
    """What V-trace computes, each [T, B]."""

    advantage: Tensor
    value_target: Tensor
    td: Tensor
    """`value_target - v`."""


@dataclass(frozen=True)
class RetraceReturns:
    """What Retrace computes for action values; [T, B] unless said otherwise."""

    q_target: Tensor
    advantage: Tensor
    """`q_target - target_v`."""
    q_td: Tensor
    """`q_target - q(a)`."""
    qv_advantage: Tensor
    """`target_q - target_v`, all states and actions [T + 1, B, A]."""


def importance_weights(pi_logits: Tensor, mu_logits: Tensor, actions: Tensor) -> Tensor:
    """`pi(a) / mu(a)` without gradient: logits [T, B, A] twice, actions [T, B] -> [T, B]."""
    check_shape("mu_logits", mu_logits, tuple(pi_logits.shape))
    check_shape("actions", actions, tuple(pi_logits.shape[:-1]))
    rho = torch.exp(log_prob(pi_logits, actions) - log_prob(mu_logits, actions))
    return rho.detach()


def vtrace(
    rewards: Tensor,
    discounts: Tensor,
    rho: Tensor,
    values: Tensor,
    target_values: Tensor,
    lambda_: float | Tensor,
) -> VTraceReturns:
    """V-trace with all importance weights clipped at one.

    With `c_t = min(rho_t, 1)`, discounts gamma_t and the recurrence run backwards from `e_T = 0`:

        delta_t  = c_t (r_t + gamma_t v_{t+1} - v_t)
        e_t      = delta_t + gamma_t lambda c_t e_{t+1}
        target_t = v_t + e_t
        b_t      = lambda target_t + (1 - lambda) v_t,   b_T = v_T
        adv_t    = c_t (r_t + gamma_t b_{t+1} - v_t)

    docs/symbols.md has the names.

    Args:
      rewards, discounts, rho: [T, B].
      values: [T + 1, B], read for `td` only.
      target_values: [T + 1, B], bootstrapped from; pass `values` if there is no target net.
      lambda_: trace decay; or one for each transition [T, B], for what the next one learned.
    """
    check_returns(rewards, discounts, rho, target_values)
    check_shape("values", values, tuple(target_values.shape))
    v, v_next = target_values[:-1], target_values[1:]
    clipped_rho = rho.clamp(max=1)
    delta = clipped_rho * (rewards + discounts * v_next - v)
    trace = discounts * lambda_ * clipped_rho
    value_target = v + discounted_sum(delta, trace[:-1])
    decay = _before_last(lambda_)
    bootstrap = torch.cat([decay * value_target[1:] + (1 - decay) * v[1:], v_next[-1:]])
    return VTraceReturns(
        advantage=clipped_rho * (rewards + discounts * bootstrap - v),
        value_target=value_target,
        td=value_target - values[:-1],
    )


def retrace(
    rewards: Tensor,
    discounts: Tensor,
    rho: Tensor,
    actions: Tensor,
    target_values: Tensor,
    q_values: Tensor,
    target_q_values: Tensor,
    lambda_: float | Tensor,
) -> RetraceReturns:
    """Retrace targets for the actions taken.

    With `c_t = lambda min(rho_t, 1)` and everything from the target network but rho and pi:

        target_{T-1} = r_{T-1} + gamma_{T-1} v_T
        target_t     = r_t + gamma_t (v_{t+1} + c_{t+1} (target_{t+1} - q_{t+1}(a_{t+1})))
        adv_t        = target_t - v_t

    docs/symbols.md has the names.

    Args:
      rewards, discounts, rho, actions: [T, B].
      target_values: [T + 1, B], the expectation of `target_q_values` under the policy.
      q_values, target_q_values: [T + 1, B, A].
      lambda_: trace decay; zero gives one-step targets. Or one for each transition [T, B], for
        what the next one learned.
    """
    check_returns(rewards, discounts, rho, target_values)
    check_shape("actions", actions, tuple(rewards.shape))
    check_shape("q_values", q_values, (*target_values.shape, q_values.shape[-1]))
    check_shape("target_q_values", target_q_values, tuple(q_values.shape))
    trace = discounts[:-1] * _before_last(lambda_) * rho[1:].clamp(max=1)
    target_q_a = lookup(target_q_values[:-1], actions)
    # In terms of target_t - q_t(a_t), the recurrence is a discounted sum of one-step errors.
    one_step = rewards + discounts * target_values[1:] - target_q_a
    q_target = (target_q_a + discounted_sum(one_step, trace)).detach()
    return RetraceReturns(
        q_target=q_target,
        advantage=q_target - target_values[:-1],
        q_td=q_target - lookup(q_values[:-1], actions),
        qv_advantage=target_q_values - target_values.unsqueeze(-1),
    )


def discounted_sum(x: Tensor, decay: Tensor) -> Tensor:
    """`s_t = x_t + decay_t s_{t+1}`, from the last on: x [T, B], decay [T - 1, B] -> [T, B]."""
    total, *earlier = reversed(x.unbind())
    totals = [total]
    for own, kept in zip(earlier, reversed(decay.unbind()), strict=True):
        total = torch.addcmul(own, kept, total)
        totals.append(total)
    return torch.stack(totals[::-1])


def _before_last(lambda_: float | Tensor) -> float | Tensor:
    return lambda_[:-1] if isinstance(lambda_, Tensor) else lambda_


def check_returns(rewards: Tensor, discounts: Tensor, rho: Tensor, target_values: Tensor) -> None:
    """Raise ValueError, naming the argument, unless the shapes are [T, B] and [T + 1, B]."""
    if rewards.dim() != 2 or len(rewards) == 0:
        raise ValueError(f"rewards: expected [T, B] with T >= 1, got {list(rewards.shape)}")
    steps, batch = rewards.shape
    check_shape("discounts", discounts, (steps, batch))
    check_shape("rho", rho, (steps, batch))
    check_shape("target_values", target_values, (steps + 1, batch))
