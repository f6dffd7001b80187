"""The agent network: one forward pass for both needs, any torso, every action from one root."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from discorl.agents import MLPTorso, ModuleAgent, Network, NetworkConfig
from discorl.outputs import HeadSpec
from discorl.rules.actor_critic import ActorCritic

f64 = torch.float64
SHAPE = (4, 3, 1)
SMALL = NetworkConfig(torso=(7, 6), model_size=5, head_hidden=4)


def make(rule, actions=3, config=SMALL, seed=0):
    network = Network.mlp(SHAPE, rule.heads(actions), config)
    params = network.init(torch.Generator().manual_seed(seed))
    return network, {name: p.to(f64) for name, p in params.items()}


def boards(*prefix, seed=1):
    return torch.randn(*prefix, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=f64)


def leaves(params):
    return {name: p.clone().requires_grad_() for name, p in params.items()}


def weigh(tensors, seed=2):
    """A scalar of many tensors to differentiate, each element with a weight of its own."""
    generator = torch.Generator().manual_seed(seed)
    return sum(
        (x * torch.randn(x.shape, generator=generator, dtype=x.dtype)).sum()
        for _, x in sorted(tensors.items())
    )


def gradients(loss, params):
    found = torch.autograd.grad(loss, list(params.values()), allow_unused=True, retain_graph=True)
    return dict(zip(params, found, strict=True))


@pytest.mark.parametrize("alone", [False, True])
def test_learn_and_taken_equal_all_outputs_at_the_taken_actions(tiny_rule, alone):
    network, params = make(tiny_rule)
    actions = torch.tensor([[0, 2], [1, 1], [2, 0]])
    ours, reference = leaves(params), leaves(params)
    every, taken = network.learn(ours, boards(4, 2), actions)
    if alone:
        taken = network.taken(ours, boards(4, 2), actions)
    full = network.outputs(reference, boards(4, 2))
    expected = full.taken(actions)
    assert set(taken.action) == {"z", "aux_pi", "q"}
    for name, x in expected.state.items():
        torch.testing.assert_close(taken.state[name], x)
    for name, x in expected.action.items():
        torch.testing.assert_close(taken.action[name], x)
    for name in ("z", "q"):
        torch.testing.assert_close(every.action[name], full.action[name])
    loss = weigh(taken.state | taken.action)
    expected_loss = weigh(expected.state | expected.action)
    found, wanted = gradients(loss, ours), gradients(expected_loss, reference)
    assert all(g is not None and g.abs().max() > 0 for g in wanted.values())
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


def test_what_the_targets_read_carries_gradient_only_if_computed_for_it(tiny_rule):
    network, params = make(tiny_rule)
    actions = torch.zeros(2, 2, dtype=torch.int64)
    every, taken = network.learn(leaves(params), boards(3, 2), actions)
    assert not any(x.requires_grad for x in (every.state | every.action).values())
    assert all(x.requires_grad for x in (taken.state | taken.action).values())
    reading, whole = leaves(params), leaves(params)
    found = gradients(
        weigh(network.outputs(reading, boards(3, 2), for_targets=True).action), reading
    )
    action = network.outputs(whole, boards(3, 2)).action
    wanted = gradients(weigh({name: action[name] for name in ("z", "q")}), whole)
    assert wanted["model.q.1.weight"].abs().max() > 0
    for name, gradient in wanted.items():
        if gradient is None:
            assert found[name] is None
        else:
            torch.testing.assert_close(found[name], gradient)


def test_heads_come_from_the_rule(tiny_rule):
    network, params = make(tiny_rule)
    outputs = network.outputs(params, boards(5, 2))
    outputs.check(tiny_rule.heads(3), steps=5, batch=2)
    assert set(outputs.state) == {"logits", "y"}
    assert set(network.outputs(params, boards(5, 2), for_targets=True).action) == {"z", "q"}
    network, params = make(ActorCritic())
    outputs = network.outputs(params, boards(5, 2))
    assert {k: tuple(v.shape) for k, v in outputs.state.items()} == {
        "logits": (5, 2, 3),
        "v": (5, 2, 601),
    }
    assert not outputs.action
    assert not any(name.startswith("model") for name in params)


def test_actor_critic_learns_from_state_heads_alone():
    network, params = make(ActorCritic())
    every, taken = network.learn(params, boards(3, 2), torch.zeros(2, 2, dtype=torch.int64))
    assert torch.equal(every.logits, taken.logits)
    assert not taken.action


def test_a_head_of_any_shape():
    heads = HeadSpec(state={"logits": (3,)}, action={"scalar": (1,)})
    network = Network.mlp(SHAPE, heads, SMALL)
    params = network.init(torch.Generator().manual_seed(0))
    outputs = network.outputs(params, boards(2, 2).float())
    assert outputs.action["scalar"].shape == (2, 2, 3, 1)


class ConvTorso(nn.Module):
    """A small user's torso; it knows nothing of discorl."""

    output_size = 6

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.out = nn.Linear(2 * 4 * 3, self.output_size)

    def forward(self, observations):
        prefix = observations.shape[:-3]
        x = observations.to(self.conv.weight.dtype).reshape(-1, *SHAPE).permute(0, 3, 1, 2)
        return self.out(torch.relu(self.conv(x)).flatten(1)).reshape(*prefix, -1)


