"""The network's body, chosen by name or from the observation."""

from __future__ import annotations

from typing import get_args

from torch import nn

from discorl.agents.config import BodyName, MemoryName, NetworkConfig
from discorl.agents.convolutions import (
    ImageTorso,
    conv_torso,
    image_size,
    impala_torso,
    nature_torso,
)
from discorl.agents.glyphs import kinds_torso
from discorl.agents.recurrent import GRUBody, LSTMBody
from discorl.agents.torsos import DictTorso, MLPTorso, Torso
from discorl.agents.transformer import TransformerBody
from discorl.errors import DiscorlError, UnknownNameError
from discorl.observations import ArraySpec, ObservationSpec, spec_entries

_CONV_SIDE = 10
"""Boards with a side below this are read as vectors."""
_NATURE_SIDE = 36
"""The smallest image whose sides survive the Nature convolutions."""


def make_body(spec: ObservationSpec, config: NetworkConfig) -> nn.Module:
    """The module that turns observations into features, with memory if configured.

    A body called `auto` looks at the observation: anything but an image, and boards with a side
    below 10 cells, get an MLP; images with a side below 36 get `conv`; larger ones get `nature`.
    In a dictionary each entry has its own torso: a body given by name reads the images, and an
    MLP the rest. Names of things, maps and texts, have bodies of their own: see `glyphs`.
    """
    torso = _make_torso(spec, config)
    if config.memory == "none":
        return torso
    if config.memory == "lstm":
        return LSTMBody(torso, config.memory_size)
    if config.memory == "gru":
        return GRUBody(torso, config.memory_size)
    if config.memory == "transformer":
        return TransformerBody(
            torso,
            config.memory_size,
            config.memory_window,
            config.memory_layers,
            config.memory_heads,
        )
    raise UnknownNameError("memory", config.memory, get_args(MemoryName))


def choose_body(spec: ArraySpec) -> BodyName:
    """What `auto` stands for: see `make_body`."""
    if not spec.is_image:
        return "mlp"
    _, *sides = image_size(spec.shape)
    if min(sides) < _CONV_SIDE:
        return "mlp"
    return "conv" if min(sides) < _NATURE_SIDE else "nature"


def _make_torso(spec: ObservationSpec, config: NetworkConfig) -> Torso:
    entries = spec_entries(spec)
    needs_image = config.body not in ("auto", "mlp")
    if needs_image and not any(entry.is_image for entry in entries.values()):
        shapes = ", ".join(f"{list(entry.shape)}" for entry in entries.values())
        raise DiscorlError(
            f"--body {config.body} reads images, but the observation has the shape {shapes}: "
            "use --body mlp"
        )
    torsos = {name: _array_torso(name, entry, config) for name, entry in entries.items()}
    return DictTorso(torsos) if isinstance(spec, dict) else next(iter(torsos.values()))


def _array_torso(name: str, spec: ArraySpec, config: NetworkConfig) -> Torso:
    torso = _plain_torso(spec, config)
    torso.in_bfloat16 = config.bfloat16
    if config.centre_images and isinstance(torso, ImageTorso):
        torso.centre(name)
    return torso


def _plain_torso(spec: ArraySpec, config: NetworkConfig) -> Torso:
    if spec.kinds:
        return kinds_torso(spec, config.torso)
    body = config.body
    if body == "auto":
        body = choose_body(spec)
    if body == "mlp" or not spec.is_image:
        return MLPTorso(
            spec.shape, config.torso, config.activate_torso, spec.scale, config.layer_norm
        )
    return _image_torso(body, spec, config)


def _image_torso(body: BodyName, spec: ArraySpec, config: NetworkConfig) -> ImageTorso:
    if body == "conv":
        return conv_torso(spec, config.torso, config.channels, config.layer_norm)
    if body == "nature":
        return nature_torso(spec, config.torso, config.channels, config.layer_norm)
    if body == "impala":
        return impala_torso(spec, config.torso, config.channels, config.blocks, config.layer_norm)
    raise UnknownNameError("body", body, get_args(BodyName))
