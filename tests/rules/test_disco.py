"""The discovered rule: goldens, symmetries, resets, gradients, initial parameters."""

from dataclasses import fields, replace

import goldens
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_rules import SMALL

from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoConfig, DiscoRule, DiscoState
from discorl.rules.meta_network import (
    MetaInputs,
    MetaNetworkSizes,
    MetaRNNState,
    apply_meta_network,
    initial_params,
)
from discorl.values import MovingAverage

f64 = torch.float64
few = settings(max_examples=15, deadline=None)
sizes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(2, 5), st.integers(0, 10**6))
CONFIG = DiscoConfig(sizes=SMALL, num_bins=11, max_abs_value=5.0)


class Normal:
    """Random numbers of a seed, in float64."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape, scale=1.0):
        return scale * torch.randn(shape, generator=self.generator, dtype=f64)

    def integers(self, high, *shape):
        return torch.randint(high, shape, generator=self.generator)


def random_rule(seed=0):
    """A small rule; no bias is zero, so that none of its parts is silent."""
    normal = Normal(seed)
    params = {name: normal(*shape, scale=0.5) for name, shape in SMALL.shapes().items()}
    return DiscoRule(CONFIG, params)


def random_heads(normal, steps, batch, actions):
    return {
        "logits": normal(steps + 1, batch, actions),
        "y": normal(steps + 1, batch, SMALL.predictions),
        "z": normal(steps + 1, batch, actions, SMALL.predictions),
        "aux_pi": normal(steps + 1, batch, actions, actions),
        "q": normal(steps + 1, batch, actions, CONFIG.num_bins),
    }


def random_case(steps, batch, actions, seed=0):
    """The arguments of `DiscoRule.targets`, midlife."""
    normal = Normal(seed)
    spec = random_rule().heads(actions)
    return {
        "outputs": AgentOutputs.from_dict(random_heads(normal, steps, batch, actions), spec),
        "target_outputs": AgentOutputs.from_dict(random_heads(normal, steps, batch, actions), spec),
        "transitions": Transitions(
            actions=normal.integers(actions, steps, batch),
            rewards=normal(steps, batch),
            terminals=normal(steps, batch) > 1,
            behaviour_logits=normal(steps, batch, actions),
        ),
        "state": DiscoState(
            rnn=MetaRNNState(normal(SMALL.meta_hidden), normal(SMALL.meta_hidden)),
            advantage=MovingAverage(*torch.tensor([0.3, 1.7, 0.9], dtype=f64)),
            td=MovingAverage(*torch.tensor([-0.2, 2.1, 0.9], dtype=f64)),
        ),
    }


def targets_and_loss(rule, case):
    targets, state = rule.targets(**case)
    transitions = case["transitions"]
    taken = case["outputs"].taken(transitions.actions)
    loss, _ = rule.loss(taken, targets, transitions)
    return targets, state, loss


def assert_same_state(first, second):
    for ours, theirs in (
        (first.rnn.hidden, second.rnn.hidden),
        (first.rnn.cell, second.rnn.cell),
        *(
            (getattr(first.advantage, f.name), getattr(second.advantage, f.name))
            for f in fields(MovingAverage)
        ),
        *((getattr(first.td, f.name), getattr(second.td, f.name)) for f in fields(MovingAverage)),
    ):
        torch.testing.assert_close(ours, theirs)


# --- goldens


def golden_results(call):
    targets, state = call.rule.targets(
        call.outputs, call.target_outputs, call.transitions, call.state
    )
    taken = call.outputs.taken(call.transitions.actions)
    prediction_loss, metrics = call.rule.prediction_loss(taken, targets, call.transitions)
    value_loss, value_metrics = call.rule.value_loss(taken, targets, call.transitions)
    total, _ = call.rule.loss(taken, targets, call.transitions)
    torch.testing.assert_close(total, prediction_loss + value_loss)
    gradients = torch.autograd.grad(total.sum(), list(call.heads.values()))
    averages = {"new/adv": state.advantage, "new/td": state.td}
    return {
        "out/pi": targets.policy,
        "out/y": targets.y,
        "out/z": targets.z,
        "out/meta_input_emb": targets.meta_input,
        "out/q_target": targets.returns.q_target,
        "out/adv": targets.returns.advantage,
        "out/normalized_adv": targets.normalized_advantage,
        "out/qv_adv": targets.returns.qv_advantage,
        "out/normalized_qv_adv": targets.normalized_qv_advantage,
        "out/q_value": targets.q_values,
        "out/q_td": targets.returns.q_td,
        "out/normalized_q_td": targets.normalized_q_td,
        "new/h": state.rnn.hidden,
        "new/c": state.rnn.cell,
        **{k: torch.stack([a.first, a.second, a.decay_product]) for k, a in averages.items()},
        "loss/meta_per_step": prediction_loss,
        "loss/value_per_step": value_loss,
        **{f"log/{name}": value for name, value in (metrics | value_metrics).items()},
        **{f"grad/{n}": g for n, g in zip(call.heads, gradients, strict=True)},
    }


@pytest.mark.parametrize("name", ["rule_T1_B2_A2.npz", "rule_T6_B3_A4.npz"])
def test_goldens(name):
    call = goldens.load_rule_call(goldens.DATA / name)
    results = golden_results(call)
    expected = {
        key: value
        for key, value in call.golden.items()
        if key.startswith(("out/", "new/", "loss/", "log/", "grad/"))
    }
    assert len(expected) == 42
    for key, golden in expected.items():
        largest = golden.abs().max().item() or 1.0
        assert (results[key] - golden).abs().max() <= 1e-9 * largest, key


# --- symmetries


def permute_actions(case, order):
    """Rename the actions: new action i is old action order[i]."""
    new_name = torch.argsort(order)
    transitions = case["transitions"]

    def heads(outputs):
        action = {name: x[:, :, order] for name, x in outputs.action.items()}
        action["aux_pi"] = action["aux_pi"][..., order]
        return AgentOutputs(outputs.state | {"logits": outputs.logits[..., order]}, action)

    return case | {
        "outputs": heads(case["outputs"]),
        "target_outputs": heads(case["target_outputs"]),
        "transitions": replace(
            transitions,
            actions=new_name[transitions.actions],
            behaviour_logits=transitions.behaviour_logits[..., order],
        ),
    }


@few
@given(sizes)
def test_actions_may_be_renamed(size):
    rule, case = random_rule(), random_case(*size)
    order = torch.randperm(size[2], generator=torch.Generator().manual_seed(size[3]))
    targets, state, loss = targets_and_loss(rule, case)
    permuted, new_state, new_loss = targets_and_loss(rule, permute_actions(case, order))
    for name in ("policy", "normalized_qv_advantage", "q_values"):
        torch.testing.assert_close(getattr(permuted, name), getattr(targets, name)[..., order])
    for name in ("y", "z", "meta_input", "normalized_advantage", "normalized_q_td"):
        torch.testing.assert_close(getattr(permuted, name), getattr(targets, name))
    torch.testing.assert_close(permuted.returns.q_target, targets.returns.q_target)
    torch.testing.assert_close(new_loss, loss)
    assert_same_state(new_state, state)


@few
@given(sizes)
def test_trajectories_may_be_reordered(size):
    rule, case = random_rule(), random_case(*size)
    order = torch.randperm(size[1], generator=torch.Generator().manual_seed(size[3]))

    def heads(outputs):
        return AgentOutputs(
            {name: x[:, order] for name, x in outputs.state.items()},
            {name: x[:, order] for name, x in outputs.action.items()},
        )

    names = ("actions", "rewards", "terminals", "behaviour_logits")
    moved = {name: getattr(case["transitions"], name)[:, order] for name in names}
    reordered = case | {
        "outputs": heads(case["outputs"]),
        "target_outputs": heads(case["target_outputs"]),
        "transitions": Transitions(**moved),
    }
    targets, state, loss = targets_and_loss(rule, case)
    new_targets, new_state, new_loss = targets_and_loss(rule, reordered)
    for name in ("policy", "y", "z", "meta_input", "normalized_qv_advantage", "q_values"):
        torch.testing.assert_close(getattr(new_targets, name), getattr(targets, name)[:, order])
    torch.testing.assert_close(new_loss, loss[:, order])
    assert_same_state(new_state, state)


# --- shapes


@pytest.mark.parametrize("size", [(1, 1, 2), (1, 3, 18), (5, 1, 18), (4, 2, 2)])
def test_any_number_of_steps_trajectories_and_actions(size):
    steps, batch, actions = size
    targets, state, loss = targets_and_loss(random_rule(), random_case(*size))
    assert targets.policy.shape == (steps, batch, actions)
    assert targets.y.shape == targets.z.shape == (steps, batch, SMALL.predictions)
    assert targets.meta_input.shape == (steps, batch, 1)
    assert targets.normalized_qv_advantage.shape == (steps + 1, batch, actions)
    assert loss.shape == (steps, batch)
    assert state.rnn.hidden.shape == (SMALL.meta_hidden,)
    assert torch.isfinite(loss).all()


def test_rule_answers_the_protocol_and_starts_with_no_memory():
    rule = DiscoRule.random(CONFIG, seed=3)
    assert isinstance(rule, UpdateRule)
    assert rule.target_params_decay == 0.9
    state = rule.initial_state(f64, "cpu")
    assert state.rnn.hidden.dtype == f64
    assert not state.rnn.hidden.any()
    assert not state.rnn.cell.any()
    assert state.advantage.decay_product == 1


def test_type_follows_the_inputs():
    case = random_case(3, 2, 4)
    rule = random_rule().to(torch.float32)

    def single(outputs):
        return AgentOutputs(
            {k: v.float() for k, v in outputs.state.items()},
            {k: v.float() for k, v in outputs.action.items()},
        )

    transitions = replace(
        case["transitions"],
        rewards=case["transitions"].rewards.float(),
        behaviour_logits=case["transitions"].behaviour_logits.float(),
    )
    targets, state, loss = targets_and_loss(
        rule,
        {
            "outputs": single(case["outputs"]),
            "target_outputs": single(case["target_outputs"]),
            "transitions": transitions,
            "state": rule.initial_state(torch.float32, "cpu"),
        },
    )
    tensors = (targets.policy, targets.y, targets.z, loss, state.rnn.hidden, state.td.first)
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


@pytest.mark.parametrize("head", ["logits", "y", "z", "aux_pi", "q"])
def test_missing_head_is_named(head):
    rule, case = random_rule(), random_case(2, 2, 3)
    heads = case["outputs"].state | case["outputs"].action
    del heads[head]
    with pytest.raises(ValueError, match=rf"lacks the heads \['{head}'\]"):
        AgentOutputs.from_dict(heads, rule.heads(3))


@pytest.mark.parametrize("which", ["outputs", "target_outputs"])
@pytest.mark.parametrize("head", ["logits", "y", "z", "q"])
def test_head_of_the_wrong_shape_is_named(head, which):
    rule, case = random_rule(), random_case(2, 2, 3)
    outputs = case[which]
    part = outputs.state if head in outputs.state else outputs.action
    # The policy head's width tells how many actions there are: shorten it in time instead.
    part[head] = part[head][:-1] if head == "logits" else part[head][..., :-1]
    with pytest.raises(ValueError, match=rf"^{head}: expected \["):
        rule.targets(**case)


def test_action_head_left_out_is_named():
    rule, case = random_rule(), random_case(2, 2, 3)
    del case["outputs"].action["z"]
    with pytest.raises(ValueError, match=r"^z: expected \[3, 2, 3, 6\], got nothing"):
        rule.targets(**case)


def test_target_outputs_are_needed():
    case = random_case(2, 2, 3) | {"target_outputs": None}
    with pytest.raises(ValueError, match="target_outputs"):
        random_rule().targets(**case)


def test_parameters_are_checked():
    params = random_rule().params
    with pytest.raises(ValueError, match=r"^gate\.w: expected"):
        DiscoRule(CONFIG, params | {"gate.w": params["gate.w"].t()})
    with pytest.raises(ValueError, match=r"^extra: expected no such tensor"):
        DiscoRule(CONFIG, params | {"extra": params["gate.w"]})
    with pytest.raises(ValueError, match=r"^lstm\.b: .* found none"):
        DiscoRule(CONFIG, {k: v for k, v in params.items() if k != "lstm.b"})


# --- resets


def random_meta_inputs(steps, batch, actions, seed, terminal=None, cut=None):
    """Inputs of the meta-network alone, where no moving average mixes trajectories."""
    normal = Normal(seed)
    continues, links = torch.ones(2, steps, batch, dtype=f64)
    if terminal is not None:
        continues[terminal] = links[terminal] = 0
    if cut is not None:
        links[cut] = 0
    return MetaInputs(
        policy=normal(steps + 1, batch, actions).softmax(-1),
        behaviour_policy=normal(steps, batch, actions).softmax(-1),
        target_policy=normal(steps, batch, actions).softmax(-1),
        actions=normal.integers(actions, steps, batch),
        rewards=normal(steps, batch),
        continues=continues,
        links=links,
        values=normal(steps + 1, batch),
        advantage=normal(steps, batch),
        normalized_advantage=normal(steps, batch),
        target_q=normal(steps, batch, actions),
        qv_advantage=normal(steps, batch, actions),
        normalized_qv_advantage=normal(steps, batch, actions),
        y=normal(steps + 1, batch, SMALL.predictions),
        target_y=normal(steps + 1, batch, SMALL.predictions),
        z=normal(steps + 1, batch, actions, SMALL.predictions),
        target_z=normal(steps + 1, batch, actions, SMALL.predictions),
    )


def with_other_future(inputs, other, step, trajectory):
    """Everything of one trajectory after transition `step` and the state it led to, replaced."""
    steps = len(inputs.rewards)
    changed = {}
    for f in fields(MetaInputs):
        tensor = getattr(inputs, f.name).clone()
        first = step + 1 + (len(tensor) - steps)
        tensor[first:, trajectory] = getattr(other, f.name)[first:, trajectory]
        changed[f.name] = tensor
    return MetaInputs(**changed)


@pytest.mark.parametrize("ends", ["terminal", "cut", None])
def test_terminals_and_cuts_stop_the_trajectory_network(ends):
    rule, steps, batch, end = random_rule(), 6, 3, 2
    inputs = random_meta_inputs(steps, batch, 4, seed=1, **({ends: (end, 1)} if ends else {}))
    other = random_meta_inputs(steps, batch, 4, seed=2)
    normal = Normal(3)
    state = MetaRNNState(normal(SMALL.meta_hidden), normal(SMALL.meta_hidden))
    before, _ = apply_meta_network(rule.params, inputs, state)
    changed_inputs = with_other_future(inputs, other, end, trajectory=1)
    after, _ = apply_meta_network(rule.params, changed_inputs, state)
    for name in ("policy", "y", "z", "meta_input"):
        old, new = getattr(before, name), getattr(after, name)
        torch.testing.assert_close(old[:, [0, 2]], new[:, [0, 2]])
        assert not torch.allclose(old[end + 1 :, 1], new[end + 1 :, 1])
        for t in range(end + 1):
            assert torch.allclose(old[t, 1], new[t, 1]) == (ends is not None)


def test_memory_gates_this_update_and_learns_from_it():
    rule, inputs = random_rule(), random_meta_inputs(3, 2, 4, seed=1)
    normal = Normal(5)
    state = MetaRNNState(normal(SMALL.meta_hidden), normal(SMALL.meta_hidden))
    other_cell = MetaRNNState(state.hidden, state.cell + 1)
    first, first_state = apply_meta_network(rule.params, inputs, state)
    second, second_state = apply_meta_network(rule.params, inputs, other_cell)
    # The targets are gated by the hidden state alone; the cell only matters to the next one.
    torch.testing.assert_close(first.y, second.y)
    assert not torch.allclose(first_state.hidden, second_state.hidden)


# --- gradients


def rule_with_gradients():
    rule = random_rule()
    return rule.with_params({k: v.clone().requires_grad_() for k, v in rule.params.items()})


def leaves_of(case):
    outputs = case["outputs"]
    heads = outputs.state | outputs.action
    return {name: tensor.requires_grad_() for name, tensor in heads.items()}


def weighted_sum(targets, seed=0):
    """A function of the targets that no shift of their logits leaves unchanged."""
    normal = Normal(seed)
    return sum((x * normal(*x.shape)).sum() for x in (targets.policy, targets.y, targets.z))


def test_targets_carry_no_gradient_by_default():
    rule, case = rule_with_gradients(), random_case(3, 2, 4)
    leaves_of(case)
    targets, state = rule.targets(**case)
    tensors = [getattr(targets, f.name) for f in fields(targets) if f.name != "returns"]
    tensors += [getattr(targets.returns, f.name) for f in fields(targets.returns)]
    tensors += [state.rnn.hidden, state.rnn.cell, state.advantage.first, state.td.second]
    assert not any(tensor.requires_grad for tensor in tensors)


def test_one_update_reaches_the_trajectory_network():
    rule = rule_with_gradients()
    targets, _ = rule.targets(**random_case(4, 3, 4), differentiable=True)
    gradients = dict(
        zip(
            rule.params,
            torch.autograd.grad(
                weighted_sum(targets), list(rule.params.values()), materialize_grads=True
            ),
            strict=True,
        )
    )
    unreached = {name.rsplit(".", 1)[0] for name, g in gradients.items() if not g.any()}
    memory = {name for name in SMALL.layers() if name.startswith("meta.")}
    assert unreached == memory | {"meta_input"}


def test_two_updates_reach_every_parameter():
    rule = rule_with_gradients()
    _, state = rule.targets(**random_case(4, 3, 4), differentiable=True)
    second = random_case(4, 3, 4, seed=1) | {"state": state}
    targets, _ = rule.targets(**second, differentiable=True)
    gradients = torch.autograd.grad(weighted_sum(targets), list(rule.params.values()))
    for name, gradient in zip(rule.params, gradients, strict=True):
        assert torch.isfinite(gradient).all(), name
        assert gradient.any(), name


def test_differentiable_targets_see_predictions_but_not_policy_or_values():
    rule, case = random_rule(), random_case(3, 2, 4)
    leaves = leaves_of(case)
    targets, _ = rule.targets(**case, differentiable=True)
    gradients = torch.autograd.grad(weighted_sum(targets), list(leaves.values()), allow_unused=True)
    reached = {n for n, g in zip(leaves, gradients, strict=True) if g is not None and g.any()}
    assert reached == {"y", "z"}


def test_value_loss_passes_no_gradient_to_the_rule():
    rule, case = rule_with_gradients(), random_case(3, 2, 4)
    leaves = leaves_of(case)
    targets, _ = rule.targets(**case, differentiable=True)
    taken = case["outputs"].taken(case["transitions"].actions)
    value_loss, _ = rule.value_loss(taken, targets, case["transitions"])
    everything = list(rule.params.values()) + list(leaves.values())
    gradients = torch.autograd.grad(value_loss.sum(), everything, allow_unused=True)
    reached = [g is not None for g in gradients]
    assert not any(reached[: len(rule.params)])
    assert [n for n, r in zip(leaves, reached[len(rule.params) :], strict=True) if r] == ["q"]


def test_loss_moves_only_the_heads_of_the_action_taken():
    rule, case = random_rule(), random_case(3, 2, 4)
    leaves = leaves_of(case)
    _, _, loss = targets_and_loss(rule, case)
    (gradient,) = torch.autograd.grad(loss.sum(), leaves["z"])
    taken = torch.nn.functional.one_hot(case["transitions"].actions, 4).bool()
    assert gradient[:-1][taken].any(dim=-1).all()
    assert not gradient[:-1][~taken].any()
    assert not gradient[-1].any()


# --- initial parameters


def test_fresh_rule_has_the_published_size():
    params = initial_params(MetaNetworkSizes(), torch.Generator().manual_seed(0))
    assert len(params) == 42
    assert sum(tensor.numel() for tensor in params.values()) == 754_778
    assert {tensor.dtype for tensor in params.values()} == {torch.float32}


def test_fresh_parameters_are_spread_as_published():
    """A normal cut off at two deviations keeps 0.88 of its deviation."""
    special = {"meta_input": 0.3, "y_target": 0.3, "z_target": 0.3, "policy_target.out": 0.3}
    special["gate"] = 1.0
    params = initial_params(MetaNetworkSizes(), torch.Generator().manual_seed(0))
    for name, (fan_in, _) in MetaNetworkSizes().layers().items():
        weights, std = params[f"{name}.w"], special.get(name, fan_in**-0.5)
        # Ours alone: the few units that tell actions apart start alive.
        assert (params[f"{name}.b"] == float(name.endswith("action_net.1"))).all(), name
        assert weights.abs().max() <= 2 * std, name
        if weights.numel() > 5000:
            assert weights.std().item() == pytest.approx(0.8796 * std, rel=0.03), name
            assert abs(weights.mean().item()) < 0.05 * std, name
            assert weights.abs().max() > 1.9 * std, name


def test_seed_fixes_a_fresh_rule():
    first, again = DiscoRule.random(CONFIG, seed=1), DiscoRule.random(CONFIG, seed=1)
    other = DiscoRule.random(CONFIG, seed=2)
    assert all(torch.equal(first.params[name], again.params[name]) for name in first.params)
    assert not torch.equal(first.params["lstm.w"], other.params["lstm.w"])
