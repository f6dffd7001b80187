"""One learner update: against goldens, differentiable or not, and never off the device."""

from dataclasses import replace

import goldens
import pytest
import torch
from torch import Tensor

from discorl.agents import Network, NetworkConfig
from discorl.learner import Learner
from discorl.optim import ClippedAdam, Schedule
from discorl.rollout import Rollout
from discorl.rules.actor_critic import ActorCritic
from discorl.tree import flatten, tree_map
from discorl.verify import verify_files

LARGE = sorted(goldens.LARGE.glob("learner/*.npz"))
ACTOR_CRITIC = ActorCritic(num_bins=21, max_abs_value=10.0)
SMALL = NetworkConfig(torso=(8, 6), model_size=5, head_hidden=4, head_std=0.3)
SHAPE = (4, 3, 1)


def make(rule, dtype=torch.float64, **options):
    network = Network.mlp(SHAPE, rule.heads(3), SMALL)
    learner = Learner(network, rule, ClippedAdam(Schedule(0.01), **options))
    return learner, learner.init(torch.Generator().manual_seed(0), dtype)


def batch(seed=0, dtype=torch.float64, length=5, trajectories=4):
    generator = torch.Generator().manual_seed(seed)
    prefix = (length, trajectories)
    return Rollout(
        observations=torch.randint(0, 2, (*prefix, *SHAPE), generator=generator).to(torch.uint8),
        actions=torch.randint(0, 3, prefix, generator=generator),
        rewards=torch.randn(prefix, generator=generator, dtype=dtype),
        discounts=(torch.rand(prefix, generator=generator) > 0.3).to(dtype),
        logits=torch.randn(*prefix, 3, generator=generator, dtype=dtype),
    )


@pytest.fixture(params=["disco", "actor_critic"])
def rule(request, tiny_rule):
    return ACTOR_CRITIC if request.param == "actor_critic" else tiny_rule.to(torch.float64)


def run(learner, state, steps=3, **options):
    for seed in range(steps):
        state, metrics = learner.step(state, batch(seed), **options)
    return state, metrics


def require_gradient(state):
    return tree_map(lambda t: t.clone().requires_grad_(t.is_floating_point()), state)


def check_golden(path, weights=None):
    report = verify_files([path], weights).files[0]
    assert not report.problem
    assert report.kind == "learner"
    assert report.compared() > 20
    assert report.precisions["float64"].max_error() < 1e-8
    assert report.passed, report.failures()


def test_whole_updates_equal_the_published_ones():
    check_golden(goldens.DATA / "learner_catch5x5.npz")


@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.stem)
def test_full_size_updates_equal_the_published_ones(path, request):
    weights = request.getfixturevalue("disco103_path") if "disco" in path.stem else None
    check_golden(path, weights)


def test_the_full_size_goldens_are_all_here():
    if not LARGE:
        pytest.skip(f"the full-size goldens are not beside the project: {goldens.LARGE}")
    assert len(LARGE) == 3


def test_differentiable_or_not_the_state_is_the_same(rule):
    learner, state = make(rule)
    plain, plain_metrics = run(learner, state)
    kept, kept_metrics = run(learner, require_gradient(state), differentiable=True)
    expected, found = flatten(plain), flatten(kept)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].detach(), tensor, rtol=1e-9, atol=1e-12)
    assert any(t.requires_grad for t in found.values())
    for name, value in plain_metrics.items():
        torch.testing.assert_close(kept_metrics[name].detach(), value, rtol=1e-9, atol=1e-12)


def test_a_differentiable_step_takes_a_newborn_agent(rule):
    learner, state = make(rule)
    plain, _ = learner.step(state, batch())
    kept, _ = learner.step(state, batch(), differentiable=True)
    for name, p in plain.params.items():
        torch.testing.assert_close(kept.params[name].detach(), p, rtol=1e-6, atol=1e-6)


def test_without_metrics_the_state_is_the_same(rule):
    learner, start = make(rule)
    plain, metrics = run(learner, start)
    unmeasured, nothing = run(learner, start, measured=False)
    assert metrics
    assert nothing == {}
    for name, value in flatten(plain).items():
        assert torch.equal(value, flatten(unmeasured)[name]), name


