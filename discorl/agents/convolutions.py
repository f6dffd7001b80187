"""Network bodies for images: convolutions, then fully connected layers, ReLU after each.

An image's channels are its first or its last dimension: the smaller one, or the last if both are
equal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from discorl.agents.torsos import MLPTorso, Torso, precision, redraw_layer_
from discorl.errors import DiscorlError
from discorl.layers import Params
from discorl.observations import ArraySpec

_NATURE_CHANNELS = (32, 64, 64)
_NATURE_KERNELS = (8, 4, 3)
_NATURE_STRIDES = (4, 2, 1)
_IMPALA_CHANNELS = (16, 32, 32)
_CONV_CHANNELS = (16,)
_CONV_KERNEL = 3


class ImageTorso(Torso):
    """A stack of layers on images [N, C, rows, columns], then fully connected layers."""

    def __init__(
        self,
        spec: ArraySpec,
        stack: nn.Sequential,
        flat_size: int,
        sizes: tuple[int, ...],
        gain: float = 1.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.gain = gain
        self.shape = spec.shape
        self.scale = spec.scale
        self.channels_last = channels_are_last(spec.shape)
        self.stack = stack
        self.head = MLPTorso((flat_size,), sizes, activate_last=True, layer_norm=layer_norm)
        self.output_size = self.head.output_size
        self.centred: str | None = None
        """The entry of the observation that it reads, if it reads it without what images share."""

    def centre(self, entry: str) -> None:
        """From now on, images are read less `common`, in units of `spread`. Both are parameters
        that no gradient changes: `life.backdrop` does."""
        self.centred = entry
        self.common = nn.Parameter(torch.zeros(self.shape))
        self.spread = nn.Parameter(torch.tensor(1 / self.scale))

    def init_(self, generator: torch.Generator) -> None:
        """See `Torso.init_`: truncated normal by fan-in, times the gain; biases zero."""
        for module in self.stack.modules():
            if isinstance(module, nn.Conv2d):
                redraw_layer_(module, generator)
        self.head.init_(generator)
        with torch.no_grad():
            for parameter in (*self.stack.parameters(), *self.head.parameters()):
                parameter.mul_(self.gain)
            if self.centred:
                self.common.zero_()
                self.spread.fill_(1 / self.scale)

    def forward(self, observations: Tensor) -> Tensor:
        """[..., *shape] -> [..., output_size]."""
        return self.functional(dict(self.named_parameters()), observations)

    def functional(self, params: Params, observations: Tensor) -> Tensor:
        """`forward` with other parameters; the module is left alone, so threads may share it."""
        prefix = observations.shape[: observations.dim() - len(self.shape)]
        dtype = next(iter(params.values())).dtype
        x = observations.reshape(math.prod(prefix), *self.shape)
        kind = torch.bfloat16 if self.in_bfloat16 else dtype
        if self.centred:
            # Subtracted in full precision: the difference is small, and it is what counts.
            common, spread = (params[name].detach() for name in ("common", "spread"))
            x = (x - common).to(kind).div_(spread.to(kind))
        else:
            x = x.to(kind)
            if self.scale != 1:
                x = x * self.scale
        if len(self.shape) == 4:
            x = x.permute(0, 1, 4, 2, 3).flatten(1, 2)
        elif self.channels_last:
            x = x.permute(0, 3, 1, 2)
        x = _channels_innermost(x)
        with precision(x.device, self.in_bfloat16):
            for index, module in enumerate(self.stack):
                x = _apply(module, params, f"stack.{index}", x)
            features = self.head.functional(self._head_params(params), x.flatten(start_dim=1))
        return features.to(dtype).reshape(*prefix, self.output_size)

    def _head_params(self, params: Params) -> Params:
        return {n.removeprefix("head."): p for n, p in params.items() if n.startswith("head.")}


class ImageNorm(nn.Module):
    """All units of an image's layer together, shifted and scaled to mean 0 and variance 1."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, rows, columns], before and after."""
        return torch.nn.functional.layer_norm(x, x.shape[1:])


