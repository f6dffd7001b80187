"""Token sequences as trajectories: what is stored, and what is learned from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import discorl
from discorl.agents.module import SequenceModuleAgent
from discorl.errors import DiscorlError
from discorl.learner import Learner
from discorl.own_loop.tokens import token_rollout
from discorl.rollout import Rollout, Window
from discorl.rules.actor_critic import ActorCritic
from discorl.tree import flatten

A, START = 5, 5
f64 = torch.float64


class Reader(nn.Module):
    """Reads the mean of a sequence's tokens so far, and of its prompt; nothing of another's."""

    def __init__(self, rule: discorl.UpdateRule) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(A + 1, 6)
        config = discorl.NetworkConfig(model_size=4, head_hidden=4)
        self.heads = discorl.DiscoHeads(6, A, rule, config)

    def forward(self, observations: Tensor | dict[str, Tensor], should_reset: Tensor):
        plain = isinstance(observations, Tensor)
        x = self.embed(observations if plain else observations["token"])
        episode = should_reset.cumsum(dim=0)
        seen = (episode[:, None] == episode).to(x.dtype)
        seen = seen * torch.ones(len(x), len(x), dtype=x.dtype).tril().unsqueeze(-1)
        x = torch.einsum("tsb,sbf->tbf", seen / seen.sum(dim=1, keepdim=True), x)
        if not plain and "prompt" in observations:
            x = x + self.embed(observations["prompt"]).mean(dim=-2)
        return self.heads(torch.tanh(x))

    def forward_step(self, observations, state):
        return self(observations.unsqueeze(0), torch.ones(1, len(observations))), state


def sample(batch=3, size=4, seed=0, dtype=f64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randint(A, (batch, size), generator=generator),
        torch.randn(batch, size, generator=generator, dtype=dtype),
        torch.randn(batch, size, A, generator=generator, dtype=dtype),
    )


def update(rule: discorl.UpdateRule, rollout: Rollout, first_steps: bool = True):
    """Gradients and targets of one update of a newborn reader."""
    module = Reader(rule).to(f64)
    agent = SequenceModuleAgent(module, rule.heads(A))
    learner = Learner(agent, rule, discorl.ClippedAdam(discorl.Schedule(0.01)), first_steps)
    state = learner.init_from(agent.init(torch.Generator()))
    return learner.update(state, replace(rollout, memory={}))


def test_a_stored_step_is_a_token_and_the_one_before_it():
    tokens = torch.tensor([[3, 1, 4], [2, 0, 2]])
    rewards = torch.tensor([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]])
    logits = torch.randn(2, 3, A)
    rollout = token_rollout(tokens, rewards, logits, START)
    assert rollout.observations.t().tolist() == [[5, 3, 1, 5], [5, 2, 0, 5]]
    transitions = rollout.transitions()
    assert torch.equal(transitions.actions.t(), tokens)
    assert torch.equal(transitions.rewards.t(), rewards)
    assert torch.equal(transitions.behaviour_logits.transpose(0, 1), logits)
    assert transitions.terminals.t().tolist() == [[False, False, True]] * 2
    assert rollout.firsts().t().tolist() == [[True, False, False, True]] * 2
    assert rollout.loss_mask(first_steps=True).all()
    assert rollout.final is None


def test_the_learner_reads_the_whole_sequence_at_once(tiny_rule):
    agent = Reader(tiny_rule)
    seen = []
    agent.embed.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    trainer = discorl.DiscoTrainer(agent, tiny_rule, batch_size=None, learn_first_steps=True)
    before = [p.clone() for p in agent.parameters()]
    logs = trainer.step(token_rollout(*sample(dtype=torch.float32), START))
    assert logs["total_loss"] > 0
    assert seen[-1].shape == (5, 3)
    assert any(not torch.equal(p, q) for p, q in zip(agent.parameters(), before, strict=True))


def test_sequences_go_through_replay(tiny_rule):
    agent = Reader(tiny_rule)
    trainer = discorl.DiscoTrainer(agent, tiny_rule, batch_size=4, learn_first_steps=True)
    prompt, lengths = torch.tensor([[1, 2], [3, 4], [0, 0]]), torch.tensor([4, 2, 1])
    for seed in range(2):
        tokens, rewards, logits = sample(seed=seed)
        logs = trainer.step(token_rollout(tokens, rewards, logits, START, prompt, lengths))
    assert logs["total_loss"] > 0


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 99), st.booleans())
def test_steps_behind_an_end_do_not_count(lengths, seed, first_steps):
    # Given sequences of different lengths, with anything behind their ends
    rule = ActorCritic(num_bins=21, max_abs_value=10.0)
    tokens, rewards, logits = sample(len(lengths), 6, seed)
    rollout = token_rollout(tokens, rewards, logits, START, lengths=torch.tensor(lengths))
    mask = rollout.loss_mask(first_steps).sum()
    assert mask == sum(lengths) - (0 if first_steps else len(lengths))
    # When they are learned from at once, and each by itself in a rollout of its own length
    together = update(rule, rollout, first_steps).grads
    weighted = {name: torch.zeros_like(g) for name, g in together.items()}
    for b, n in enumerate(lengths):
        alone = token_rollout(
            tokens[b : b + 1, :n], rewards[b : b + 1, :n], logits[b : b + 1, :n], START
        )
        count = alone.loss_mask(first_steps).sum()
        for name, g in update(rule, alone, first_steps).grads.items():
            weighted[name] += g * count / mask.clamp(min=1)
    # Then the gradients are the same
    for name, g in together.items():
        torch.testing.assert_close(g, weighted[name], rtol=1e-6, atol=1e-9)


def test_what_is_behind_an_end_is_not_read(tiny_rule):
    lengths = torch.tensor([2, 4, 1])
    one = token_rollout(*sample(seed=1), START, lengths=lengths)
    tokens, rewards, logits = sample(seed=1)
    behind = torch.arange(4) >= lengths.unsqueeze(-1)
    tokens[behind], rewards[behind], logits[behind] = 0, torch.nan, torch.nan
    other = token_rollout(tokens, rewards, logits, START, lengths=lengths)
    for name, tensor in flatten(one).items():
        assert torch.equal(tensor, flatten(other)[name]), name
    rule = tiny_rule.to(f64)
    assert all(g.isfinite().all() for g in update(rule, one).grads.values())


def test_a_discovered_rule_sees_no_return_of_steps_behind_an_end(tiny_rule):
    rule, lengths = tiny_rule.to(f64), [2, 4, 1]
    tokens, rewards, logits = sample()
    found = update(
        rule, token_rollout(tokens, rewards, logits, START, lengths=torch.tensor(lengths))
    ).targets
    for b, n in enumerate(lengths):
        alone = token_rollout(
            tokens[b : b + 1, :n], rewards[b : b + 1, :n], logits[b : b + 1, :n], START
        )
        expected = update(rule, alone).targets.returns
        for name in ("q_target", "advantage", "q_td"):
            of_sequence = getattr(found.returns, name)[:n, b]
            torch.testing.assert_close(of_sequence, getattr(expected, name)[:, 0], msg=name)
        assert not found.returns.advantage[n:, b].any()


def test_full_lengths_are_exactly_no_lengths(tiny_rule):
    rule = tiny_rule.to(f64)
    plain = update(rule, token_rollout(*sample(), START)).grads
    full = update(rule, token_rollout(*sample(), START, lengths=torch.tensor([4, 4, 4]))).grads
    for name, g in plain.items():
        assert torch.equal(full[name], g), name


def test_prompts_are_read_and_are_no_actions(tiny_rule):
    tokens, rewards, logits = sample()
    prompt = torch.tensor([[1, 2], [3, 4], [0, 0]])
    rollout = token_rollout(tokens, rewards, logits, START, prompt=prompt)
    plain = token_rollout(tokens, rewards, logits, START)
    assert torch.equal(rollout.observations["token"], plain.observations)
    assert torch.equal(rollout.actions, plain.actions)
    assert all(torch.equal(step, prompt) for step in rollout.observations["prompt"])
    # Every step depends on its own prompt alone.
    module = Reader(tiny_rule).to(f64)
    window = replace(rollout, memory={}).inputs()
    assert isinstance(window, Window)
    changed = {**rollout.observations, "prompt": rollout.observations["prompt"].clone()}
    changed["prompt"][:, 0] = 4
    firsts = window.firsts.to(f64)
    moved = module(rollout.observations, firsts)["logits"] != module(changed, firsts)["logits"]
    assert moved[:, 0].any(dim=-1).all()
    assert not moved[:, 1:].any()


def test_candidates_make_ranks_of_tokens():
    tokens = torch.tensor([[70, 30], [90, 90]])
    candidates = torch.tensor([[[10, 70], [30, 20]], [[90, 80], [50, 60]]])
    lengths = torch.tensor([2, 1])
    rollout = token_rollout(
        tokens, torch.ones(2, 2), torch.zeros(2, 2, 2), 99, lengths=lengths, candidates=candidates
    )
    assert rollout.actions.t().tolist() == [[1, 0, 0], [0, 0, 0]]
    assert rollout.observations["token"].t().tolist() == [[99, 70, 99], [99, 90, 99]]
    found = rollout.observations["candidates"].transpose(0, 1)
    assert torch.equal(found, torch.cat([candidates, candidates[:, :1]], dim=1))
    assert rollout.num_actions == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": torch.zeros(4)}, "tokens: expected .B, S."),
        ({"tokens": torch.zeros(3, 4)}, "tokens: expected integers"),
        ({"rewards": torch.zeros(3, 1)}, "rewards: expected floats"),
        ({"rewards": torch.zeros(3, 4, dtype=torch.int64)}, "rewards: expected floats"),
        ({"logits": torch.zeros(3, 4)}, "logits: expected"),
        ({"prompt": torch.zeros(2, 1, dtype=torch.int64)}, "prompt: expected"),
        ({"lengths": torch.tensor([0, 1, 4])}, "lengths: expected .3. numbers from 1 to 4"),
        ({"lengths": torch.tensor([5, 1, 4])}, "lengths: expected"),
        ({"candidates": torch.zeros(3, 4, 2, dtype=torch.int64)}, "candidates: expected"),
        ({"candidates": torch.full((3, 4, A), 9)}, "top_k_candidates"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    tokens, rewards, logits = sample()
    given = {"tokens": tokens, "rewards": rewards, "logits": logits, "start": START}
    with pytest.raises(DiscorlError, match=message):
        token_rollout(**{**given, **changes})