def test_any_torso_with_an_output_size_works(tiny_rule):
    torso = ConvTorso()
    network = Network(torso, tiny_rule.heads(3), SMALL)
    params = network.init(torch.Generator().manual_seed(0))
    # It has no `init_`: its own weights are kept, and copied.
    assert torch.equal(params["torso.conv.weight"], torso.conv.weight)
    params["torso.conv.weight"] += 1
    assert not torch.equal(params["torso.conv.weight"], torso.conv.weight)
    observations = boards(3, 2).float()
    outputs = network.outputs(params, observations)
    outputs.check(tiny_rule.heads(3), steps=3, batch=2)
    params = leaves(params)
    _, taken = network.learn(params, observations, torch.zeros(2, 2, dtype=torch.int64))
    assert gradients(weigh(taken.action), params)["torso.conv.weight"].abs().max() > 0


@pytest.mark.parametrize("size", [None, 6.0, "6"])
def test_a_torso_must_say_its_size(size):
    torso = nn.Linear(3, 6)
    if size is not None:
        torso.output_size = size
    with pytest.raises(ValueError, match=r"^torso: Linear .*`output_size`"):
        Network(torso, ActorCritic().heads(3))


def test_permuting_actions_permutes_their_heads_and_nothing_else(tiny_rule):
    network, params = make(tiny_rule)
    order = [2, 0, 1]
    permuted = params | {"model.action": params["model.action"][order]}
    before, after = (network.outputs(p, boards(4, 2)) for p in (params, permuted))
    assert not torch.allclose(before.action["q"][:, :, 0], before.action["q"][:, :, 1])
    for name, x in before.action.items():
        torch.testing.assert_close(after.action[name], x[:, :, order])
    torch.testing.assert_close(after.logits, before.logits)


def test_more_actions_change_nothing_for_the_others(tiny_rule):
    few, params = make(tiny_rule, actions=3)
    many, more = make(tiny_rule, actions=5, seed=9)
    table = params["model.action"]
    extra = torch.randn(2, table.shape[1], dtype=f64)
    for name in more:
        if params[name].shape == more[name].shape:
            more[name] = params[name]
    more["model.action"] = torch.cat([table, extra])
    for name in ("z", "q"):
        torch.testing.assert_close(
            many.outputs(more, boards(4, 2)).action[name][:, :, :3],
            few.outputs(params, boards(4, 2)).action[name],
        )


def test_the_model_by_hand(tiny_rule):
    """The published order of gates: input, candidate, forget (plus one), output."""
    network, params = make(tiny_rule)
    board = boards()
    features = network.torso.to(f64)  # The module itself only computes; parameters are given.
    torso = {k.removeprefix("torso."): v for k, v in params.items() if k.startswith("torso.")}
    x = torch.func.functional_call(features, torso, (board,))
    cell = params["model.root.weight"] @ x + params["model.root.bias"]
    q = network.outputs(params, board).action["q"]
    for action in range(3):
        gates = params["model.lstm.weight"] @ torch.tanh(cell) + params["model.lstm.bias"]
        gates = gates + params["model.action"][action]
        i, g, f, o = gates.split(5)
        new = torch.sigmoid(f + 1) * cell + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(new)
        h = torch.relu(params["model.q.0.weight"] @ h + params["model.q.0.bias"])
        torch.testing.assert_close(
            q[action], params["model.q.1.weight"] @ h + params["model.q.1.bias"]
        )


