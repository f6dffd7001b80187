"""Everything that computes does so on the device of its inputs, and reads nothing back.

PyTorch's `meta` device has shapes and no numbers: a tensor made elsewhere does not fit, and whoever
wants to read a number cannot. So it stands for any accelerator.
"""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import discorl
from discorl.agents import Network, NetworkConfig
from discorl.discovery.meta_gradient import meta_gradient
from discorl.discovery.value_function import ValueConfig, ValueFunction
from discorl.envs.gymnasium import send
from discorl.learner import Learner
from discorl.library.catalogue import load_rule
from discorl.life.acting import burn_in, choose, policy_step
from discorl.life.config import ReplayConfig
from discorl.life.mind import Mind
from discorl.life.rewards import RewardScaler
from discorl.observations import ArraySpec
from discorl.optim import ClippedAdam, Schedule
from discorl.replay import Replay, ReplaySpec
from discorl.rollout import Rollout, TimeStep
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.policy_gradient import PolicyGradient
from discorl.stacking import Each
from discorl.tree import flatten, stack, tree_map

ACTIONS, LENGTH, BATCH = 3, 6, 4
VECTOR, IMAGE = ArraySpec((4,)), ArraySpec((8, 8, 2), torch.uint8)
SMALL = {"torso": (8,), "model_size": 5, "head_hidden": 4, "memory_size": 8}
MEMORIES = {
    "none": NetworkConfig(**SMALL),
    "gru": NetworkConfig(**SMALL, memory="gru"),
    "lstm": NetworkConfig(**SMALL, memory="lstm"),
    "transformer": NetworkConfig(
        **SMALL, memory="transformer", memory_window=4, memory_layers=1, memory_heads=2
    ),
}
BODIES = {
    "mlp": (VECTOR, MEMORIES["none"]),
    "conv": (IMAGE, replace(MEMORIES["none"], body="conv", channels=(4,))),
    "impala": (IMAGE, replace(MEMORIES["none"], body="impala", channels=(4,))),
    "nature": (
        ArraySpec((4, 36, 36), torch.uint8, 1 / 255),
        replace(MEMORIES["none"], body="nature", channels=(4, 4, 4)),
    ),
    "bag": (ArraySpec((6,), torch.uint8, kinds=7), MEMORIES["none"]),
    "map": (ArraySpec((5, 4), torch.uint8, kinds=7), MEMORIES["none"]),
}


def to_meta(tree):
    return tree_map(lambda tensor: tensor.to("meta"), tree)


def assert_on_meta(tree):
    found = flatten(tree)
    assert found
    assert {name for name, tensor in found.items() if tensor.device.type != "meta"} == set()


def observations(spec, *shape):
    return torch.zeros(*shape, *spec.shape, dtype=spec.dtype, device="meta")


def zeros(*shape, dtype=None):
    return torch.zeros(*shape, dtype=dtype, device="meta")


def experience(spec, agent, cut_off=True, batch=BATCH, length=LENGTH):
    memory = agent.initial_memory(batch, "meta")
    return Rollout(
        observations=observations(spec, length, batch),
        actions=zeros(length, batch, dtype=torch.int64),
        rewards=zeros(length, batch),
        discounts=zeros(length, batch),
        logits=zeros(length, batch, ACTIONS),
        final=zeros(length, batch, dtype=torch.bool) if cut_off else None,
        memory=memory and {name: tensor.unsqueeze(0) for name, tensor in memory.items()},
    )


def make(rule, spec=VECTOR, network=MEMORIES["none"]):
    agent = Network.for_observations(spec, rule.heads(ACTIONS), network)
    optimiser = ClippedAdam(Schedule(0.01, 10, warmup_steps=2), weight_decay=0.1)
    learner = Learner(agent, rule.to(device="meta"), optimiser)
    newborn = learner.agent.init(torch.Generator().manual_seed(0))
    return learner, learner.init_from(to_meta(newborn))


