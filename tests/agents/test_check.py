"""What can be wrong with a module, and what it is told."""

import pytest
import torch
from torch import nn

import discorl
from discorl.agents.check import check_parameters
from discorl.errors import DiscorlError
from discorl.own_loop.check import check_agent

A = 3
OBSERVATIONS = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def rule(tiny_rule):
    return tiny_rule


class Plain(nn.Module):
    """A sound agent; the faulty ones below spoil one thing each."""

    def __init__(self, rule):
        super().__init__()
        torch.manual_seed(0)
        spec = rule.heads(A)
        shapes = {**spec.state, **{name: (A, *s) for name, s in spec.action.items()}}
        self.shapes = shapes
        self.torso = nn.Linear(6, 8)
        self.heads = nn.ModuleDict(
            {n: nn.Linear(8, torch.Size(s).numel()) for n, s in shapes.items()}
        )

    def features(self, x):
        return torch.relu(self.torso(x))

    def forward(self, x):
        h = self.features(x)
        return {n: self.heads[n](h).unflatten(-1, s) for n, s in self.shapes.items()}


class Missing(Plain):
    def forward(self, x):
        heads = super().forward(x)
        del heads["q"]
        return heads


class Shape(Plain):
    def forward(self, x):
        heads = super().forward(x)
        return heads | {"z": heads["z"][..., :-1]}


class Detached(Plain):
    def forward(self, x):
        heads = super().forward(x)
        return heads | {"y": heads["y"].detach()}


class Ignoring(Plain):
    def forward(self, x):
        heads = super().forward(x)
        return heads | {"y": torch.zeros_like(heads["y"])}


class Foreign(Plain):
    def forward(self, x):
        heads = super().forward(x)
        return heads | {"y": torch.zeros_like(heads["y"]).requires_grad_()}


class Unregistered(Plain):
    def __init__(self, rule):
        super().__init__(rule)
        self.torsos = [nn.Linear(6, 8)]

    def features(self, x):
        return torch.relu(self.torsos[0](x))


class MixedBatch(Plain):
    def features(self, x):
        h = super().features(x)
        return h - h.mean(dim=-2, keepdim=True)


class Transposing(Plain):
    def features(self, x):
        h = super().features(x)
        # Takes the first dimension for the batch whether there is one before it or not.
        return h + h.flip(0) if h.dim() == 3 else h


class TakesOneDimension(Plain):
    def features(self, x):
        return super().features(x.flatten(1))


class Tuple(Plain):
    def forward(self, x):
        return tuple(super().forward(x).values())


class Noisy(Plain):
    def __init__(self, rule):
        super().__init__(rule)
        self.dropout = nn.Dropout()

    def features(self, x):
        return self.dropout(super().features(x))


class Normalising(Plain):
    def __init__(self, rule):
        super().__init__(rule)
        self.norm = nn.BatchNorm1d(8)

    def features(self, x):
        h = super().features(x)
        return self.norm(h.flatten(0, -2)).reshape(h.shape)


OUTPUT_FAULTS = {
    Missing: r"head 'q' is missing, it gave \['aux_pi', 'logits', 'y', 'z'\].*\[\.\.\., 3, 21\]",
    Shape: r"head 'z' is \[3, 4, 3, 11\].*expected \[3, 4, 3, 12\]",
    Detached: r"head 'y' is detached from the parameters",
    Ignoring: r"head 'y' ignores the parameters",
    Foreign: r"head 'y' reads a tensor \[3, 4, 12\].*not among the module's parameters",
    Unregistered: r"reads a tensor \[8(, 6)?\].*nn\.ModuleList",
    MixedBatch: r"depends on the others in its batch",
    Transposing: r"differs between observations \[B, \.\.\.\] and \[T, B, \.\.\.\]",
    TakesOneDimension: r"forward failed on observations float32 \[3, 4, 6\].*leading dimensions",
    Tuple: r"gave tuple; return a dictionary",
    Noisy: r"differs from call to call.*eval\(\)",
    Normalising: r"norm is BatchNorm in training mode.*LayerNorm",
}


def test_a_sound_agent_passes(rule):
    check_agent(Plain(rule), OBSERVATIONS, A, rule)
    check_agent(Plain(rule), OBSERVATIONS[:2, :1], A, rule)
    check_agent(
        nn.Sequential(nn.Linear(6, 8), discorl.DiscoHeads(8, A, rule)), OBSERVATIONS, A, rule
    )


