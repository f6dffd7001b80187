"""Actor-critic and policy gradient."""

import math
from dataclasses import replace

import pytest
import torch

from discorl.errors import DiscorlError
from discorl.life.config import LearningConfig
from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.rules.policy_gradient import PolicyGradient
from discorl.tree import flatten

f64 = torch.float64
PLAIN = ActorCritic(categorical_value=False, nonlinear_value=False, discount=0.5, vtrace_lambda=0.5)


def column(*numbers):
    """[T, 1]."""
    return torch.tensor(numbers, dtype=f64).unsqueeze(-1)


def transitions(rewards=(1, 2), actions=(0, 1), terminals=(False, False), **others):
    """One trajectory of two steps, by a policy that took either action half of the time."""
    return Transitions(
        actions=torch.tensor(actions).unsqueeze(-1),
        rewards=column(*rewards),
        terminals=torch.tensor(terminals).unsqueeze(-1),
        behaviour_logits=torch.zeros(2, 1, 2, dtype=f64),
        **others,
    )


def outputs(values=(4, 10, 20)):
    """A uniform policy over two actions, and scalar values."""
    logits = torch.zeros(3, 1, 2, dtype=f64)
    return AgentOutputs({"logits": logits, "v": column(*values).unsqueeze(-1)})


def run(rule, agent, steps, state=None):
    state = state or rule.initial_state(f64, "cpu")
    targets, state = rule.targets(agent, None, steps, state)
    loss, metrics = rule.loss(agent.taken(steps.actions), targets, steps)
    return targets, state, loss, metrics


def test_rules_answer_the_protocol():
    for rule in (ActorCritic(), PolicyGradient()):
        assert isinstance(rule, UpdateRule)
        assert rule.target_params_decay is None
    assert ActorCritic().heads(3).state == {"logits": (3,), "v": (601,)}
    assert PLAIN.heads(3).state == {"logits": (3,), "v": (1,)}
    assert PolicyGradient().heads(3).state == {"logits": (3,)}


def test_actor_critic_by_hand():
    targets, _, loss, metrics = run(PLAIN, outputs(), transitions())
    # On-policy: errors 2 + 10 - 10 = 2, then (1 + 5 - 4) + 0.5 * 0.5 * 2 = 2.5.
    torch.testing.assert_close(targets.td, column(2.5, 2))
    # Bootstraps 0.5 * 12 + 0.5 * 10 = 11, and 20.
    torch.testing.assert_close(targets.advantage, column(2.5, 2))
    expected = [
        math.log(2) * 2.5 + 0.5 * 0.5 * 2.5**2 - 0.2 * math.log(2),
        math.log(2) * 2 + 0.5 * 0.5 * 2**2 - 0.2 * math.log(2),
    ]
    torch.testing.assert_close(loss, column(*expected))
    assert metrics["entropy"].item() == pytest.approx(math.log(2))
    assert metrics["avg_value"].item() == pytest.approx(34 / 3)
    assert metrics["pg_advs"].item() == pytest.approx(2.25)


def test_actor_critic_stops_at_a_terminal():
    targets, *_ = run(PLAIN, outputs(), transitions(terminals=(True, False)))
    torch.testing.assert_close(targets.td[0], torch.tensor([1.0 - 4], dtype=f64))
    torch.testing.assert_close(targets.advantage[0], torch.tensor([1.0 - 4], dtype=f64))


def test_actor_critic_clips_importance_weights():
    agent = outputs()
    agent.logits[..., 1] = math.log(3)  # now 1/4 and 3/4, against halves
    targets, *_ = run(PLAIN, agent, transitions())
    # Action 0 has rho 1/2; action 1 has 3/2, clipped to one.
    errors = (0.5 * (1 + 5 - 4) + 0.5 * 0.5 * 0.5 * 2, 2)
    torch.testing.assert_close(targets.td, column(*errors))


def gradient_in_logits(rule, reward):
    agent = outputs(values=(0, 0, 0))
    agent.logits.requires_grad_()
    _, _, loss, _ = run(rule, agent, transitions(rewards=(0, reward)))
    (gradient,) = torch.autograd.grad(loss.sum(), agent.logits)
    return gradient


def test_actor_critic_makes_good_actions_likelier():
    # Descent raises the logit of the taken action (1) after a good reward, lowers it after bad.
    assert gradient_in_logits(PLAIN, reward=1.0)[1, 0, 1] < 0
    assert gradient_in_logits(PLAIN, reward=-1.0)[1, 0, 1] > 0
    assert not gradient_in_logits(PLAIN, reward=1.0)[2].any()


def test_actor_critic_moves_values_to_their_targets():
    agent = outputs()
    agent.state["v"].requires_grad_()
    _, _, loss, _ = run(PLAIN, agent, transitions())
    (gradient,) = torch.autograd.grad(loss.sum(), agent.state["v"])
    torch.testing.assert_close(gradient.squeeze(-1), column(-0.5 * 2.5, -0.5 * 2, 0))


def test_actor_critic_entropy_bonus_pulls_to_uniform():
    agent = outputs()
    agent.logits[..., 0] = 1.0
    agent.logits.requires_grad_()
    _, _, loss, _ = run(replace(PLAIN, pg_cost=0.0), agent, transitions())
    (gradient,) = torch.autograd.grad(loss.sum(), agent.logits)
    assert (gradient[:-1, :, 0] > 0).all()
    assert (gradient[:-1, :, 1] < 0).all()