@pytest.fixture(params=["disco", "actor_critic"])
def rule(request, tiny_rule):
    if request.param == "disco":
        return tiny_rule
    return ActorCritic(
        num_bins=21, max_abs_value=10.0, normalize_advantage=True, entropy_fall=1.0, run_updates=10
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_learner_step(rule, memory):
    learner, state = make(rule, network=MEMORIES[memory])
    for cut_off in (False, True):
        rollout = experience(VECTOR, learner.agent, cut_off)
        state, metrics = learner.step(state, rollout)
        assert_on_meta(state)
        assert_on_meta(metrics)
    new, _ = learner.step(state, rollout, differentiable=True)
    assert_on_meta(new)


@pytest.mark.parametrize("body", BODIES)
def test_a_learner_step_on_what_is_seen(tiny_rule, body):
    spec, network = BODIES[body]
    learner, state = make(tiny_rule, spec, network)
    new, _ = learner.step(state, experience(spec, learner.agent))
    assert_on_meta(new)


def test_a_rule_that_is_told_advantages():
    learner, state = make(PolicyGradient())
    rollout = experience(VECTOR, learner.agent)
    told = replace(rollout.transitions(), advantages=zeros(LENGTH - 1, BATCH))
    outputs = learner.agent.outputs(state.params, rollout.inputs())
    targets, _ = learner.rule.targets(outputs, None, told, state.rule)
    assert_on_meta(learner.rule.loss(outputs, targets, told))


def test_a_stack_of_agents(rule):
    learner, state = make(rule)
    learner = replace(learner, each=Each(2))
    rollout = experience(VECTOR, learner.agent, batch=2 * BATCH)
    new, metrics = learner.step(stack([state, state]), rollout)
    assert_on_meta(new)
    assert_on_meta(metrics)


@pytest.mark.parametrize("mode", ["reverse", "mixed"])
@pytest.mark.parametrize("agents", [None, 2])
def test_a_meta_step(tiny_rule, mode, agents):
    learner, state = make(tiny_rule)
    values = ValueFunction(VECTOR, ValueConfig(value_torso=(8,)))
    value_state = to_meta(values.init(torch.Generator().manual_seed(0)))
    rollout = experience(VECTOR, learner.agent, batch=BATCH * (agents or 1))
    if agents:
        learner = replace(learner, each=Each(agents))
        state, value_state = stack([state] * agents), stack([value_state] * agents)
    valid = experience(VECTOR, learner.agent, batch=BATCH * (agents or 1), length=2 * LENGTH)
    result = meta_gradient(
        learner, state, values, value_state, [rollout, rollout], valid, mode=mode
    )
    for part in (result.grads, result.state, result.value_state, result.metrics):
        assert_on_meta(part)


def test_replay(tiny_rule):
    learner, state = make(tiny_rule, network=MEMORIES["gru"])
    rollout = experience(VECTOR, learner.agent)
    memory = {name: tuple(t.shape[2:]) for name, t in rollout.memory.items()}
    spec = ReplaySpec(VECTOR, ACTIONS, final=True, memory=memory)
    replay = Replay(10, LENGTH, spec, "meta")
    for _ in range(4):
        replay.add(rollout)
    draws = torch.Generator().manual_seed(0)
    assert_on_meta(replay.sample(5, draws))
    assert_on_meta(replay.read(replay.oldest_first()))
    mind = Mind(learner, state, ReplayConfig(8, 16, 0.5), draws, burn_in=2)
    mind.replay = replay
    mind.store(rollout)
    batch = mind.batch(rollout)
    assert_on_meta(mind.learn(batch))
    assert_on_meta(burn_in(learner.agent, state.params, batch, 2))
    assert_on_meta(mind.state)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("resets", [False, True])
def test_an_actor(rule, memory, resets):
    learner, state = make(rule, network=MEMORIES[memory])
    agent = learner.agent
    before = remembered = agent.initial_memory(BATCH, "meta")
    flags = zeros(BATCH, dtype=torch.bool)
    step = TimeStep(
        observations(VECTOR, BATCH), zeros(BATCH), flags, flags, flags if resets else None
    )
    steps, actions, logits = [], [], []
    for greedy in (False, True):
        found, remembered = policy_step(agent, state.params, step, remembered)
        steps.append(step)
        actions.append(choose(found, None, greedy))
        logits.append(found)
    rollout = Rollout.from_steps(steps, actions, logits, before)
    assert_on_meta(rollout)
    assert_on_meta(learner.step(state, rollout)[0])


@pytest.mark.parametrize("body", [b for b in BODIES if b != "bag"])  # It has no layers.
def test_bodies_in_half_precision(tiny_rule, body):
    """What a body computes is coarse; parameters, heads and losses are not. On the host, because
    autocast knows no `meta` device."""
    spec, network = BODIES[body]
    network = replace(network, bfloat16=True)
    agent = Network.for_observations(spec, tiny_rule.heads(ACTIONS), network)
    learner = Learner(agent, tiny_rule, ClippedAdam(Schedule(0.01)))
    state = learner.init(torch.Generator().manual_seed(0))
    rollout = tree_map(lambda t: torch.zeros_like(t, device="cpu"), experience(spec, agent))
    with Products() as seen:
        new, metrics = learner.step(state, rollout)
    assert torch.bfloat16 in seen.types["addmm"]
    assert seen.types.get("convolution", {torch.bfloat16}) == {torch.bfloat16}
    for tree in (new, metrics, agent.outputs(state.params, rollout.inputs())):
        floats = {t.dtype for t in flatten(tree).values() if t.is_floating_point()}
        assert floats == {torch.float32}


class Products(TorchDispatchMode):
    """Notes in which types layers are computed."""

    def __init__(self):
        super().__init__()
        self.types = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function).split(".")[1]
        if name in ("convolution", "addmm"):
            found = {arg.dtype for arg in args[:3] if isinstance(arg, torch.Tensor)}
            self.types[name] = self.types.get(name, set()) | found
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["sprout", "sapling", "disco103"])
def test_a_named_rule(name, request):
    path = request.getfixturevalue("disco103_path") if name == "disco103" else name
    learner, state = make(load_rule(path))
    assert_on_meta(learner.step(state, experience(VECTOR, learner.agent)))


def test_environments_on_the_host():
    """Gymnasium's compute there; what they show goes to the agent's device."""
    env = discorl.make_environment("CartPole-v1", 2, device="meta")
    with closing(env):
        assert_on_meta(env.reset(seed=0))
        assert_on_meta(env.step(torch.zeros(2, dtype=torch.int64)))


def test_to_a_gpu_nobody_waits():
    class Pretended:
        sent = ()

        def pin_memory(self):
            self.sent += ("pinned",)
            return self

        def to(self, device, non_blocking=False):
            self.sent += (str(device), non_blocking)
            return self

    assert send(Pretended(), torch.device("cuda:1")).sent == ("pinned", "cuda:1", True)
    assert send(Pretended(), torch.device("cpu")).sent == ("cpu", False)


def test_scaled_rewards():
    scaler = RewardScaler(BATCH, "meta")
    rewards = zeros(LENGTH, BATCH)
    for _ in range(2):
        scaler.observe(rewards, zeros(LENGTH, BATCH, dtype=torch.bool))
    assert_on_meta(scaler.shrink(rewards))
    assert_on_meta(scaler.normalize(rewards, 2.0))
