"""Bodies that remember: one pass or step by step, no past beyond a first, no future."""

from dataclasses import replace

import pytest
import torch
from derivatives import assert_second_derivatives_agree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from discorl.agents import Network, NetworkConfig
from discorl.agents.base import RecurrentAgent
from discorl.agents.bodies import make_body
from discorl.errors import DiscorlError
from discorl.gradients import vector_jacobian
from discorl.learner import Learner
from discorl.observations import ArraySpec
from discorl.optim import ClippedAdam, Schedule
from discorl.rollout import Rollout, Window
from discorl.rules.actor_critic import ActorCritic
from discorl.tree import flatten, tree_map

f64 = torch.float64
VECTOR = ArraySpec((3,))
SPEC = {"board": ArraySpec((10, 10, 2), torch.uint8), "speed": VECTOR}
LENGTH, BATCH = 9, 3
SMALL = NetworkConfig(
    torso=(7,),
    model_size=5,
    head_hidden=4,
    head_std=0.3,
    memory_size=6,
    memory_window=3,
    memory_layers=2,
    memory_heads=2,
)
MEMORIES = ("lstm", "gru", "transformer")
each = pytest.mark.parametrize("memory", MEMORIES)
ACTOR_CRITIC = ActorCritic(num_bins=21, max_abs_value=10.0)


def body(memory, spec=VECTOR, seed=0, **options):
    module = make_body(spec, replace(SMALL, memory=memory, **options))
    module.init_(torch.Generator().manual_seed(seed))
    return module.to(f64)


def newborn(module, batch=BATCH):
    return {name: torch.zeros(batch, *shape) for name, shape in module.memory_spec.items()}


def vectors(length=LENGTH, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, BATCH, 3, generator=generator, dtype=f64)


def random_firsts(length=LENGTH, seed=2, share=0.25):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(length, BATCH, generator=generator) < share


def lived(module, length=5):
    """A memory of some life before."""
    window = Window(vectors(length, seed=7), random_firsts(length, seed=8), newborn(module))
    return tree_map(torch.Tensor.detach, module(window)[1])


def in_pieces(module, observations, firsts, memory, cuts):
    features = []
    for begin, end in zip([0, *cuts], [*cuts, len(firsts)], strict=True):
        window = Window(observations[begin:end], firsts[begin:end], memory)
        piece, memory = module(window)
        features.append(piece)
    return torch.cat(features), memory


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@each
@pytest.mark.parametrize("born", [True, False])
@pytest.mark.parametrize("options", [{}, {"memory_layers": 1}, {"memory_layers": 3}])
def test_step_by_step_equals_one_pass(memory, born, options):
    module = body(memory, **options)
    before = newborn(module) if born else lived(module)
    observations, firsts = vectors(20), random_firsts(20, share=0.1)
    whole, after = in_pieces(module, observations, firsts, before, [])
    assert whole.shape == (20, BATCH, module.output_size)
    steps, last = in_pieces(module, observations, firsts, before, list(range(1, 20)))
    close(steps, whole)
    close(last, after)
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in after.items()}
    assert shapes == module.memory_spec


@each
@given(
    cut=st.integers(1, LENGTH - 1),
    flags=st.lists(st.booleans(), min_size=LENGTH * BATCH, max_size=LENGTH * BATCH),
    window=st.integers(2, 12),
)
@settings(max_examples=30, deadline=None)
def test_a_window_may_be_split_anywhere(memory, cut, flags, window):
    module = body(memory, memory_window=window)
    firsts = torch.tensor(flags).reshape(LENGTH, BATCH)
    before = lived(module)
    whole, after = in_pieces(module, vectors(), firsts, before, [])
    pieces, last = in_pieces(module, vectors(), firsts, before, [cut])
    close(pieces, whole)
    close(last, after)


@each
def test_the_past_matters_until_a_first_and_the_future_never(memory):
    module = body(memory, memory_window=12)
    observations = vectors()
    firsts = torch.zeros(LENGTH, BATCH, dtype=torch.bool)
    firsts[4, 1] = True
    before = newborn(module)
    features, after = module(Window(observations, firsts, before))
    other = observations.clone()
    other[2] += 1
    changed, changed_after = module(Window(other, firsts, before))
    moved = (changed != features).any(dim=-1)
    assert not moved[:2].any()
    assert moved[2:, [0, 2]].all()
    assert moved[2:4, 1].all()
    assert not moved[4:, 1].any()
    for name, tensor in after.items():
        assert torch.equal(changed_after[name][1], tensor[1])


