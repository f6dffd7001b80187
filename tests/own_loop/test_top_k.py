"""Heads for a few candidates out of a vocabulary."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import discorl
from discorl.errors import DiscorlError
from discorl.own_loop.heads import DiscoHeads
from discorl.own_loop.tokens import token_rollout
from discorl.own_loop.top_k import TopKHeads, top_k_candidates
from discorl.rules.actor_critic import ActorCritic

f64 = torch.float64
SMALL = discorl.NetworkConfig(model_size=5, head_hidden=4, value_width=1.0, action_head_std=0.001)


@given(st.integers(1, 9), st.integers(0, 99))
def test_candidates_are_the_likeliest_with_the_token_taken(k, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 2, 9, generator=generator)
    taken = torch.randint(9, (3, 2), generator=generator)
    plain, with_taken = top_k_candidates(logits, k), top_k_candidates(logits, k, taken)
    likely = logits.gather(-1, plain)
    assert torch.equal(likely, logits.sort(dim=-1, descending=True).values[..., :k])
    assert (with_taken == taken.unsqueeze(-1)).sum(dim=-1).eq(1).all()
    # No token comes twice, and nothing else moves.
    assert all(len(set(row)) == k for row in with_taken.flatten(0, 1).tolist())
    present = (plain == taken.unsqueeze(-1)).any(dim=-1)
    assert torch.equal(with_taken[present], plain[present])
    assert torch.equal(with_taken[..., :-1], plain[..., :-1])


def test_candidates_that_cannot_be_are_named():
    with pytest.raises(DiscorlError, match="k: expected 1 to 4"):
        top_k_candidates(torch.zeros(2, 4), 5)
    with pytest.raises(DiscorlError, match=r"taken: expected \[2\]"):
        top_k_candidates(torch.zeros(2, 4), 2, taken=torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(DiscorlError, match="k: expected 1 to 4"):
        TopKHeads(8, 4, 5, ActorCritic())
    with pytest.raises(DiscorlError, match=r"candidates: expected \[3, 2\], got \[2\]"):
        TopKHeads(8, 4, 2, ActorCritic())(torch.zeros(3, 8), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_heads_have_the_rules_shapes(tiny_rule, lead):
    heads = TopKHeads(7, 100, 4, tiny_rule, SMALL)
    outputs = heads(torch.randn(*lead, 7), torch.randint(100, (*lead, 4)))
    spec = tiny_rule.heads(4)
    expected = {**spec.state, **{name: (4, *shape) for name, shape in spec.action.items()}}
    assert {name: tuple(head.shape) for name, head in outputs.items()} == {
        name: (*lead, *shape) for name, shape in expected.items()
    }
    assert set(TopKHeads(7, 100, 4, "actor_critic")(torch.zeros(7), torch.arange(4))) == {
        "logits",
        "v",
    }


def test_a_newborn_expects_nothing_and_prefers_nothing():
    heads = TopKHeads(16, 1000, 8)
    assert "16, 1000, k=8, heads=['logits', 'y', 'z', 'aux_pi', 'q']" in repr(heads)
    outputs = heads(torch.randn(5, 16), torch.randint(1000, (5, 8)))
    sprout = discorl.load_rule("sprout").config
    bins = torch.linspace(-sprout.max_abs_value, sprout.max_abs_value, sprout.num_bins)
    assert (torch.softmax(outputs["q"], dim=-1) * bins).sum(dim=-1).abs().max() < 0.1
    assert outputs["logits"].abs().max() < 0.5


def all_actions(heads: TopKHeads, rule: discorl.UpdateRule, size: int) -> DiscoHeads:
    """The heads of all actions that are the same function, written without embeddings."""
    full = DiscoHeads(size, heads.vocabulary, rule, SMALL).to(f64)
    state = {name: p for name, p in heads.state_dict().items() if name in full.state_dict()}
    embedding = heads.embedding.weight
    state["head.logits.weight"] = embedding @ heads.query.weight
    state["head.logits.bias"] = heads.bias
    state["model.action"] = embedding @ heads.action.weight.t()
    full.load_state_dict(state)
    return full


def test_with_all_candidates_they_are_the_heads_of_all_actions(tiny_rule):
    torch.manual_seed(0)
    heads = TopKHeads(7, 6, 6, tiny_rule, SMALL).to(f64)
    nn.init.normal_(heads.bias)
    features = torch.randn(2, 3, 7, dtype=f64)
    everyone = torch.arange(6).expand(2, 3, 6)
    expected = all_actions(heads, tiny_rule, 7)(features)
    found = heads(features, everyone)
    for name, head in expected.items():
        torch.testing.assert_close(found[name], head, rtol=0, atol=1e-12, msg=name)
    torch.testing.assert_close(heads.vocabulary_logits(features), found["logits"])


def test_a_candidates_heads_are_the_tokens_own_at_any_rank(tiny_rule):
    torch.manual_seed(0)
    heads = TopKHeads(7, 6, 3, tiny_rule, SMALL).to(f64)
    features = torch.randn(4, 7, dtype=f64)
    candidates = torch.stack([torch.randperm(6)[:3] for _ in range(4)])
    found = heads(features, candidates)
    torch.testing.assert_close(
        found["logits"], heads.vocabulary_logits(features).gather(-1, candidates)
    )
    turned = heads(features, candidates.flip(-1))
    for name in ("logits", "z", "q"):
        torch.testing.assert_close(turned[name], found[name].flip(1), msg=name)


def test_only_candidates_learn(tiny_rule):
    heads = TopKHeads(7, 10, 3, tiny_rule, SMALL).to(f64)
    outputs = heads(torch.randn(2, 7, dtype=f64), torch.tensor([[1, 4, 7], [4, 1, 2]]))
    sum(head.square().sum() for head in outputs.values()).backward()
    assert all(p.grad is not None and p.grad.any() for p in heads.parameters())
    learned = [1, 2, 4, 7]
    assert heads.embedding.weight.grad.any(dim=-1).nonzero().flatten().tolist() == learned
    assert heads.bias.grad.nonzero().flatten().tolist() == learned


def test_gradients_are_right(tiny_rule):
    torch.manual_seed(0)
    heads = TopKHeads(4, 5, 2, tiny_rule, SMALL).to(f64)
    candidates = torch.tensor([[1, 4], [0, 1]])

    def outputs(features: Tensor) -> tuple[Tensor, ...]:
        return tuple(heads(features, candidates).values())

    features = torch.randn(2, 4, dtype=f64, requires_grad=True)
    assert torch.autograd.gradcheck(outputs, (features,))


def test_they_are_an_ordinary_module(tiny_rule):
    torch.manual_seed(3)
    heads = TopKHeads(7, 20, 3, tiny_rule, SMALL)
    torch.manual_seed(3)
    again = TopKHeads(7, 20, 3, tiny_rule, SMALL)
    given = torch.randn(2, 7), torch.randint(20, (2, 3))
    assert torch.equal(heads(*given)["q"], again(*given)["q"])
    other = TopKHeads(7, 20, 3, tiny_rule, SMALL)
    assert not torch.equal(heads(*given)["z"], other(*given)["z"])
    other.load_state_dict(heads.state_dict())
    assert torch.equal(heads(*given)["z"], copy.deepcopy(other)(*given)["z"])


class Follower(nn.Module):
    """An agent that says what follows a token of a thousand."""

    def __init__(self, rule: discorl.UpdateRule, vocabulary=1000, k=8) -> None:
        super().__init__()
        self.k = k
        self.embed = nn.Embedding(vocabulary + 1, 32)
        self.heads = TopKHeads(32, vocabulary, k, rule)

    def forward(self, observations: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.heads(self.embed(observations["token"]), observations["candidates"])

    @torch.no_grad()
    def write(self, count: int, size: int, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [B, S], candidates and their logits [B, S, k]."""
        token, steps = torch.full((count,), start), []
        for _ in range(size):
            candidates = top_k_candidates(self.heads.vocabulary_logits(self.embed(token)), self.k)
            logits = self({"token": token, "candidates": candidates})["logits"]
            rank = torch.multinomial(logits.softmax(dim=-1), 1)
            token = candidates.gather(-1, rank).squeeze(-1)
            steps.append((token, candidates, logits))
        tokens, candidates, logits = zip(*steps, strict=True)
        return torch.stack(tokens, 1), torch.stack(candidates, 1), torch.stack(logits, 1)


def test_an_agent_with_a_vocabulary_learns_from_its_candidates():
    # Given a reward for each even token out of a thousand
    torch.manual_seed(0)
    rule = ActorCritic(entropy_cost=0.01)
    agent = Follower(rule)
    trainer = discorl.DiscoTrainer(agent, rule, lr=0.01, batch_size=None, learn_first_steps=True)
    untrained = (agent.write(500, 4, start=1000)[0] % 2 == 0).float().mean()
    # When the agent learns from what it writes
    for _ in range(60):
        tokens, candidates, logits = agent.write(32, 4, start=1000)
        rewards = 1.0 - tokens % 2
        trainer.step(token_rollout(tokens, rewards, logits, 1000, candidates=candidates))
    # Then it writes even tokens
    assert untrained < 0.7
    assert (agent.write(500, 4, start=1000)[0] % 2 == 0).float().mean() > 0.95
