"""Heads to put behind any torso: the network's own, under the same names."""

import copy

import pytest
import torch
from torch import nn

import discorl
from discorl.agents import MLPTorso, ModuleAgent, Network, NetworkConfig
from discorl.learner import Learner
from discorl.optim import ClippedAdam, Schedule
from discorl.own_loop.heads import DiscoHeads
from discorl.rollout import Rollout
from discorl.rules.actor_critic import ActorCritic

f64 = torch.float64
SMALL = NetworkConfig(model_size=5, head_hidden=4, value_width=1.0, action_head_std=0.001)


def agent_and_network(rule, actions=3):
    """A module and a network on the same torso, with the module's parameters by both names."""
    torch.manual_seed(0)
    torso = MLPTorso((6,), (8, 7))
    module = nn.Sequential(torso, DiscoHeads(7, actions, rule, SMALL)).to(f64)
    network = Network(copy.deepcopy(torso), rule.heads(actions), SMALL)
    own = {name: p.detach().clone() for name, p in module.named_parameters()}
    renamed = {network_name(name): p for name, p in own.items()}
    return module, own, network, renamed


def network_name(name):
    return f"torso.{name[2:]}" if name.startswith("0.") else name[2:]


def experience(actions=3, steps=5, batch=4):
    generator = torch.Generator().manual_seed(1)
    shape = (steps, batch)
    return Rollout(
        observations=torch.randn(*shape, 6, generator=generator, dtype=f64),
        actions=torch.randint(actions, shape, generator=generator),
        rewards=torch.randn(shape, generator=generator, dtype=f64),
        discounts=(torch.rand(shape, generator=generator) > 0.2).to(f64),
        logits=torch.randn(*shape, actions, generator=generator, dtype=f64),
    )


@pytest.mark.parametrize("disco", [True, False])
def test_the_heads_are_exactly_the_networks(tiny_rule, disco):
    rule = tiny_rule.to(f64) if disco else ActorCritic(num_bins=21, max_abs_value=10.0)
    module, _, network, params = agent_and_network(rule)
    assert set(params) == set(network.init(torch.Generator()))
    observations = experience().observations
    expected = network.outputs(params, observations)
    found = module(observations)
    assert set(found) == {*rule.heads(3).state, *rule.heads(3).action}
    for name, head in (expected.state | expected.action).items():
        assert torch.equal(found[name], head), name


def test_a_learner_moves_both_alike(tiny_rule):
    rule = tiny_rule.to(f64)
    module, own, network, params = agent_and_network(rule)
    rollout = experience()
    optimiser = ClippedAdam(Schedule(0.01))
    one = Learner(ModuleAgent(module, rule.heads(3)), rule, optimiser)
    other = Learner(network, rule, optimiser)
    ours, theirs = one.init_from(own), other.init_from(params)
    for _ in range(3):
        ours, _ = one.step(ours, rollout)
        theirs, _ = other.step(theirs, rollout)
    for name, p in ours.params.items():
        torch.testing.assert_close(p, theirs.params[network_name(name)], rtol=0, atol=1e-9)


def test_they_begin_as_the_network_does(tiny_rule):
    torch.manual_seed(5)
    heads = DiscoHeads(7, 3, tiny_rule, SMALL)
    torch.manual_seed(5)
    again = DiscoHeads(7, 3, tiny_rule, SMALL)
    other = DiscoHeads(7, 3, tiny_rule, SMALL)
    for (name, p), q, r in zip(
        heads.named_parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(p, q), name
        assert name.endswith("bias") or not torch.equal(p, r), name
    bell = heads.get_parameter("model.q.1.bias")
    assert bell.argmax() == len(bell) // 2
    assert bell.min() < -4
    assert heads.get_parameter("model.q.1.weight").abs().max() <= 0.002


def test_disco103s_heads_need_no_file(empty_cache):
    outputs = DiscoHeads(16, 4, "disco103")(torch.zeros(2, 3, 16))
    shapes = {name: list(head.shape[2:]) for name, head in outputs.items()}
    assert shapes == {
        "logits": [4],
        "y": [600],
        "z": [4, 600],
        "aux_pi": [4, 4],
        "q": [4, 601],
    }
    # A newborn agent expects nothing.
    probs = torch.softmax(outputs["q"], dim=-1)
    values = (probs * torch.linspace(-300, 300, 601)).sum(dim=-1)
    assert values.abs().max() < 0.1


def test_a_rule_may_be_named_and_is_sprout_if_none_is():
    sprout = discorl.load_rule("sprout")
    for heads in (DiscoHeads(8, 2, "sprout"), DiscoHeads(8, 2)):
        outputs = heads(torch.zeros(1, 8))
        assert outputs["y"].shape[-1:] == sprout.heads(2).state["y"]
        assert outputs["q"].shape[-1:] == sprout.heads(2).action["q"]
    assert set(DiscoHeads(8, 2, "actor_critic")(torch.zeros(8))) == {"logits", "v"}


def test_they_are_an_ordinary_module(tiny_rule):
    heads = DiscoHeads(7, 3, tiny_rule, SMALL)
    assert "heads=['logits', 'y', 'z', 'aux_pi', 'q']" in repr(heads)
    twin = DiscoHeads(7, 3, tiny_rule, SMALL)
    twin.load_state_dict(heads.state_dict())
    features = torch.randn(2, 7)
    assert torch.equal(twin(features)["q"], heads(features)["q"])
    assert torch.equal(copy.deepcopy(heads)(features)["z"], heads(features)["z"])
    sum(head.sum() for head in heads(features).values()).backward()
    assert all(p.grad is not None for p in heads.parameters())