@pytest.mark.parametrize("prefix", [(), (3,), (4, 2)])
def test_policy_equals_the_logits_of_all_outputs(tiny_rule, prefix):
    for rule in (tiny_rule, ActorCritic()):
        network, params = make(rule)
        policy = network.policy(params, boards(*prefix))
        assert policy.shape == (*prefix, 3)
        torch.testing.assert_close(policy, network.outputs(params, boards(*prefix)).logits)


class WholeAgent(nn.Module):
    """A network's heads behind a plain module's `forward`."""

    def __init__(self, network, params):
        super().__init__()
        self.network = network
        self.names = list(params)
        self.values = nn.ParameterList([nn.Parameter(p.clone()) for p in params.values()])

    def forward(self, observations):
        outputs = self.network.outputs(dict(zip(self.names, self.values)), observations)  # noqa: B905
        return outputs.state | outputs.action


def test_a_module_agent_equals_the_network_it_wraps(tiny_rule):
    network, params = make(tiny_rule)
    agent = ModuleAgent(WholeAgent(network, params), tiny_rule.heads(3))
    own = agent.init(torch.Generator())
    assert len(own) == len(params)
    actions = torch.tensor([[0, 2], [1, 1], [2, 0]])
    torch.testing.assert_close(
        agent.policy(own, boards(4, 2)), network.policy(params, boards(4, 2))
    )
    ours, theirs = leaves(own), leaves(params)
    every, taken = agent.learn(ours, boards(4, 2), actions)
    full, expected = network.learn(theirs, boards(4, 2), actions)
    assert not any(x.requires_grad for x in (every.state | every.action).values())
    for name in ("z", "q"):
        torch.testing.assert_close(every.action[name], full.action[name])
    for name, x in expected.action.items():
        torch.testing.assert_close(taken.action[name], x)
    alone = agent.taken(own, boards(4, 2), actions)
    torch.testing.assert_close(alone.action["aux_pi"], expected.action["aux_pi"])
    found = list(gradients(weigh(taken.state | taken.action), ours).values())
    wanted = list(gradients(weigh(expected.state | expected.action), theirs).values())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_module_without_a_head_is_told_which(tiny_rule):
    class PolicyOnly(nn.Linear):
        def forward(self, observations):
            return {"logits": super().forward(observations.flatten(-3))}

    agent = ModuleAgent(PolicyOnly(12, 3).to(f64), tiny_rule.heads(3))
    params = agent.init(torch.Generator())
    assert agent.policy(params, boards(2)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"lacks the heads \['y', 'z', 'aux_pi', 'q'\]"):
        agent.outputs(params, boards(2))


def test_initial_weights(tiny_rule):
    config = NetworkConfig(torso=(200, 300), model_size=100, head_hidden=80)
    network = Network.mlp((10, 10), tiny_rule.heads(3), config)
    params = network.init(torch.Generator().manual_seed(0))
    # A normal cut at two deviations has 0.88 of its deviation.
    expected = {
        "torso.layers.0": 100**-0.5,
        "torso.layers.1": 200**-0.5,
        "head.logits": 0.01,
        "head.y": 0.01,
        "model.root": 300**-0.5,
        "model.lstm": 103**-0.5,
        "model.q.0": 100**-0.5,
        "model.q.1": 80**-0.5,
    }
    assert params["model.action"].std().item() == pytest.approx(0.88 * 103**-0.5, rel=0.08)
    for name, std in expected.items():
        weights = params[f"{name}.weight"]
        assert weights.abs().max() <= 2 * std
        assert weights.std().item() == pytest.approx(0.88 * std, rel=0.08), name
        assert weights.mean().abs() < 0.1 * std
    for name, p in params.items():
        if name.endswith("bias"):
            assert not p.any(), name


def test_initial_deviations_can_be_set(tiny_rule):
    config = NetworkConfig(torso=(50,), head_std=0.1, action_head_std=0.001)
    network = Network.mlp((4,), tiny_rule.heads(3), config)
    params = network.init(torch.Generator().manual_seed(0))
    assert params["head.y.weight"].std().item() == pytest.approx(0.088, rel=0.15)
    assert params["model.q.1.weight"].std().item() == pytest.approx(0.00088, rel=0.15)


