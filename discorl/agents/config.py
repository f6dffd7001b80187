"""Sizes and shapes of the agent network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from discorl.errors import DiscorlError
from discorl.settings import Count, Natural, Positive, Search, Sizes, check_fields

BodyName = Literal["auto", "mlp", "conv", "nature", "impala"]
MemoryName = Literal["none", "lstm", "gru", "transformer"]


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and initialisation."""

    torso: Annotated[Sizes, Search(choices=((64, 64), (128, 128), (256, 256), (512, 512)))] = (
        512,
        512,
    )
    """Units of the fully connected layers: the MLP's, or those behind convolutions."""
    body: BodyName = "auto"
    """What reads the observation; by default an MLP for vectors, convolutions for images."""
    channels: Sizes = ()
    """Channels of the convolutions; by default each body's own."""
    blocks: Natural = 2
    """Residual blocks in each section of the IMPALA body."""
    memory: MemoryName = "none"
    """What remembers earlier observations."""
    memory_size: Count = 256
    """Cells of the LSTM or GRU, or the transformer's width."""
    memory_window: Count = 32
    """How many steps the transformer looks back."""
    memory_layers: Count = 2
    """The transformer's layers."""
    memory_heads: Count = 4
    """The transformer's attention heads in each layer."""
    activate_torso: bool = False
    """Apply ReLU after the torso's last layer too."""
    layer_norm: bool = False
    """Before each ReLU of the body, shift and scale a layer's units to mean 0 and variance 1: then
    none of them dies at high learning rates."""
    centre_images: bool = False
    """Subtract from every image the mean of those seen so far, pixel by pixel, and scale what is
    left to a deviation of one: else what all images share drowns what tells them apart."""
    bfloat16: bool = False
    """Compute the body in bfloat16: convolutions are two to three times as fast where the processor
    can. Memory, heads, targets and losses keep their type."""
    model_size: Annotated[Count, Search(choices=(32, 64, 128))] = 128
    """LSTM cells of the action-conditional model."""
    head_hidden: Annotated[Count, Search(choices=(32, 64, 128))] = 128
    """Hidden units of each action head."""
    head_std: Positive = 0.01
    """Initial deviation of the state heads' weights."""
    action_head_std: Positive | None = None
    """Initial deviation of the action heads' last weights; by default 1 / sqrt(fan-in)."""
    action_input_std: Annotated[Positive | None, Search(0.1, 10.0, log=True)] = None
    """Initial deviation of the weights by which the action model reads the action; by default
    1 / sqrt(fan-in), with which a newborn agent hardly tells actions apart, and is slow to learn
    what one is worth more than another."""
    value_width: Annotated[Positive | None, Search(0.3, 3.0, log=True)] = None
    """Width, in squashed units, of the bell around zero that categorical values start as; by
    default they start nearly uniform, which makes a new agent's values large and noisy."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.torso:
            raise DiscorlError("--torso: expected one or more positive sizes")
