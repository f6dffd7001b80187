"""Network bodies: from an observation to a vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discorl.layers import Params, initial_linear


class MLPTorso(nn.Module):
    """Flatten, then linear layers with ReLU between them."""

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        sizes: tuple[int, ...] = (512, 512),
        activate_last: bool = False,
    ) -> None:
        super().__init__()
        self.feature_dims = len(observation_shape)
        self.activate_last = activate_last
        self.output_size = sizes[-1]
        inputs = [int(torch.Size(observation_shape).numel()), *sizes[:-1]]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(inputs, sizes, strict=True))

    def init_(self, generator: torch.Generator) -> None:
        """Redraw all weights: truncated normal by fan-in, biases zero."""
        with torch.no_grad():
            for layer in self.layers:
                assert isinstance(layer, nn.Linear)
                weights, biases = initial_linear(layer.in_features, layer.out_features, generator)
                layer.weight.copy_(weights.t())
                layer.bias.copy_(biases)

    def forward(self, observations: Tensor) -> Tensor:
        """[..., *observation_shape] -> [..., output_size]."""
        return self.functional(dict(self.named_parameters()), observations)

    def functional(self, params: Params, observations: Tensor) -> Tensor:
        """`forward` with other parameters; acting spends half its time in the general way."""
        x = observations.flatten(start_dim=observations.dim() - self.feature_dims)
        x = x.to(params["layers.0.weight"].dtype)
        last = len(self.layers) - 1
        for depth in range(last + 1):
            name = f"layers.{depth}"
            x = torch.nn.functional.linear(x, params[f"{name}.weight"], params[f"{name}.bias"])
            if depth < last or self.activate_last:
                x = torch.relu(x)
        return x