def test_how_a_newborn_agent_tells_actions_apart_can_be_set(tiny_rule):
    # Given the same agent, born alike but for the weights that read the action
    plain = NetworkConfig(torso=(50,), model_size=40)
    heads = tiny_rule.heads(3)
    born = [
        Network.mlp((4,), heads, config).init(torch.Generator().manual_seed(0))
        for config in (plain, replace(plain, action_input_std=2.0))
    ]
    weights = [params.pop("model.action") for params in born]
    # Then these have the deviation asked for, and point where they did
    assert weights[1].std().item() == pytest.approx(0.88 * 2, rel=0.1)
    torch.testing.assert_close(weights[1] / weights[0], torch.full_like(weights[0], 2 * 43**0.5))
    # and nothing else differs
    assert all(torch.equal(born[0][name], born[1][name]) for name in born[0])


@pytest.mark.parametrize("disco", [False, True])
def test_values_may_start_as_a_narrow_bell_around_zero(tiny_rule, disco):
    rule = tiny_rule if disco else ActorCritic(num_bins=41, max_abs_value=10.0)
    head = "q" if disco else "v"
    heads = rule.heads(3)
    config = NetworkConfig((7, 6), model_size=5, head_hidden=4, value_width=1.5)
    config = replace(config, action_head_std=1e-6, head_std=1e-6)
    network = Network.mlp(SHAPE, heads, config)
    outputs = network.outputs(network.init(torch.Generator().manual_seed(0)), boards(3).float())
    logits = (outputs.state | outputs.action)[head]
    probs = torch.softmax(logits, dim=-1).double()
    largest = heads.value_range[head]
    bins = torch.linspace(-largest, largest, logits.shape[-1], dtype=f64)
    mean = (probs * bins).sum(dim=-1)
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-3, rtol=0)
    width = (probs * bins.square()).sum(dim=-1).sqrt()
    torch.testing.assert_close(width, torch.full_like(width, 1.5), atol=0.02, rtol=0)
    uniform = Network.mlp(SHAPE, heads, replace(config, value_width=None))
    params = uniform.init(torch.Generator().manual_seed(0))
    assert not any(p.any() for name, p in params.items() if name.endswith("bias"))


def test_the_seed_fixes_the_parameters(tiny_rule):
    network, first = make(tiny_rule, seed=3)
    again = network.init(torch.Generator().manual_seed(3))
    other = network.init(torch.Generator().manual_seed(4))
    for name, p in again.items():
        assert torch.equal(p.to(f64), first[name])
        if name.endswith("weight"):
            assert not torch.equal(p, other[name])


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_bytes_are_welcome_as_observations(tiny_rule, dtype):
    network, params = make(tiny_rule)
    params = {name: p.to(dtype) for name, p in params.items()}
    board = torch.randint(0, 256, (3, 2, *SHAPE), dtype=torch.uint8)
    outputs = network.outputs(params, board)
    expected = network.outputs(params, board.to(dtype))
    assert outputs.logits.dtype == dtype
    torch.testing.assert_close(outputs.action["q"], expected.action["q"])


def test_the_torso_may_end_with_a_relu():
    for activate in (False, True):
        torso = MLPTorso((3,), (8, 32), activate_last=activate)
        torso.init_(torch.Generator().manual_seed(0))
        lowest = torso(torch.randn(5, 3, generator=torch.Generator().manual_seed(1))).min()
        assert (lowest < 0) is not activate or lowest == 0


def test_a_linear_end_of_the_torso_is_folded_into_what_follows(tiny_rule):
    # Few observations go through the torso's last layer, many through its product with the next.
    network, params = make(tiny_rule)
    ours, reference = leaves(params), leaves(params)
    observations = boards(5, 40)
    many = network.outputs(ours, observations)
    few = [network.outputs(reference, one) for one in observations.split(1, dim=1)]
    for kind in ("state", "action"):
        expected = {
            name: torch.cat([getattr(one, kind)[name] for one in few], dim=1)
            for name in getattr(many, kind)
        }
        torch.testing.assert_close(getattr(many, kind), expected)
        found = gradients(weigh(getattr(many, kind)), ours)
        for name, grad in gradients(weigh(expected), reference).items():
            torch.testing.assert_close(found[name], grad, msg=name)