def test_a_plain_step_keeps_no_graph(rule):
    learner, state = make(rule)
    new, metrics = run(learner, state, steps=2)
    for name, tensor in (flatten(new) | metrics).items():
        assert not tensor.requires_grad, name
        assert tensor.grad_fn is None, name
    # The new parameters are plain leaves: a user may differentiate with respect to them.
    params = {name: p.requires_grad_() for name, p in new.params.items()}
    learner.agent.policy(params, batch().observations).square().sum().backward()
    assert params["head.logits.weight"].grad.abs().max() > 0
    # A last step on leaves that require gradient leaks none either.
    last, _ = learner.step(new, batch(9))
    assert not any(t.requires_grad for t in flatten(last).values())


def test_a_step_leaves_its_inputs_alone(rule):
    learner, state = make(rule)
    before = {name: t.clone() for name, t in flatten(state).items()}
    learner.step(state, batch())
    for name, t in flatten(state).items():
        assert torch.equal(t, before[name]), name
        assert not t.requires_grad


def test_a_differentiable_step_reaches_the_rule(tiny_rule):
    rule = tiny_rule.to(torch.float64)
    learner, state = make(rule)
    params = {name: p.clone().requires_grad_() for name, p in rule.params.items()}
    learner = Learner(learner.agent, rule.with_params(params), learner.optimiser)
    new, _ = run(learner, require_gradient(state), steps=2, differentiable=True)
    loss = learner.agent.policy(new.params, batch(5).observations).square().sum()
    grads = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
    reached = [g is not None and bool(g.abs().max() > 0) for g in grads]
    assert sum(reached) > len(reached) // 2


def test_an_update_moves_the_parameters_and_the_memory(rule):
    learner, state = make(rule)
    new, metrics = learner.step(state, batch())
    assert new.optimiser.count.item() == 1
    moved = [(new.params[n] - p).abs().max().item() for n, p in state.params.items()]
    assert max(moved) > 0.005
    assert max(moved) <= 0.01 + 1e-12  # The clipped step times the learning rate.
    for name in ("total_loss", "global_gradient_norm", "global_update_norm"):
        assert metrics[name].shape == ()
        assert torch.isfinite(metrics[name])


def test_target_parameters_follow_the_ones_before_the_update(tiny_rule):
    learner, state = make(tiny_rule.to(torch.float64))
    new, _ = run(learner, state, steps=1)
    last, _ = learner.step(new, batch(1))
    decay = tiny_rule.config.target_params_decay
    for name, target in last.target_params.items():
        torch.testing.assert_close(new.target_params[name], state.params[name])
        torch.testing.assert_close(
            target, decay * new.target_params[name] + (1 - decay) * new.params[name]
        )
    assert make(ACTOR_CRITIC)[1].target_params is None


def test_masked_steps_do_not_count_in_the_loss():
    """With every step but one masked, the rest of the batch may say what it likes."""
    learner, state = make(ActorCritic(categorical_value=False, nonlinear_value=False))
    rollout = batch(length=2)
    discounts = torch.ones_like(rollout.discounts)
    discounts[0, 1:] = 0
    rewards = torch.zeros_like(rollout.rewards)
    rewards[1, 0] = 1.0

    def step(others):
        changed = rewards.clone()
        changed[1, 1:] = others
        new, _ = learner.step(
            state,
            Rollout(rollout.observations, rollout.actions, changed, discounts, rollout.logits),
        )
        return new.params

    quiet, loud = step(0.0), step(50.0)
    for name, p in quiet.items():
        assert torch.equal(p, loud[name]), name


