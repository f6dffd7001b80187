"""Sampled token sequences as trajectories, for language models that learn from rewards."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl.rollout import Rollout


def token_rollout(
    tokens: Tensor,
    rewards: Tensor,
    logits: Tensor,
    start: int,
    prompt: Tensor | None = None,
    lengths: Tensor | None = None,
    candidates: Tensor | None = None,
) -> Rollout:
    """Sequences as trajectories of one episode each: [L, B] with L = S + 1 stored steps.

    The observation of step t is the token before token t, the action is token t, and the episode
    ends with the last token. The step stored after it is the beginning of another sequence that
    nobody wrote: nothing is bootstrapped from it.

    Args:
      tokens: [B, S] integers, as they were sampled; the actions.
      rewards: [B, S]; each belongs to its token.
      logits: [B, S, A]: the policy that each token was drawn from.
      start: the token that comes before the first one.
      prompt: [B, P] integers, the same for all steps of a sequence. Then observations are a
        dictionary of `token` [L, B] and `prompt` [L, B, P]: the prompt is read at every step and
        is never an action.
      lengths: [B] integers from 1 to S: how many tokens there are in each sequence; what comes
        after them is not read. Those steps are marked by `Rollout.final`: they are in no loss
        and no return. But a discovered rule also averages over all steps of a batch, and there
        each counts as an advantage of zero; if lengths differ much, keep similar ones together.
      candidates: [B, S, A] tokens to choose from in each step, for `TopKHeads`. Then the action
        is a token's rank among them, and observations are a dictionary with `candidates`
        [L, B, A] besides `token`.
    """
    _check(tokens, rewards, logits)
    _check_extras(tokens, prompt, lengths)
    size = tokens.shape[1]
    steps = torch.arange(size + 1, device=tokens.device).unsqueeze(-1)
    ends = torch.full_like(tokens[:, 0], size) if lengths is None else lengths
    over = steps >= ends
    chosen = tokens
    # A token is observed one step later, and what it earned arrives with it.
    begins = (steps == 0) | (steps > ends) | (steps == size)
    observed = {"token": _later(tokens).masked_fill(begins, start)}
    if prompt is not None:
        observed["prompt"] = prompt.expand(size + 1, -1, -1)
    if candidates is not None:
        chosen = _ranks(tokens, candidates, logits, over[:-1].t())
        # The last step is a beginning, with the candidates of one.
        observed["candidates"] = torch.cat([candidates, candidates[:, :1]], dim=1).transpose(0, 1)
    return Rollout(
        observations=observed["token"] if len(observed) == 1 else observed,
        actions=_timed(chosen).masked_fill(over, 0),
        rewards=_later(rewards).masked_fill(steps > ends, 0),
        discounts=((steps != 0) & (steps != ends)).to(rewards.dtype),
        logits=_timed(logits).masked_fill(over.unsqueeze(-1), 0),
        # A sequence of full length ends with the rollout, and leaves no gap.
        final=None if lengths is None else over & (ends < size),
    )


def _timed(values: Tensor) -> Tensor:
    """[B, S, ...] -> [S + 1, B, ...], zeros last."""
    steps = values.transpose(0, 1)
    return torch.cat([steps, torch.zeros_like(steps[:1])])


def _later(values: Tensor) -> Tensor:
    """[B, S] -> [S + 1, B], zeros first."""
    return nn.functional.pad(values, (1, 0)).t()


def _ranks(tokens: Tensor, candidates: Tensor, logits: Tensor, over: Tensor) -> Tensor:
    """[B, S]: the rank of each token among its candidates [B, S, A], as far as sequences go."""
    if candidates.shape != logits.shape:
        raise DiscorlError(
            f"candidates: expected {list(logits.shape)}, one for each logit, got "
            f"{list(candidates.shape)}"
        )
    _check_integers("candidates", candidates)
    found = candidates == tokens.unsqueeze(-1)
    if not (found.any(dim=-1) | over).all():
        raise DiscorlError(
            "candidates: a token is not among its own; put it there with "
            "top_k_candidates(logits, k, taken=tokens)"
        )
    return found.int().argmax(dim=-1)


def _check(tokens: Tensor, rewards: Tensor, logits: Tensor) -> None:
    if tokens.dim() != 2 or 0 in tokens.shape:
        raise DiscorlError(f"tokens: expected [B, S], got {list(tokens.shape)}")
    _check_integers("tokens", tokens)
    if rewards.shape != tokens.shape or not rewards.is_floating_point():
        raise DiscorlError(
            f"rewards: expected floats {list(tokens.shape)}, one for each token, got "
            f"{rewards.dtype} {list(rewards.shape)}"
        )
    if logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        raise DiscorlError(
            f"logits: expected {[*tokens.shape, 'A']}, the policy that each token was drawn "
            f"from, got {list(logits.shape)}"
        )


def _check_extras(tokens: Tensor, prompt: Tensor | None, lengths: Tensor | None) -> None:
    batch, size = tokens.shape
    if prompt is not None:
        _check_integers("prompt", prompt)
        if prompt.dim() != 2 or len(prompt) != batch:
            raise DiscorlError(f"prompt: expected [{batch}, P], got {list(prompt.shape)}")
    if lengths is not None:
        _check_integers("lengths", lengths)
        if lengths.shape != (batch,) or ((lengths < 1) | (lengths > size)).any():
            raise DiscorlError(
                f"lengths: expected [{batch}] numbers from 1 to {size}, the tokens of each "
                f"sequence, got {lengths.tolist()}"
            )


def _check_integers(name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise DiscorlError(f"{name}: expected integers, got {tensor.dtype}")
