"""The published agent network's parameter names, translated to ours and back."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

_TORSO = "mlp/~_embedding_pass/torso/~/linear_"
_HEAD = "mlp/~_head_pass/torso_head"
_ACTION_HEADS = {"z": "mlp/mlp", "aux_pi": "mlp/mlp_1", "q": "mlp/mlp_2"}


def from_published(arrays: Mapping[str, Tensor], state_heads: tuple[str, str]) -> dict[str, Tensor]:
    """Published parameters of an MLP agent under our names.

    Args:
      arrays: the published name -> tensor; weights are [in, out].
      state_heads: what the first and the second linear head are: `logits` and `y`, or `v`.
    """
    layers = {f"head.{state_heads[0]}": f"{_HEAD}/~/linear_0"}
    layers[f"head.{state_heads[1]}"] = f"{_HEAD}_1/~/linear_0"
    while f"{_TORSO}{(depth := len(layers) - 2)}/w" in arrays:
        layers[f"torso.layers.{depth}"] = f"{_TORSO}{depth}"
    if "mlp/linear/w" in arrays:
        layers |= {"model.root": "mlp/linear", "model.lstm": "mlp/action_cond/linear"}
        for head, published in _ACTION_HEADS.items():
            layers[f"model.{head}.0"] = f"{published}/~/linear_0"
            layers[f"model.{head}.1"] = f"{published}/~/linear_1"
    params = {}
    for name, published in layers.items():
        params[f"{name}.weight"] = arrays[f"{published}/w"].t().contiguous()
        params[f"{name}.bias"] = arrays[f"{published}/b"]
    return params