def test_first_steps_count_if_asked_for():
    learner, state = make(ACTOR_CRITIC)
    rollout = replace(batch(length=2), discounts=torch.zeros(2, 4, dtype=torch.float64))
    plain = learner.update(state, rollout)
    assert plain.metrics["total_loss"] == 0
    assert not any(grad.any() for grad in plain.grads.values())
    eager = replace(learner, learn_first_steps=True).update(state, rollout)
    assert eager.metrics["total_loss"] != 0
    # An episode's first step counts as any other does.
    counted = learner.update(
        state, replace(rollout, discounts=torch.tensor([[1.0] * 4, [0.0] * 4]))
    )
    for name, grad in eager.grads.items():
        torch.testing.assert_close(grad, counted.grads[name])


@pytest.mark.parametrize("first_steps", [False, True])
def test_what_is_no_transition_does_not_count(first_steps):
    """What lies between an episode's last observation and the next one's first."""
    learner, state = make(ACTOR_CRITIC)
    learner = replace(learner, learn_first_steps=first_steps)
    plain = batch()
    final, discounts = torch.zeros(5, 4, dtype=torch.bool), torch.ones_like(plain.discounts)
    final[2, :3] = True
    discounts[3, :2] = 0
    discounts[2, 0] = 0
    rollout = replace(plain, final=final, discounts=discounts)

    def grads(**changes):
        return learner.update(state, replace(rollout, **changes)).grads

    rewards, actions, logits = plain.rewards.clone(), plain.actions.clone(), plain.logits.clone()
    rewards[3, :3] += 100
    actions[2, :3] = (actions[2, :3] + 1) % 3
    logits[2, :3] = logits[2, :3].flip(-1)
    expected = grads()
    for name, grad in grads(rewards=rewards, actions=actions, logits=logits).items():
        torch.testing.assert_close(grad, expected[name])
    # In the trajectory without a cut they do matter.
    rewards[3, 3] += 100
    assert any(not torch.allclose(g, expected[n]) for n, g in grads(rewards=rewards).items())


def test_nothing_is_read_back_from_the_device(rule, monkeypatch):
    learner, state = make(rule, weight_decay=0.1)
    learner = Learner(learner.agent, rule, ClippedAdam(Schedule(0.01, fall_steps=10)))
    rollout = batch()

    def refuse(*_args, **_kwargs):
        raise AssertionError("the learner step read a value back to the host")

    with monkeypatch.context() as patch:
        for name in ("item", "numpy", "tolist", "cpu", "nonzero"):
            patch.setattr(Tensor, name, refuse)
        for name in ("__bool__", "__float__", "__int__", "__index__", "__array__"):
            patch.setattr(Tensor, name, refuse)
        new, metrics = learner.step(state, rollout)
        new, metrics = learner.step(new, rollout)
    assert new.optimiser.count.item() == 2
    assert torch.isfinite(metrics["total_loss"])


def test_the_float_type_follows_the_state(rule, tiny_rule):
    for dtype in (torch.float32, torch.float64):
        typed = tiny_rule.to(dtype) if rule is not ACTOR_CRITIC else rule
        learner, state = make(typed, dtype)
        new, metrics = learner.step(state, batch(dtype=dtype))
        for name, tensor in (flatten(new) | metrics).items():
            if name != "optimiser/count":
                assert tensor.dtype == dtype, name


def test_float32_is_close_to_float64(rule, tiny_rule):
    single_rule = tiny_rule if rule is not ACTOR_CRITIC else rule
    learner, state = make(rule)
    precise, metrics = learner.step(state, batch())
    single_learner, _ = make(single_rule)
    rough = tree_map(lambda t: t.float() if t.is_floating_point() else t, state)
    _, rough_metrics = single_learner.step(rough, batch().to(torch.float32))
    for name in ("total_loss", "global_gradient_norm"):
        torch.testing.assert_close(
            rough_metrics[name].double(), metrics[name], rtol=1e-3, atol=1e-4
        )
    assert precise.params


def test_init_from_keeps_the_given_parameters(rule):
    learner, state = make(rule)
    again = learner.init_from(state.params)
    assert all(torch.equal(again.params[n], p) for n, p in state.params.items())
    if again.target_params is not None:
        assert all(torch.equal(again.target_params[n], p) for n, p in state.params.items())
    assert again.optimiser.count.item() == 0
