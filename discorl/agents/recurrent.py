"""Network bodies with memory: a torso, then an LSTM or a GRU.

The cells are written out, because the fused ones have no second derivative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from discorl.agents.torsos import Torso
from discorl.layers import initial_linear, lstm_cell
from discorl.rollout import Memory, Window


class RecurrentBody(nn.Module, ABC):
    """A torso's features through a cell, step by step.

    Its features are the cell's hidden state. No gradient flows into the memory it is given.
    """

    gates: int
    """How many vectors of the cell's size the cell takes as input."""
    names: tuple[str, ...]
    """What is remembered; `hidden` is also what comes out."""

    def __init__(self, torso: Torso, size: int) -> None:
        super().__init__()
        self.torso = torso
        self.output_size = size
        self.memory_spec: dict[str, tuple[int, ...]] = dict.fromkeys(self.names, (size,))
        self.input = nn.Linear(torso.output_size, self.gates * size)
        self.recurrent = nn.Linear(size, self.gates * size, bias=False)

    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights: truncated normal by fan-in, biases zero."""
        self.torso.init_(generator)
        parts = [self.torso.output_size, self.output_size]
        # Both products are summed, so they are drawn as one layer with both inputs.
        weights, biases = initial_linear(sum(parts), self.gates * self.output_size, generator)
        of_input, of_hidden = weights.split(parts)
        with torch.no_grad():
            self.input.weight.copy_(of_input.t())
            self.input.bias.copy_(biases)
            self.recurrent.weight.copy_(of_hidden.t())

    def forward(self, window: Window) -> tuple[Tensor, Memory]:
        """Features [L, B, output_size], and the memory after the window."""
        inputs = self.input(self.torso(window.observations))
        memory = {name: window.memory[name].detach().to(inputs.dtype) for name in self.names}
        features = []
        for x, first in zip(inputs, window.firsts.unsqueeze(-1), strict=True):
            memory = {name: tensor.masked_fill(first, 0) for name, tensor in memory.items()}
            memory = self.cell(x, memory)
            features.append(memory["hidden"])
        return torch.stack(features), memory

    @abstractmethod
    def cell(self, x: Tensor, memory: Memory) -> Memory:
        """The memory after one step, given the input's share of the gates [B, gates * size]."""


class LSTMBody(RecurrentBody):
    """A torso, then an LSTM: input, candidate, forget and output gate."""

    gates = 4
    names = ("hidden", "cell")

    def cell(self, x: Tensor, memory: Memory) -> Memory:
        """See `RecurrentBody.cell`."""
        hidden, cell = lstm_cell(x + self.recurrent(memory["hidden"]), memory["cell"])
        return {"hidden": hidden, "cell": cell}


class GRUBody(RecurrentBody):
    """A torso, then a GRU: reset gate, update gate and candidate.

    The reset gate acts on the hidden state's share of the candidate, so that one product per step
    is enough. An update gate of one keeps the hidden state.
    """

    gates = 3
    names = ("hidden",)

    def cell(self, x: Tensor, memory: Memory) -> Memory:
        """See `RecurrentBody.cell`."""
        hidden = memory["hidden"]
        reset_x, update_x, candidate_x = x.chunk(3, dim=-1)
        reset_h, update_h, candidate_h = self.recurrent(hidden).chunk(3, dim=-1)
        reset = torch.sigmoid(reset_x + reset_h)
        candidate = torch.tanh(candidate_x + reset * candidate_h)
        return {"hidden": torch.lerp(candidate, hidden, torch.sigmoid(update_x + update_h))}