@pytest.mark.parametrize("faulty", OUTPUT_FAULTS, ids=lambda c: c.__name__)
def test_each_fault_has_its_message(rule, faulty):
    with pytest.raises(DiscorlError, match=OUTPUT_FAULTS[faulty]):
        check_agent(faulty(rule), OBSERVATIONS, A, rule)


@pytest.mark.parametrize("faulty", [Noisy, Normalising])
def test_in_evaluation_mode_dropout_and_batch_norm_are_welcome(rule, faulty):
    check_agent(faulty(rule).eval(), OBSERVATIONS, A, rule)


def test_frozen_parameters_are_welcome_but_not_only_those(rule):
    agent = Plain(rule)
    agent.torso.requires_grad_(False)
    check_agent(agent, OBSERVATIONS, A, rule)
    with pytest.raises(DiscorlError, match="no parameters to learn"):
        check_agent(agent.requires_grad_(False), OBSERVATIONS, A, rule)
    with pytest.raises(DiscorlError, match="no parameters to learn"):
        check_parameters(nn.Flatten())


def test_parameters_that_cannot_be_learned(rule):
    agent = Plain(rule)
    agent.table = nn.Parameter(torch.arange(3), requires_grad=False)
    with pytest.raises(DiscorlError, match=r"table holds int64.*register_buffer"):
        check_parameters(agent)
    with pytest.raises(DiscorlError, match=r"are bfloat16.*autocast"):
        check_parameters(Plain(rule).bfloat16())
    agent = Plain(rule)
    agent.torso.double()
    with pytest.raises(DiscorlError, match="are float32 and float64"):
        check_parameters(agent)
    with pytest.raises(DiscorlError, match=r"0\.weight has no shape yet"):
        check_parameters(nn.Sequential(nn.LazyLinear(3)))


def test_parameters_on_another_device(rule):
    with pytest.raises(DiscorlError, match=r'is on cpu, not on meta; .*agent\.to\("meta"\)'):
        check_parameters(Plain(rule), torch.device("meta"))
    agent = Plain(rule)
    agent.heads.to("meta")
    with pytest.raises(DiscorlError, match=r"heads\.\w+\.weight is on meta, not on cpu"):
        check_parameters(agent)


def test_what_is_no_module_is_pointed_elsewhere(rule):
    network = discorl.Network.mlp((6,), rule.heads(A))
    with pytest.raises(DiscorlError, match=r"discorl\.Learner"):
        check_agent(network, OBSERVATIONS, A, rule)
    with pytest.raises(DiscorlError, match=r"expected a torch\.nn\.Module, got function"):
        check_agent(lambda x: x, OBSERVATIONS, A, rule)


class Stepping(Plain):
    """In disco-torch's style."""

    bias = 0.0

    def forward(self, observations, should_reset):
        assert should_reset.shape == observations.shape[:2]
        return super().forward(observations)

    def forward_step(self, observations, state):
        heads = super().forward(observations)
        return heads | {"logits": heads["logits"] + self.bias}, state

    def init_lstm_state(self, batch, device):
        return torch.zeros(batch, 4, device=device), torch.zeros(batch, 4, device=device)


def test_acting_and_learning_must_agree(rule):
    agent = Stepping(rule)
    check_agent(agent, OBSERVATIONS, A, rule)
    agent.bias = 1.0
    with pytest.raises(DiscorlError, match="forward_step and forward give different logits"):
        check_agent(agent, OBSERVATIONS, A, rule)


def test_a_low_precision_is_no_fault(rule):
    class Coarse(Plain):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x)

    check_agent(Coarse(rule), OBSERVATIONS, A, rule)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dictionaries_are_observations_too(rule, dtype):
    class Reader(Plain):
        def features(self, x):
            return super().features(torch.cat([x["a"], x["b"].to(x["a"].dtype)], dim=-1))

    left = OBSERVATIONS[..., :4].to(dtype)
    right = torch.randint(256, (4, 5, 2), dtype=torch.uint8)
    check_agent(Reader(rule).to(dtype), {"a": left, "b": right}, A, rule)
