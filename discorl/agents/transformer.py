"""A network body that remembers by attention to the recent past.

Every layer reads exactly W steps: the current one and the W - 1 before it. So N layers look
N (W - 1) steps back, and the memory holds that many inputs. Like a convolution without padding, a
layer gives features only where all the steps it reads are available: each takes W - 1 steps off
the beginning, and after the last one exactly the window is left. Hence a step's features are the
same, up to rounding, however the past is cut into windows: in one pass, or one step at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discorl.agents.torsos import Torso, redraw_layer_
from discorl.errors import DiscorlError
from discorl.layers import truncated_normal
from discorl.rollout import Memory, Window

_MLP_FACTOR = 4


class TransformerBody(nn.Module):
    """A torso, then layers of attention over the last steps of the same episode.

    The memory holds the embedded inputs of the last steps, newest last, and how many of them
    belong to this episode; the others are zero. No gradient flows into it.
    """

    def __init__(self, torso: Torso, size: int, window: int, layers: int, heads: int) -> None:
        super().__init__()
        _check_sizes(size, window, layers, heads)
        self.torso = torso
        self.output_size = size
        self.past = layers * (window - 1)
        self.memory_spec: dict[str, tuple[int, ...]] = {"inputs": (self.past, size), "count": ()}
        self.embed = nn.Linear(torso.output_size, size)
        self.layers = nn.ModuleList(AttentionLayer(size, window, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights: truncated normal by fan-in, biases zero."""
        self.torso.init_(generator)
        redraw_layer_(self.embed, generator)
        for layer in self.layers:
            assert isinstance(layer, AttentionLayer)
            layer.init_(generator)
        self.norm.reset_parameters()

    def forward(self, window: Window) -> tuple[Tensor, Memory]:
        """Features [L, B, output_size], and the memory after the window."""
        new = self.embed(self.torso(window.observations)).transpose(0, 1)
        inputs = torch.cat([window.memory["inputs"].detach().to(new.dtype), new], dim=1)
        episodes = self._episodes(window)
        x, left = inputs, episodes
        for layer in self.layers:
            x, left = layer(x, left)
        return self.norm(x).transpose(0, 1), self._memory(inputs, episodes)

    def _episodes(self, window: Window) -> Tensor:
        """[B, past + L]: the number of each step's episode; -1 where nothing is remembered."""
        age = torch.arange(self.past, 0, -1, device=window.firsts.device)
        empty = age > window.memory["count"].unsqueeze(-1)
        return torch.cat([-empty.long(), window.firsts.t().long().cumsum(dim=1)], dim=1)

    def _memory(self, inputs: Tensor, episodes: Tensor) -> Memory:
        """What to remember of inputs [B, past + L, D]: the last steps of the last episode."""
        kept = episodes[:, -self.past :] == episodes[:, -1:]
        last = inputs[:, -self.past :].masked_fill(~kept.unsqueeze(-1), 0)
        return {"inputs": last, "count": kept.sum(dim=1).to(inputs.dtype)}


class AttentionLayer(nn.Module):
    """Attention to the last W steps of the episode, then an MLP; both on normalised inputs.

    Each head has a learned bias for each distance between steps.
    """

    def __init__(self, size: int, window: int, heads: int) -> None:
        super().__init__()
        self.window = window
        self.heads = heads
        self.attention_norm = nn.LayerNorm(size)
        # No bias: the keys' would change nothing, so its gradient would be mere rounding.
        self.query_key_value = nn.Linear(size, 3 * size, bias=False)
        self.distance = nn.Parameter(torch.zeros(heads, window))
        self.out = nn.Linear(size, size)
        self.mlp_norm = nn.LayerNorm(size)
        self.expand = nn.Linear(size, _MLP_FACTOR * size)
        self.contract = nn.Linear(_MLP_FACTOR * size, size)

    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights; heads prefer different distances from the start."""
        for layer in (self.query_key_value, self.out, self.expand, self.contract):
            redraw_layer_(layer, generator)
        for norm in (self.attention_norm, self.mlp_norm):
            norm.reset_parameters()
        with torch.no_grad():
            self.distance.copy_(truncated_normal(tuple(self.distance.shape), 1.0, generator))

    def forward(self, x: Tensor, episodes: Tensor) -> tuple[Tensor, Tensor]:
        """Steps [B, S, D] and their episode numbers [B, S] to both without the first W - 1."""
        cut = self.window - 1
        x = x[:, cut:] + self._attend(self.attention_norm(x), episodes)
        x = x + self.contract(torch.relu(self.expand(self.mlp_norm(x))))
        return x, episodes[:, cut:]

    def _attend(self, x: Tensor, episodes: Tensor) -> Tensor:
        """[B, S, D] -> [B, S - W + 1, D]."""
        cut = self.window - 1
        # Written out: the fused attention has no second derivative.
        query, key, value = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", query[:, cut:], key) * query.shape[-1] ** -0.5
        places = torch.arange(x.shape[1], device=x.device)
        distance = places[cut:, None] - places
        near = (distance >= 0) & (distance <= cut)
        seen = near & (episodes[:, cut:, None] == episodes[:, None, :])
        scores = scores + self.distance[:, distance.clamp(0, cut)]
        scores = scores.masked_fill(~seen.unsqueeze(1), -torch.inf)
        read = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, dim=-1), value)
        mixed: Tensor = self.out(read.flatten(start_dim=-2))
        return mixed


def _check_sizes(size: int, window: int, layers: int, heads: int) -> None:
    if heads < 1 or size % heads:
        raise DiscorlError(
            f"--memory-size {size} must be a multiple of --memory-heads {heads}: the heads share "
            "it evenly"
        )
    if window < 2:
        raise DiscorlError(f"--memory-window {window}: a transformer needs at least 2 steps")
    if layers < 1:
        raise DiscorlError(f"--memory-layers {layers}: a transformer needs at least 1")