def test_actor_critic_entropy_cost_falls_with_age():
    rule = replace(
        PLAIN, entropy_cost=0.5, final_entropy_cost=0.1, entropy_hold=0.25, entropy_fall=0.5
    ).for_run(8)
    costs, state = [], None
    for _ in range(8):
        targets, state, loss, _ = run(rule, outputs(), transitions(), state)
        costs.append(targets.entropy_cost.item())
        plain = run(replace(PLAIN, entropy_cost=costs[-1]), outputs(), transitions())[2]
        torch.testing.assert_close(loss, plain)
    assert costs == pytest.approx([0.5, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1])
    assert state.updates.item() == 8


def test_actor_critic_must_know_the_run_for_a_falling_cost():
    falling = replace(PLAIN, entropy_fall=0.5)
    with pytest.raises(DiscorlError, match="set run_updates"):
        falling.initial_state(f64, "cpu")
    assert PLAIN.for_run(8) == PLAIN
    # A run says it by itself, and a shorter one falls sooner.
    learning = LearningConfig()
    assert [learning.learner(None, falling, n).rule.run_updates for n in (8, 80)] == [8, 80]


def test_actor_critic_counts_updates_only_for_a_falling_cost():
    """So that states kept before there was such a thing still fit."""
    assert PLAIN.initial_state(f64, "cpu").updates is None
    assert set(flatten(PLAIN.initial_state(f64, "cpu"))) == {
        f"{average}/{part}"
        for average in ("advantage", "td")
        for part in ("first", "second", "decay_product")
    }


def test_actor_critic_normalizes_advantages_if_asked():
    raw, raw_state, *_ = run(PLAIN, outputs(), transitions())
    rule = replace(PLAIN, normalize_advantage=True)
    targets, state, *_ = run(rule, outputs(), transitions())
    torch.testing.assert_close(targets.raw_advantage, raw.advantage)
    # The mean of 2.5 and 2 is 2.25, their deviation 0.25.
    torch.testing.assert_close(targets.advantage, column(1, -1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(targets.td, raw.td)
    torch.testing.assert_close(state.advantage.first, raw_state.advantage.first)


def test_actor_critic_scales_td_errors_if_asked():
    targets, *_ = run(replace(PLAIN, normalize_td=True), outputs(), transitions())
    torch.testing.assert_close(targets.td, column(10, 8), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(targets.advantage, column(2.5, 2))


def test_actor_critic_averages_are_kept_either_way():
    _, state, *_ = run(PLAIN, outputs(), transitions())
    assert state.advantage.first.item() == pytest.approx(0.01 * 2.25)
    assert state.td.second.item() == pytest.approx(0.01 * (2.5**2 + 2**2) / 2)
    _, later, *_ = run(PLAIN, outputs(), transitions(), state)
    assert later.td.decay_product.item() == pytest.approx(0.99**2)


def test_actor_critic_refuses_to_scale_a_categorical_value():
    with pytest.raises(ValueError, match="normalize_td: only with categorical_value=False"):
        ActorCritic(normalize_td=True)


def test_published_actor_critic_has_a_categorical_value():
    rule = ActorCritic()
    generator = torch.Generator().manual_seed(0)
    agent = AgentOutputs(
        {
            "logits": torch.zeros(3, 1, 2, dtype=f64),
            "v": torch.randn(3, 1, 601, dtype=f64, generator=generator).requires_grad_(),
        }
    )
    targets, _, loss, metrics = run(rule, agent, transitions())
    assert not targets.td.requires_grad
    assert loss.shape == (2, 1)
    assert metrics["value_loss"] > 0
    (gradient,) = torch.autograd.grad(loss.sum(), agent.state["v"])
    assert gradient[:-1].any()
    assert not gradient[-1].any()


def test_policy_gradient_by_hand():
    steps = transitions(advantages=column(3, -1))
    targets, state, loss, metrics = run(PolicyGradient(), outputs(), steps)
    assert state is None
    torch.testing.assert_close(targets, column(3, -1))
    torch.testing.assert_close(loss, math.log(2) * column(3 - 0.01, -1 - 0.01))
    assert metrics["pg_advs"].item() == pytest.approx(1)
    assert metrics["entropy"].item() == pytest.approx(math.log(2))


def test_policy_gradient_follows_the_advantage():
    agent = outputs()
    agent.logits.requires_grad_()
    advantages = column(3, -1).requires_grad_()
    _, _, loss, _ = run(PolicyGradient(), agent, transitions(advantages=advantages))
    (gradient,) = torch.autograd.grad(loss.sum(), agent.logits)
    # -advantage (onehot - 1/2); at the uniform policy the entropy has no slope.
    expected = torch.tensor([[[-1.5, 1.5]], [[-0.5, 0.5]], [[0.0, 0.0]]], dtype=f64)
    torch.testing.assert_close(gradient, expected)
    assert advantages.grad is None


def test_policy_gradient_needs_advantages():
    with pytest.raises(ValueError, match=r"advantages: .*set Transitions\.advantages"):
        PolicyGradient().targets(outputs(), None, transitions(), None)
    with pytest.raises(ValueError, match=r"advantages: expected \[2, 1\], got \[3, 1\]"):
        transitions(advantages=column(1, 2, 3))
