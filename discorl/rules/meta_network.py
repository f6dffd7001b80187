"""The network inside a discovered rule: from experience to targets.

A *trajectory net* reads each trajectory backwards and emits targets; a *meta-RNN*, stepped once
per learner update, remembers the agent's whole life and gates the trajectory net. Both embed the
agent's predictions with small nets of their own. Everything is a pure function of a parameter
dictionary, so a rule can be differentiated with respect to it.

Shapes: T transitions, B trajectories, A actions, P prediction bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from discorl.group import SOLO, Group
from discorl.layers import (
    Params,
    affine,
    fold_lstm,
    folded_lstm_cell,
    initial_linear,
    linear,
    lstm_cell,
)
from discorl.settings import Count, Range, check_fields
from discorl.values.distributions import lookup
from discorl.values.transforms import signed_log

_SCALARS = 9
"""Inputs per step that are not embeddings."""
_PREDICTION_EMBEDDINGS = 14
"""How many times an embedding of y or z, online or target, enters the per-step inputs."""
_ACTION_SCALARS = 7
"""Inputs per action that are not embeddings of z; those are two."""
_Pair = Annotated[tuple[int, int], Range(1)]


@dataclass(frozen=True)
class MetaNetworkSizes:
    """All sizes; the defaults are Disco103's."""

    predictions: Count = 600
    """P: bins of the agent's y and z."""
    hidden: Count = 256
    """Units of the trajectory LSTM."""
    prediction_embedding: _Pair = (16, 1)
    """Trajectory net: hidden and output units of the nets that embed y and z."""
    policy_channels: _Pair = (16, 2)
    """Trajectory net: channels of the two mean-field blocks that embed each action."""
    policy_target_channels: Count = 16
    """Channels of the mean-field block before the policy target."""
    meta_hidden: Count = 128
    """Units of the meta-RNN."""
    meta_embedding: Count = 16
    """Units of the meta-RNN's input."""
    meta_prediction_embedding: _Pair = (16, 1)
    """As `prediction_embedding`, for the meta-RNN's own nets."""
    meta_policy_channels: _Pair = (16, 2)
    """As `policy_channels`, for the meta-RNN's own blocks."""

    def __post_init__(self) -> None:
        check_fields(self)

    def layers(self) -> dict[str, tuple[int, int]]:
        """Every layer's name -> (in, out)."""
        nets = self._input_layers("", self.prediction_embedding, self.policy_channels)
        inputs = self.step_inputs(self.prediction_embedding, self.policy_channels)
        x, actions = self.hidden, self.policy_channels[1]
        nets |= {
            "lstm": (inputs + x, 4 * x),
            "gate": (self.meta_hidden, x),
            "meta_input": (x, 1),
            "y_target": (x, self.predictions),
            "z_target": (x, self.predictions),
            "policy_target.block": (2 * (x + actions), self.policy_target_channels),
            "policy_target.out": (self.policy_target_channels, 1),
        }
        embedding, channels = self.meta_prediction_embedding, self.meta_policy_channels
        nets |= self._input_layers("meta.", embedding, channels)
        meta_inputs = self.step_inputs(embedding, channels) + 1 + embedding[1]
        nets["meta.input"] = (meta_inputs, self.meta_embedding)
        nets["meta.lstm"] = (self.meta_embedding + self.meta_hidden, 4 * self.meta_hidden)
        return nets

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor's name -> shape."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (fan_in, fan_out) in self.layers().items():
            shapes[f"{name}.w"] = (fan_in, fan_out)
            shapes[f"{name}.b"] = (fan_out,)
        return shapes

    @staticmethod
    def step_inputs(embedding: tuple[int, int], channels: tuple[int, int]) -> int:
        """How many numbers describe one step: 27 for Disco103."""
        return _SCALARS + _PREDICTION_EMBEDDINGS * embedding[1] + 2 * channels[1]

    def _input_layers(
        self, prefix: str, embedding: tuple[int, int], channels: tuple[int, int]
    ) -> dict[str, tuple[int, int]]:
        action_inputs = _ACTION_SCALARS + 2 * embedding[1]
        return {
            f"{prefix}y_net.0": (self.predictions, embedding[0]),
            f"{prefix}y_net.1": (embedding[0], embedding[1]),
            f"{prefix}z_net.0": (self.predictions, embedding[0]),
            f"{prefix}z_net.1": (embedding[0], embedding[1]),
            f"{prefix}action_net.0": (2 * action_inputs, channels[0]),
            f"{prefix}action_net.1": (2 * channels[0], channels[1]),
        }


_INITIAL_STD = {
    "meta_input": 0.3,
    "y_target": 0.3,
    "z_target": 0.3,
    "policy_target.out": 0.3,
    "gate": 1.0,
}
_ALIVE = ("action_net.1", "meta.action_net.1")
"""Layers of a few ReLUs that all knowledge of an action passes through. They start with biases of
one: with the published zeros, some random rules cannot tell actions apart and never learn to."""


