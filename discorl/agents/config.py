"""Sizes and shapes of the agent network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BodyName = Literal["auto", "mlp", "conv", "nature", "impala"]
MemoryName = Literal["none", "lstm", "gru", "transformer"]


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and initialisation; the defaults are the published network's."""

    torso: tuple[int, ...] = (512, 512)
    """Units of the fully connected layers: the MLP's, or those behind convolutions."""
    body: BodyName = "auto"
    """What reads the observation; by default an MLP for vectors, convolutions for images."""
    channels: tuple[int, ...] = ()
    """Channels of the convolutions; by default each body's own."""
    blocks: int = 2
    """Residual blocks in each section of the IMPALA body."""
    memory: MemoryName = "none"
    """What remembers earlier observations."""
    memory_size: int = 256
    """Cells of the LSTM or GRU, or the transformer's width."""
    memory_window: int = 32
    """Steps that the transformer looks back."""
    memory_layers: int = 2
    """The transformer's layers."""
    memory_heads: int = 4
    """The transformer's attention heads in each layer."""
    activate_torso: bool = False
    """ReLU after the torso's last layer too."""
    model_size: int = 128
    """LSTM cells of the action-conditional model."""
    head_hidden: int = 128
    """Hidden units of each action head."""
    head_std: float = 0.01
    """Initial deviation of the state heads' weights."""
    action_head_std: float | None = None
    """Initial deviation of the action heads' last weights; by default 1 / sqrt(fan-in)."""
    value_width: float | None = None
    """Categorical values start as a bell of this width, in squashed units, around zero; by
    default as good as uniform, which makes a newborn agent's values large noise."""