@each
def test_a_first_step_is_as_if_newborn(memory):
    module = body(memory)
    firsts = torch.zeros(LENGTH, BATCH, dtype=torch.bool)
    firsts[0, 1:] = True
    forgetful, _ = module(Window(vectors(), firsts, lived(module)))
    fresh, _ = module(Window(vectors(), torch.zeros_like(firsts), newborn(module)))
    close(forgetful[:, 1:], fresh[:, 1:])
    assert not torch.allclose(forgetful[:, 0], fresh[:, 0])


@pytest.mark.parametrize("layers", [1, 2])
def test_the_transformer_looks_back_as_far_as_its_window(layers):
    module = body("transformer", memory_layers=layers, memory_window=3)
    assert module.memory_spec == {"inputs": (2 * layers, 6), "count": ()}
    firsts = torch.zeros(LENGTH, BATCH, dtype=torch.bool)
    other = vectors()
    other[1] += 1
    features, changed = (module(Window(x, firsts, newborn(module)))[0] for x in (vectors(), other))
    moved = (changed != features).any(dim=-1).all(dim=-1).tolist()
    reach = 1 + 2 * layers
    assert moved == [1 <= t <= reach for t in range(LENGTH)]


def test_the_transformer_knows_the_order():
    module = body("transformer", memory_layers=1)
    firsts = torch.zeros(3, BATCH, dtype=torch.bool)
    x = vectors(3)
    one, other = (
        module(Window(x[order], firsts, newborn(module)))[0] for order in ([0, 1, 2], [1, 0, 2])
    )
    assert not torch.allclose(one[2], other[2])


def test_the_transformer_remembers_only_its_episode():
    module = body("transformer")
    firsts = torch.zeros(3, BATCH, dtype=torch.bool)
    firsts[2, 0] = firsts[1, 1] = True
    _, after = module(Window(vectors(3), firsts, newborn(module)))
    assert after["count"].tolist() == [1, 2, 3]
    steps = after["inputs"].abs().sum(dim=-1) > 0
    assert steps.tolist() == [
        [False, False, False, True],
        [False, False, True, True],
        [False, True, True, True],
    ]


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_the_cells_equal_the_fused_ones(memory):
    module = body(memory)
    rows = {"lstm": [0, 2, 1, 3], "gru": [0, 1, 2]}[memory]

    def reorder(tensor):
        parts = tensor.detach().chunk(len(rows))
        return torch.cat([parts[i] for i in rows])

    fused = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[memory](7, 6).to(f64)
    bias = reorder(module.input.bias)
    if memory == "lstm":
        bias[6:12] += 1
    fused.load_state_dict(
        {
            "weight_ih_l0": reorder(module.input.weight),
            "weight_hh_l0": reorder(module.recurrent.weight),
            "bias_ih_l0": bias,
            "bias_hh_l0": torch.zeros_like(bias),
        }
    )
    firsts = torch.zeros(LENGTH, BATCH, dtype=torch.bool)
    features, after = module(Window(vectors(), firsts, newborn(module)))
    expected, last = fused(module.torso(vectors()))
    close(features, expected)
    close(after["hidden"], (last[0] if memory == "lstm" else last)[0])


@each
def test_gradients_are_finite_and_stop_at_the_memory(memory):
    module = body(memory)
    given_memory = tree_map(lambda t: t.clone().requires_grad_(), lived(module))
    features, _ = module(Window(vectors(), random_firsts(), given_memory))
    weights = torch.randn(features.shape, dtype=f64, generator=torch.Generator().manual_seed(3))
    (features * weights).sum().backward()
    for name, p in module.named_parameters():
        assert p.grad.isfinite().all(), name
        assert p.grad.abs().max() > 0, name
    assert all(tensor.grad is None for tensor in given_memory.values())


@each
def test_gradients_flow_back_through_time(memory):
    module = body(memory)
    observations = vectors().requires_grad_()
    firsts = torch.zeros(LENGTH, BATCH, dtype=torch.bool)
    firsts[-3, 1] = True
    features, _ = module(Window(observations, firsts, newborn(module)))
    (features[-1] * torch.arange(6)).sum().backward()
    reached = observations.grad.abs().sum(dim=-1) > 0
    assert reached[-5:, [0, 2]].all()
    assert reached[-3:, 1].all()
    assert not reached[:-3, 1].any()


@each
def test_second_derivatives_in_reverse_and_forward_mode(memory):
    module = body(memory)
    names = [key for key, _ in module.named_parameters()]
    params = [p.detach().requires_grad_() for p in module.parameters()]
    window = Window(vectors(), random_firsts(), lived(module))
    weights = torch.randn(LENGTH, BATCH, 6, dtype=f64, generator=torch.Generator().manual_seed(3))

    def gradients(values, **options):
        arguments = dict(zip(names, values, strict=True))
        features, _ = functional_call(module, arguments, (window,))
        return torch.autograd.grad((features + weights).square().sum(), values, **options)

    assert_second_derivatives_agree(gradients, params)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_size": 10, "memory_heads": 4}, "--memory-size 10 .*--memory-heads 4"),
        ({"memory_heads": 0}, "--memory-heads: expected at least 1, got 0"),
        ({"memory_window": 1}, "--memory-window 1"),
        ({"memory_layers": 0}, "--memory-layers: expected at least 1, got 0"),
        ({"memory": "elephant"}, "--memory: expected one of .*lstm.*, got 'elephant'"),
    ],
)
def test_impossible_memories_are_refused(options, message):
    with pytest.raises(DiscorlError, match=message):
        make_body(VECTOR, replace(SMALL, **{"memory": "transformer"} | options))


