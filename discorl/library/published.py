"""The published parameter names and shapes of a discovered rule, translated to ours and back.

Published files hold 42 arrays called like `lstm/mlp/~/linear_0/w`; mean-field blocks are
convolutions of width one there, with a leading dimension of one that ours lack.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from discorl.rules.meta_network import MetaNetworkSizes

_META = "lstm/~/meta_lstm/~unroll"

PUBLISHED_LAYERS = {
    "y_net.0": "lstm/mlp/~/linear_0",
    "y_net.1": "lstm/mlp/~/linear_1",
    "z_net.0": "lstm/mlp_1/~/linear_0",
    "z_net.1": "lstm/mlp_1/~/linear_1",
    "action_net.0": "lstm/sequential/conv1_d",
    "action_net.1": "lstm/sequential/conv1_d_1",
    "lstm": "lstm/lstm/linear",
    "gate": "lstm/linear",
    "meta_input": "lstm/linear_1",
    "y_target": "lstm/linear_2",
    "z_target": "lstm/linear_3",
    "policy_target.block": "lstm/sequential_1/conv1_d",
    "policy_target.out": "lstm/linear_4",
    "meta.y_net.0": f"{_META}/mlp/~/linear_0",
    "meta.y_net.1": f"{_META}/mlp/~/linear_1",
    "meta.z_net.0": f"{_META}/mlp_1/~/linear_0",
    "meta.z_net.1": f"{_META}/mlp_1/~/linear_1",
    "meta.action_net.0": f"{_META}/sequential/conv1_d",
    "meta.action_net.1": f"{_META}/sequential/conv1_d_1",
    "meta.input": f"{_META}/mlp_2/~/linear_0",
    "meta.lstm": f"{_META}/lstm/linear",
}
"""Our layer's name -> the published one's."""


def published_name(name: str) -> str:
    """Our tensor's name, like `gate.w` -> the published one, `lstm/linear/w`."""
    layer, kind = name.rsplit(".", 1)
    return f"{PUBLISHED_LAYERS[layer]}/{kind}"


def published_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The published shape of our tensor `name`."""
    return (1, *shape) if _is_convolution(published_name(name)) else shape


def to_published(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under the published names and in the published shapes."""
    return {
        published_name(name): tensor.reshape(published_shape(name, tuple(tensor.shape)))
        for name, tensor in params.items()
    }


def from_published(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published parameters, shapes already checked, under our names."""
    params = {}
    for layer, published in PUBLISHED_LAYERS.items():
        for kind in ("w", "b"):
            name = f"{published}/{kind}"
            tensor = arrays[name]
            params[f"{layer}.{kind}"] = tensor[0] if _is_convolution(name) else tensor
    return params


def infer_sizes(shapes: Mapping[str, tuple[int, ...]]) -> MetaNetworkSizes:
    """The sizes of a rule from the published shapes; a missing bias raises ValueError.

    Every size is some bias's length, so weights can be checked against what is inferred.
    """

    def width(layer: str) -> int:
        name = f"{PUBLISHED_LAYERS[layer]}/b"
        if name not in shapes:
            raise ValueError(f"{name}: expected a tensor of this name, found none")
        if len(shapes[name]) != 1 or shapes[name][0] < 1:
            raise ValueError(f"{name}: expected one dimension, found {list(shapes[name])}")
        return shapes[name][0]

    return MetaNetworkSizes(
        predictions=width("y_target"),
        hidden=width("gate"),
        prediction_embedding=(width("y_net.0"), width("y_net.1")),
        policy_channels=(width("action_net.0"), width("action_net.1")),
        policy_target_channels=width("policy_target.block"),
        meta_hidden=max(1, width("meta.lstm") // 4),
        meta_embedding=width("meta.input"),
        meta_prediction_embedding=(width("meta.y_net.0"), width("meta.y_net.1")),
        meta_policy_channels=(width("meta.action_net.0"), width("meta.action_net.1")),
    )


def _is_convolution(published: str) -> bool:
    return "/conv1_d" in published and published.endswith("/w")
