"""The published agent network's parameter names, translated to ours and back.

Published weights are [in, out], ours [out, in] as in `nn.Linear`; the rows of the model's LSTM
that read the one-hot action are a separate table here.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_TORSO = "mlp/~_embedding_pass/torso/~/linear_"
_HEAD = "mlp/~_head_pass/torso_head"
_LSTM = "model.lstm"
_ACTION = "model.action"
_MODEL = {"model.root": "mlp/linear", _LSTM: "mlp/action_cond/linear"}
_ACTION_HEADS = {"z": "mlp/mlp", "aux_pi": "mlp/mlp_1", "q": "mlp/mlp_2"}


def from_published(arrays: Mapping[str, Tensor], state_heads: tuple[str, str]) -> dict[str, Tensor]:
    """Published parameters of an MLP agent under our names.

    Args:
      arrays: the published name -> tensor.
      state_heads: what the first and the second linear head are: `logits`, and `y` or `v`.
    """
    params = {}
    for ours, published in _layers(state_heads).items():
        if f"{published}/w" in arrays:
            weight = arrays[f"{published}/w"]
            if ours == _LSTM:
                cells = weight.shape[1] // 4
                params[_ACTION], weight = weight.split([len(weight) - cells, cells])
            params[f"{ours}.weight"] = weight.t().contiguous()
            params[f"{ours}.bias"] = arrays[f"{published}/b"]
    return params


def to_published(params: Mapping[str, Tensor], state_heads: tuple[str, str]) -> dict[str, Tensor]:
    """Our parameters of an MLP agent under the published names."""
    arrays = {}
    for ours, published in _layers(state_heads).items():
        if f"{ours}.weight" in params:
            weight = params[f"{ours}.weight"].t()
            if ours == _LSTM:
                weight = torch.cat([params[_ACTION], weight])
            arrays[f"{published}/w"] = weight
            arrays[f"{published}/b"] = params[f"{ours}.bias"]
    return arrays


def _layers(state_heads: tuple[str, str], max_depth: int = 16) -> dict[str, str]:
    """Our layer's name -> the published one's, for torsos of any depth up to `max_depth`."""
    first, second = state_heads
    layers = {f"torso.layers.{depth}": f"{_TORSO}{depth}" for depth in range(max_depth)}
    layers |= {f"head.{first}": f"{_HEAD}/~/linear_0", f"head.{second}": f"{_HEAD}_1/~/linear_0"}
    layers |= _MODEL
    for head, published in _ACTION_HEADS.items():
        layers[f"model.{head}.0"] = f"{published}/~/linear_0"
        layers[f"model.{head}.1"] = f"{published}/~/linear_1"
    return layers
