"""Heads for a few candidates out of many actions, such as a vocabulary too large for all.

At each step k candidates are chosen before the agent acts, and an action is a rank among them.
They are part of the observation, so learning reads the same ones, whatever the agent would
choose by then.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from discorl.agents.base import Inputs
from discorl.agents.config import NetworkConfig
from discorl.agents.network import Network
from discorl.errors import DiscorlError
from discorl.layers import Params, truncated_normal
from discorl.library.catalogue import DEFAULT_RULE, rule_heads
from discorl.own_loop.heads import NEWBORN, Features, register
from discorl.rules.base import UpdateRule

_REPLACED = ("head.logits.weight", "head.logits.bias", "model.action")
"""Parameters of `Network` with a row for each action; here embeddings replace them."""


def top_k_candidates(logits: Tensor, k: int, taken: Tensor | None = None) -> Tensor:
    """The k likeliest tokens [..., k], the likeliest first.

    Args:
      logits: [..., V].
      taken: [...] tokens that must be among them; one that is not takes the last place.
    """
    vocabulary = logits.shape[-1]
    if not 1 <= k <= vocabulary:
        raise DiscorlError(f"k: expected 1 to {vocabulary}, the size of the vocabulary, got {k}")
    candidates = logits.detach().topk(k, dim=-1).indices
    if taken is None:
        return candidates
    if taken.shape != logits.shape[:-1]:
        raise DiscorlError(
            f"taken: expected {list(logits.shape[:-1])}, one token for each step, got "
            f"{list(taken.shape)}"
        )
    present = (candidates == taken.unsqueeze(-1)).any(dim=-1)
    last = torch.where(present, candidates[..., -1], taken)
    return torch.cat([candidates[..., :-1], last.unsqueeze(-1)], dim=-1)


class TopKHeads(nn.Module):
    """Features [..., F] and candidates [..., k] to every head of a rule, with A = k.

    Each token has an embedding [F], in place of `DiscoHeads`' one-hot action: its product with a
    query made of the features is the token's logit, and the model of the actions is stepped with
    it. So what is learned about a token holds at whatever rank it comes, and memory grows with k,
    not with the vocabulary. Only `aux_pi` is about ranks: it is the policy over the candidates of
    the next step.

    Args:
      feature_size: F.
      vocabulary: V, how many tokens there are.
      k: candidates in each step.
      rule: whose heads to build: a name, a file or a rule.
      config: as for `DiscoHeads`.

    Initial weights follow `torch.manual_seed`, like those of other modules.
    """

    def __init__(
        self,
        feature_size: int,
        vocabulary: int,
        k: int,
        rule: str | Path | UpdateRule = DEFAULT_RULE,
        config: NetworkConfig = NEWBORN,
    ) -> None:
        super().__init__()
        if not 1 <= k <= vocabulary:
            raise DiscorlError(f"k: expected 1 to {vocabulary}, the vocabulary's size, got {k}")
        self.vocabulary = vocabulary
        self.k = k
        self._network = _CandidateNetwork(Features(feature_size), rule_heads(rule, k), config)
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        for name, tensor in self._network.init(generator).items():
            if name not in _REPLACED:
                register(self, name, tensor.clone())
        # Rows of length one, like one-hot actions.
        self.embedding = nn.Embedding(vocabulary, feature_size)
        _redraw(self.embedding, feature_size**-0.5, generator)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.query = nn.Linear(feature_size, feature_size, bias=False)
        _redraw(self.query, config.head_std, generator)
        if self._network.heads.action:
            self.action = nn.Linear(feature_size, 4 * config.model_size, bias=False)
            _redraw(self.action, (feature_size + config.model_size) ** -0.5, generator)

    def forward(self, features: Tensor, candidates: Tensor) -> dict[str, Tensor]:
        """[..., F] and integers [..., k] -> name -> [..., *shape]."""
        if candidates.shape != (*features.shape[:-1], self.k):
            raise DiscorlError(
                f"candidates: expected {[*features.shape[:-1], self.k]}, got "
                f"{list(candidates.shape)}"
            )
        params = dict(self.named_parameters())
        embedded = self.embedding(candidates)
        logits = (embedded @ self.query(features).unsqueeze(-1)).squeeze(-1)
        if self._network.heads.action:
            params["model.action"] = self.action(embedded)
        outputs = self._network.outputs(params, features)
        return {"logits": logits + self.bias[candidates]} | outputs.state | outputs.action

    def vocabulary_logits(self, features: Tensor) -> Tensor:
        """The logits of all tokens [..., V], to choose candidates from."""
        return nn.functional.linear(self.query(features), self.embedding.weight, self.bias)

    def extra_repr(self) -> str:
        """What `print` shows."""
        heads = [*self._network.heads.state, *self._network.heads.action]
        return f"{self._network.torso_size}, {self.vocabulary}, k={self.k}, heads={heads}"


class _CandidateNetwork(Network):
    """A network without its policy head; its `model.action` may differ from step to step."""

    def _state_heads(self, params: Params, features: Tensor, inputs: Inputs) -> dict[str, Tensor]:
        return {
            name: nn.functional.linear(
                features, params[f"head.{name}.weight"], params[f"head.{name}.bias"]
            )
            for name in self.heads.state
            if name != "logits"
        }


def _redraw(layer: nn.Embedding | nn.Linear, std: float, generator: torch.Generator) -> None:
    with torch.no_grad():
        layer.weight.copy_(truncated_normal(tuple(layer.weight.shape), std, generator))