def initial_params(sizes: MetaNetworkSizes, generator: torch.Generator) -> dict[str, Tensor]:
    """Random parameters of a fresh rule, float32 on the generator's device."""
    params = {}
    for name, (fan_in, fan_out) in sizes.layers().items():
        weights, biases = initial_linear(fan_in, fan_out, generator, _INITIAL_STD.get(name))
        params[f"{name}.w"], params[f"{name}.b"] = weights, biases
    for name in _ALIVE:
        params[f"{name}.b"].fill_(1)
    return params


@dataclass(frozen=True)
class MetaInputs:
    """What the network reads: T + 1 steps of what the agent thinks, T of what happened.

    Only `y`, `z` and their target counterparts carry gradient.
    """

    policy: Tensor
    """[T + 1, B, A] probabilities."""
    behaviour_policy: Tensor
    """[T, B, A] probabilities."""
    target_policy: Tensor
    """[T, B, A] probabilities."""
    actions: Tensor
    """[T, B]."""
    rewards: Tensor
    """[T, B]."""
    continues: Tensor
    """[T, B]: 0 at terminal transitions, else 1."""
    links: Tensor
    """[T, B]: 0 also where the episode was cut off; the LSTM reads no further there."""
    values: Tensor
    """[T + 1, B]."""
    advantage: Tensor
    """[T, B]."""
    normalized_advantage: Tensor
    """[T, B]."""
    target_q: Tensor
    """[T, B, A]."""
    qv_advantage: Tensor
    """[T, B, A]."""
    normalized_qv_advantage: Tensor
    """[T, B, A]."""
    y: Tensor
    """[T + 1, B, P] logits."""
    target_y: Tensor
    """[T + 1, B, P] logits."""
    z: Tensor
    """[T + 1, B, A, P] logits."""
    target_z: Tensor
    """[T + 1, B, A, P] logits."""


@dataclass(frozen=True)
class MetaOutputs:
    """What the network returns, for T transitions."""

    policy: Tensor
    """[T, B, A] logits of the policy target."""
    y: Tensor
    """[T, B, P] logits."""
    z: Tensor
    """[T, B, P] logits, for the action taken."""
    meta_input: Tensor
    """[T, B, 1]: what the trajectory net tells the meta-RNN."""


@dataclass(frozen=True)
class MetaRNNState:
    """The agent's lifetime memory: two vectors [H]."""

    hidden: Tensor
    cell: Tensor


def apply_meta_network(
    params: Params, inputs: MetaInputs, state: MetaRNNState, group: Group = SOLO
) -> tuple[MetaOutputs, MetaRNNState]:
    """Targets for T transitions, gated by the memory *before* them, and the new memory.

    Args:
      group: the processes that each have a part of the batch: the memory is of all of it.
    """
    (y, meta_y), (target_y, meta_target_y) = _embed_predictions(
        params, "y_net", inputs.y, inputs.target_y
    )
    (z, meta_z), (target_z, meta_target_z) = _embed_predictions(
        params, "z_net", inputs.z, inputs.target_z
    )
    scalars = _step_scalars(inputs)
    action_scalars = _action_scalars(inputs)

    actions = _embed_actions(params, "", action_scalars, z, target_z)
    x = _step_inputs(inputs, scalars, y, target_y, z, target_z, actions)
    x = _backward_lstm(params, x, inputs.links)
    x = x * linear(params, "gate", state.hidden)
    outputs = MetaOutputs(
        policy=_policy_target(params, x, actions),
        y=linear(params, "y_target", x),
        z=linear(params, "z_target", x),
        meta_input=linear(params, "meta_input", x),
    )

    meta_actions = _embed_actions(params, "meta.", action_scalars, meta_z, meta_target_z)
    meta_x = torch.cat(
        [
            _step_inputs(
                inputs, scalars, meta_y, meta_target_y, meta_z, meta_target_z, meta_actions
            ),
            outputs.meta_input,
            _mlp(params, "meta.y_net", torch.softmax(outputs.y, dim=-1)),
        ],
        dim=-1,
    )
    return outputs, _step_meta_rnn(params, meta_x, state, group)


