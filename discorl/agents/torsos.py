"""Network bodies: from an observation to a vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from discorl.layers import Params, affine, initial_linear


@runtime_checkable
class Body(Protocol):
    """What a network needs from a module that reads observations: the length of its output."""

    output_size: int


@runtime_checkable
class Redrawable(Protocol):
    """A body whose weights can be redrawn; others keep the weights they came with."""

    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A body that reads a `Window` and returns features and its memory after it."""

    memory_spec: dict[str, tuple[int, ...]]
    """What it remembers for each stream: name -> shape."""


@runtime_checkable
class Functional(Protocol):
    """A body with its own way to be called with other parameters, which is faster."""

    def functional(self, params: Params, observations: Any) -> Any:
        """`forward` with these parameters."""
        ...


@runtime_checkable
class EndsLinear(Protocol):
    """A functional body that may end in a linear map, which whoever comes next can take over."""

    tail: str | None
    """The map's name among the parameters; None if there is no such map."""

    def before_tail(self, params: Params, observations: Any) -> Tensor:
        """`forward` without the map: [..., its inputs]."""
        ...


class Torso(nn.Module, ABC):
    """From observations [..., *shape] to features [..., output_size]."""

    output_size: int
    in_bfloat16: bool = False
    """Whether to compute in bfloat16; the result has the parameters' type all the same."""

    @abstractmethod
    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights."""


class MLPTorso(Torso):
    """Flatten, then linear layers with ReLU between them, normalised before it if asked for."""

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        sizes: tuple[int, ...] = (512, 512),
        activate_last: bool = False,
        scale: float = 1.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.feature_dims = len(observation_shape)
        self.input_size = int(torch.Size(observation_shape).numel())
        self.activate_last = activate_last
        self.scale = scale
        self.layer_norm = layer_norm
        self.output_size = sizes[-1]
        inputs = [self.input_size, *sizes[:-1]]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(inputs, sizes, strict=True))

    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights: truncated normal by fan-in, biases zero."""
        for layer in self.layers:
            redraw_layer_(layer, generator)

    def forward(self, observations: Tensor) -> Tensor:
        """[..., *observation_shape] -> [..., output_size]."""
        return self.functional(dict(self.named_parameters()), observations)

    def functional(self, params: Params, observations: Tensor) -> Tensor:
        """`forward` with other parameters; the general way would take half of acting's time."""
        return self._run(params, observations, len(self.layers))

    @property
    def tail(self) -> str | None:
        """The name of the last layer, if nothing but that linear map comes last."""
        if self.activate_last or self.in_bfloat16:  # What comes next keeps its type.
            return None
        return f"layers.{len(self.layers) - 1}"

    def before_tail(self, params: Params, observations: Tensor) -> Tensor:
        """What the last layer reads: [..., *observation_shape] -> [..., its inputs]."""
        return self._run(params, observations, len(self.layers) - 1)

    def _run(self, params: Params, observations: Tensor, depth: int) -> Tensor:
        """The first `depth` layers."""
        prefix = observations.shape[: observations.dim() - self.feature_dims]
        dtype = params["layers.0.weight"].dtype
        x = observations.reshape(*prefix, self.input_size).to(dtype)
        if self.scale != 1:
            x = x * self.scale
        last = len(self.layers) - 1
        with precision(x.device, self.in_bfloat16):
            for number in range(depth):
                name = f"layers.{number}"
                x = affine(x, params[f"{name}.weight"], params[f"{name}.bias"])
                if number < last or self.activate_last:
                    if self.layer_norm:
                        x = torch.nn.functional.layer_norm(x, x.shape[-1:])
                    x = torch.relu(x)
        return x.to(dtype) if self.in_bfloat16 else x


class DictTorso(Torso):
    """A torso for each entry of a dictionary; their features are concatenated."""

    def __init__(self, torsos: dict[str, Torso]) -> None:
        super().__init__()
        self.names = sorted(torsos)
        # By number: an entry may have any name, a module may not.
        self.torsos = nn.ModuleList(torsos[name] for name in self.names)
        self.output_size = sum(torso.output_size for torso in torsos.values())

    def init_(self, generator: torch.Generator) -> None:
        """See `Torso.init_`."""
        for torso in self.torsos:
            assert isinstance(torso, Torso)
            torso.init_(generator)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Name -> [..., *shape] to [..., output_size], in the order of the sorted names."""
        pairs = zip(self.names, self.torsos, strict=True)
        return torch.cat([torso(observations[name]) for name, torso in pairs], dim=-1)


def precision(device: torch.device, in_bfloat16: bool) -> AbstractContextManager[Any]:
    """In which layers compute in bfloat16, or as they are."""
    return torch.autocast(device.type, torch.bfloat16) if in_bfloat16 else nullcontext()


def redraw_layer_(layer: nn.Module, generator: torch.Generator) -> None:
    """Weights of a linear or convolution layer: truncated normal by fan-in, biases zero."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    fan_in = layer.weight[0].numel()
    weights, biases = initial_linear(fan_in, len(layer.weight), generator)
    with torch.no_grad():
        layer.weight.copy_(weights.t().reshape(layer.weight.shape))
        if layer.bias is not None:
            layer.bias.copy_(biases)
