"""Categorical distributions given by logits over the last dimension."""

from __future__ import annotations

import torch
from torch import Tensor

MASKED = -1e6
"""The logit of an action that is not legal: its probability is exactly zero, and nothing that is
computed with it overflows."""


def mask_logits(logits: Tensor, legal: Tensor) -> Tensor:
    """Logits [..., N] with `MASKED` where `legal` [..., N] is zero; no gradient flows there."""
    return torch.where(legal > 0, logits, MASKED)


def unmasked(logits: Tensor) -> Tensor:
    """[..., N]: whether an action is legal; everywhere, if nothing was masked."""
    return logits > MASKED / 2


def lookup(table: Tensor, index: Tensor) -> Tensor:
    """Pick one row per step: table [T, B, A, ...], integer index [T, B] -> [T, B, ...]."""
    expanded = index.reshape(*index.shape, *([1] * (table.dim() - 2)))
    expanded = expanded.expand(*index.shape, 1, *table.shape[3:])
    return table.gather(2, expanded).squeeze(2)


def log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    """Log-probability of the actions: logits [T, B, A], actions [T, B] -> [T, B]."""
    return lookup(torch.log_softmax(logits, dim=-1), actions)


def categorical_kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """`KL(softmax(p) || softmax(q))`: two [..., N] -> [...]."""
    return kl_of(torch.log_softmax(p_logits, dim=-1), torch.log_softmax(q_logits, dim=-1))


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of softmax(logits): [..., N] -> [...]."""
    return entropy_of(torch.log_softmax(logits, dim=-1))


def kl_of(log_p: Tensor, log_q: Tensor) -> Tensor:
    """`KL(p || q)` of two normalised log-probabilities [..., N] -> [...]."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def entropy_of(log_p: Tensor) -> Tensor:
    """Entropy in nats of normalised log-probabilities [..., N] -> [...]."""
    return -(log_p.exp() * log_p).sum(dim=-1)