def _embed_predictions(params: Params, net: str, *logits: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Both nets' embeddings of each [..., P], sharing the softmax and the first product."""
    weights = torch.cat([params[f"{net}.0.w"], params[f"meta.{net}.0.w"]], dim=1).t()
    biases = torch.cat([params[f"{net}.0.b"], params[f"meta.{net}.0.b"]])
    sizes = [params[f"{net}.0.b"].shape[0], params[f"meta.{net}.0.b"].shape[0]]
    embeddings = []
    for predictions in logits:
        hidden = torch.relu(affine(torch.softmax(predictions, dim=-1), weights, biases))
        own, meta = hidden.split(sizes, dim=-1)
        embeddings.append((linear(params, f"{net}.1", own), linear(params, f"meta.{net}.1", meta)))
    return embeddings


def _mlp(params: Params, name: str, x: Tensor) -> Tensor:
    return linear(params, f"{name}.1", torch.relu(linear(params, f"{name}.0", x)))


def _step_scalars(inputs: MetaInputs) -> Tensor:
    """The inputs that are not embeddings, in published order: [T, B, 9]."""
    values = signed_log(inputs.values)
    scalars = [
        lookup(inputs.policy[:-1], inputs.actions),
        lookup(inputs.behaviour_policy, inputs.actions),
        signed_log(inputs.rewards),
        inputs.continues,
        values[:-1],
        values[1:],
        signed_log(inputs.advantage),
        inputs.normalized_advantage,
        lookup(inputs.target_policy, inputs.actions),
    ]
    return torch.stack(scalars, dim=-1)


def _action_scalars(inputs: MetaInputs) -> tuple[Tensor, Tensor]:
    """What is known about each action, before and after z's embeddings: [T, B, A, 3], [.., 4]."""
    num_actions = inputs.policy.shape[-1]
    one_hot = torch.nn.functional.one_hot(inputs.actions.long(), num_actions)
    before = [inputs.policy[:-1], inputs.behaviour_policy, inputs.target_policy]
    after = [
        signed_log(inputs.target_q),
        signed_log(inputs.qv_advantage),
        inputs.normalized_qv_advantage,
        one_hot.to(inputs.policy.dtype),
    ]
    return torch.stack(before, dim=-1), torch.stack(after, dim=-1)


def _embed_actions(
    params: Params, prefix: str, scalars: tuple[Tensor, Tensor], z: Tensor, target_z: Tensor
) -> Tensor:
    """[T, B, A, C]: each action in the light of all others."""
    before, after = scalars
    x = torch.cat([before, z[:-1], target_z[:-1], after], dim=-1)
    x = _mean_field(params, f"{prefix}action_net.0", x)
    return _mean_field(params, f"{prefix}action_net.1", x)


def _mean_field(params: Params, name: str, x: Tensor) -> Tensor:
    """[T, B, A, C] -> [T, B, A, C']: a linear map of each action and of the mean, then ReLU."""
    own, mean = params[f"{name}.w"].chunk(2, dim=0)
    return torch.relu(x @ own + x.mean(dim=2, keepdim=True) @ mean + params[f"{name}.b"])


def _step_inputs(
    inputs: MetaInputs,
    scalars: Tensor,
    y: Tensor,
    target_y: Tensor,
    z: Tensor,
    target_z: Tensor,
    actions: Tensor,
) -> Tensor:
    """[T, B, I]: everything known about a step, in published order."""
    parts = [scalars, y[:-1], y[1:], target_y[:-1], target_y[1:]]
    for embedding in (z, target_z):
        mean = (embedding * inputs.policy.unsqueeze(-1)).sum(dim=2)
        best = embedding.amax(dim=2)
        taken = lookup(embedding[:-1], inputs.actions)
        parts += [taken, mean[:-1], mean[1:], best[:-1], best[1:]]
    parts += [actions.mean(dim=2), lookup(actions, inputs.actions)]
    return torch.cat(parts, dim=-1)


def _backward_lstm(params: Params, x: Tensor, links: Tensor) -> Tensor:
    """[T, B, I] -> [T, B, H], last step first; what lies beyond an episode is forgotten."""
    _, batch, size = x.shape
    hidden_size = params["lstm.b"].shape[0] // 4
    weights, biases = fold_lstm(params["lstm.w"], params["lstm.b"])
    from_input, from_hidden = weights.split([size, hidden_size], dim=0)
    projected = affine(x, from_input.t(), biases)
    hidden = x.new_zeros(batch, hidden_size)
    cell = x.new_zeros(batch, hidden_size)
    outputs = []
    for step, keep in zip(
        reversed(projected.unbind()), reversed(links.unsqueeze(-1).unbind()), strict=True
    ):
        gates = torch.addmm(step, hidden * keep, from_hidden)
        hidden, cell = folded_lstm_cell(gates, cell * keep)
        outputs.append(hidden)
    return torch.stack(outputs[::-1])


def _policy_target(params: Params, x: Tensor, actions: Tensor) -> Tensor:
    """[T, B, A] logits from the step's x [T, B, H] and its actions [T, B, A, C].

    The mean-field block over concat(x, action) without repeating x for every action: x is its
    own mean, so its rows of both halves of the weights add up.
    """
    hidden, channels = x.shape[-1], actions.shape[-1]
    weights = params["policy_target.block.w"]
    x_own, action_own, x_mean, action_mean = weights.split(
        [hidden, channels, hidden, channels], dim=0
    )
    step = x @ (x_own + x_mean) + actions.mean(dim=2) @ action_mean
    step = step + params["policy_target.block.b"]
    block = torch.relu(actions @ action_own + step.unsqueeze(2))
    return linear(params, "policy_target.out", block).squeeze(-1)


def _step_meta_rnn(params: Params, x: Tensor, state: MetaRNNState, group: Group) -> MetaRNNState:
    """One LSTM step on the mean embedding of all steps [T, B, I]."""
    (pooled,) = group.means([x.mean(dim=(0, 1))], [x.shape[0] * x.shape[1]])
    mean = linear(params, "meta.input", pooled)
    gates = linear(params, "meta.lstm", torch.cat([mean, state.hidden]))
    hidden, cell = lstm_cell(gates, state.cell)
    return MetaRNNState(hidden, cell)