class ResidualBlock(nn.Module):
    """Two convolutions of equal size with a skip connection around them."""

    def __init__(self, channels: int, layer_norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = ImageNorm() if layer_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, rows, columns], before and after."""
        return self.functional(dict(self.named_parameters()), "", x)

    def functional(self, params: Params, prefix: str, x: Tensor) -> Tensor:
        """`forward` with other parameters, whose names begin with the prefix."""
        inner = _apply(self.first, params, f"{prefix}first", torch.relu(self.norm(x)))
        return x + _apply(self.second, params, f"{prefix}second", torch.relu(self.norm(inner)))


def _channels_innermost(x: Tensor) -> Tensor:
    """The same images [N, C, rows, columns], laid out so that convolutions of few channels, and
    above all their derivatives, take the least time."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def _apply(module: nn.Module, params: Params, name: str, x: Tensor) -> Tensor:
    """A layer of a stack, with its parameters among others by its name."""
    if isinstance(module, nn.Conv2d):
        weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
        return torch.nn.functional.conv2d(x, weight, bias, module.stride, module.padding)
    if isinstance(module, ResidualBlock):
        return module.functional(params, f"{name}.", x)
    outputs: Tensor = module(x)
    return outputs


def conv_torso(
    spec: ArraySpec,
    sizes: tuple[int, ...],
    channels: tuple[int, ...] = (),
    layer_norm: bool = False,
) -> ImageTorso:
    """3 x 3 convolutions without padding, for small boards where each cell counts."""
    channels = channels or _CONV_CHANNELS
    ones = (1,) * len(channels)
    kernels = (_CONV_KERNEL,) * len(channels)
    return _plain_torso("conv", spec, sizes, channels, kernels, ones, layer_norm=layer_norm)


def nature_torso(
    spec: ArraySpec,
    sizes: tuple[int, ...],
    channels: tuple[int, ...] = (),
    layer_norm: bool = False,
) -> ImageTorso:
    """Three convolutions with kernels 8, 4, 3 and strides 4, 2, 1, as in the Nature DQN.

    Weights start larger by the square root of two, because ReLU halves what comes through: frames
    of a game hardly differ, and their differences would otherwise be lost.
    """
    channels = channels or _NATURE_CHANNELS
    if len(channels) != len(_NATURE_KERNELS):
        raise DiscorlError(
            f"--body nature has {len(_NATURE_KERNELS)} convolutions: give --channels that many "
            f"numbers, not {len(channels)}"
        )
    kernels, strides, gain = _NATURE_KERNELS, _NATURE_STRIDES, math.sqrt(2)
    return _plain_torso("nature", spec, sizes, channels, kernels, strides, gain, layer_norm)


def impala_torso(
    spec: ArraySpec,
    sizes: tuple[int, ...],
    channels: tuple[int, ...] = (),
    blocks: int = 2,
    layer_norm: bool = False,
) -> ImageTorso:
    """Sections that halve the image, with residual blocks in each, as in IMPALA."""
    inputs, *sides = image_size(spec.shape)
    channels = channels or _IMPALA_CHANNELS
    layers: list[nn.Module] = []
    for outputs in channels:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
        layers += [ResidualBlock(outputs, layer_norm) for _ in range(blocks)]
        sides = [(side + 1) // 2 for side in sides]
        inputs = outputs
    layers += [ImageNorm(), nn.ReLU()] if layer_norm else [nn.ReLU()]
    flat_size = inputs * sides[0] * sides[1]
    return ImageTorso(spec, nn.Sequential(*layers), flat_size, sizes, layer_norm=layer_norm)


def channels_are_last(shape: tuple[int, ...]) -> bool:
    """Whether an image's channels are its last dimension rather than its first."""
    return shape[2] <= shape[0]


def image_size(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, rows and columns; of a stack [S, rows, columns, C], its images' channels."""
    if len(shape) == 4:
        stack, rows, columns, channels = shape
        return stack * channels, rows, columns
    first, second, third = shape
    return (third, first, second) if channels_are_last(shape) else (first, second, third)


def _plain_torso(
    name: str,
    spec: ArraySpec,
    sizes: tuple[int, ...],
    channels: tuple[int, ...],
    kernels: tuple[int, ...],
    strides: tuple[int, ...],
    gain: float = 1.0,
    layer_norm: bool = False,
) -> ImageTorso:
    """Convolutions without padding, ReLU after each."""
    inputs, *sides = image_size(spec.shape)
    layers: list[nn.Module] = []
    for outputs, kernel, stride in zip(channels, kernels, strides, strict=True):
        if min(sides) < kernel:
            raise DiscorlError(
                f"--body {name} cannot read observations of shape {list(spec.shape)}: they are "
                "too small for its convolutions. Try --body mlp or --body impala"
            )
        layers.append(nn.Conv2d(inputs, outputs, kernel, stride))
        layers += [ImageNorm(), nn.ReLU()] if layer_norm else [nn.ReLU()]
        sides = [(side - kernel) // stride + 1 for side in sides]
        inputs = outputs
    flat_size = inputs * sides[0] * sides[1]
    return ImageTorso(spec, nn.Sequential(*layers), flat_size, sizes, gain, layer_norm)