@pytest.fixture(params=["disco", "actor_critic"])
def rule(request, tiny_rule):
    return ACTOR_CRITIC if request.param == "actor_critic" else tiny_rule.to(f64)


def agent(rule, memory, dtype=f64):
    config = replace(SMALL, memory=memory)
    network = Network(make_body(SPEC, config), rule.heads(3), config)
    params = network.init(torch.Generator().manual_seed(0))
    return network, {name: p.to(dtype) for name, p in params.items()}


def sights(seed=1):
    generator = torch.Generator().manual_seed(seed)
    board = torch.randint(0, 2, (LENGTH, BATCH, 10, 10, 2), generator=generator)
    return {"board": board.to(torch.uint8), "speed": vectors(seed=seed).float()}


def batch(network, params, seed=1):
    """A random rollout after some life before."""
    generator = torch.Generator().manual_seed(seed)
    born = network.initial_memory(BATCH, "cpu")
    before = network.remember(params, Window(sights(seed + 50), random_firsts(), born))
    dtype = next(iter(params.values())).dtype
    return Rollout(
        observations=sights(seed),
        actions=torch.randint(0, 3, (LENGTH, BATCH), generator=generator),
        rewards=torch.randn(LENGTH, BATCH, generator=generator, dtype=dtype),
        discounts=1 - random_firsts(seed=seed).to(dtype),
        logits=torch.randn(LENGTH, BATCH, 3, generator=generator, dtype=dtype),
        memory={name: tensor.unsqueeze(0) for name, tensor in before.items()},
    )


@each
def test_an_agent_acts_as_it_learns(rule, memory):
    network, params = agent(rule, memory)
    assert isinstance(network, RecurrentAgent)
    rollout = batch(network, params)
    window = rollout.inputs()
    every, taken = network.learn(params, window, rollout.actions[:-1])
    outputs = network.outputs(params, window)
    outputs.check(rule.heads(3), LENGTH, BATCH)
    close(every.logits, outputs.logits)
    close(taken.logits, outputs.logits)
    memory_now = window.memory
    for t in range(LENGTH):
        sight = {name: tensor[t] for name, tensor in window.observations.items()}
        logits, memory_now = network.policy_step(params, sight, window.firsts[t], memory_now)
        close(logits, outputs.logits[t])
    close(memory_now, network.remember(params, window))


@each
@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_a_learner_step(rule, memory, dtype):
    if dtype == torch.float32 and hasattr(rule, "to"):
        rule = rule.to(dtype)
    network, params = agent(rule, memory, dtype)
    learner = Learner(network, rule, ClippedAdam(Schedule(0.01)))
    state = learner.init_from(params)
    rollout = batch(network, params)
    new, metrics = learner.step(state, rollout)
    again, _ = learner.step(new, rollout)
    for name, p in again.params.items():
        assert p.dtype == dtype
        assert p.isfinite().all(), name
        if name.startswith("torso"):
            assert not torch.equal(p, params[name]), name
    assert all(value.isfinite().all() for value in metrics.values())


@each
def test_a_step_can_be_differentiated_by_the_rule_and_the_parameters(tiny_rule, memory):
    rule = tiny_rule.to(f64)
    rule = rule.with_params({k: v.clone().requires_grad_() for k, v in rule.params.items()})
    network, params = agent(rule, memory)
    learner = Learner(network, rule, ClippedAdam(Schedule(0.01)))
    rollout = batch(network, params)
    plain, _ = learner.step(learner.init_from(params), rollout)
    state = tree_map(
        lambda t: t.clone().requires_grad_(t.is_floating_point()), learner.init_from(params)
    )
    new, _ = learner.step(state, rollout, differentiable=True)
    for name, p in plain.params.items():
        torch.testing.assert_close(new.params[name].detach(), p, rtol=1e-9, atol=1e-12)
    loss = sum(p.square().sum() for p in new.params.values())
    for inputs in (rule.params, flatten(state.params)):
        found = vector_jacobian({"loss": loss}, inputs, create_graph=True)
        assert all(g.isfinite().all() for g in found.values())
        assert any(g.abs().max() > 0 for g in found.values())
