"""The agent network: torso, linear state heads, and a model of every action.

The model starts an LSTM cell at a root computed from the torso and steps it once per action,
each from that same root; small nets read the action heads off its output. All actions share the
root, so its projection is computed once per state, and the one-hot action is a row of the
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from discorl.agents.base import Inputs
from discorl.agents.bodies import make_body
from discorl.agents.config import NetworkConfig
from discorl.agents.masks import keep_legal
from discorl.agents.torsos import (
    Body,
    EndsLinear,
    Functional,
    MLPTorso,
    Redrawable,
    Remembering,
)
from discorl.layers import Params, affine, initial_linear, lstm_cell
from discorl.observations import Observation, ObservationSpec
from discorl.outputs import AgentOutputs, HeadSpec, TakenOutputs
from discorl.rollout import Memory, Window
from discorl.tree import tree_map

_POLICY_HEAD = ("head.logits.weight", "head.logits.bias")
_LEAST_LOGIT = -10.0
"""Bins far from zero start unlikely, but within the learner's reach."""
_WIDE = 128
"""Layers with fewer outputs are multiplied as they are."""


class Network:
    """An agent on any torso, with the heads that the rule asks for."""

    def __init__(
        self, torso: nn.Module, heads: HeadSpec, config: NetworkConfig | None = None
    ) -> None:
        self.torso = torso
        self.torso_size = _output_size(torso)
        self.heads = heads
        self.config = config or NetworkConfig()
        self.num_actions = heads.state["logits"][0]
        self.memory_spec = dict(torso.memory_spec) if isinstance(torso, Remembering) else {}
        """What the torso remembers for each stream: name -> shape; empty if nothing."""
        self._torso_names = [name for name, _ in torso.named_parameters()]
        self._call = torso_function(torso)
        self._linear_end: EndsLinear | None = None
        if isinstance(torso, EndsLinear) and torso.tail is not None:
            self._linear_end = torso

    @classmethod
    def for_observations(
        cls, spec: ObservationSpec, heads: HeadSpec, config: NetworkConfig | None = None
    ) -> Network:
        """The network on the body that fits the observations, or that the configuration names."""
        config = config or NetworkConfig()
        return cls(make_body(spec, config), heads, config)

    @classmethod
    def mlp(
        cls,
        observation_shape: tuple[int, ...],
        heads: HeadSpec,
        config: NetworkConfig | None = None,
    ) -> Network:
        """The network on an MLP torso for flat or image-like observations."""
        config = config or NetworkConfig()
        torso = MLPTorso(observation_shape, config.torso, config.activate_torso)
        return cls(torso, heads, config)

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh parameters; a torso without `init_` keeps the weights it came with."""
        self.torso.to(generator.device)
        if isinstance(self.torso, Redrawable):
            self.torso.init_(generator)
        params = {f"torso.{n}": p.detach().clone() for n, p in self.torso.named_parameters()}
        for name, (fan_in, fan_out, std) in self._layers().items():
            weights, biases = initial_linear(fan_in, fan_out, generator, std)
            if name == "model.lstm":
                of_action, weights = weights.split([self.num_actions, fan_in - self.num_actions])
                params["model.action"] = self._scaled(of_action, fan_in)
            params[f"{name}.weight"] = weights.t().contiguous()
            params[f"{name}.bias"] = biases
        if self.config.value_width is not None:
            for head, largest in self.heads.value_range.items():
                name = f"head.{head}" if head in self.heads.state else f"model.{head}.1"
                params[f"{name}.bias"] = _bell(
                    params[f"{name}.bias"], largest, self.config.value_width
                )
        return params

    def policy(self, params: Params, observations: Observation) -> Tensor:
        """The policy head alone: [..., A]."""
        logits = _linear(params, "head.logits", self._torso(params, observations))
        return keep_legal(logits, observations)

    def policy_params(self, params: Params) -> Params:
        """Those parameters that acting reads."""
        names = (*(f"torso.{name}" for name in self._torso_names), *_POLICY_HEAD)
        return {name: params[name] for name in names}

    def initial_memory(self, batch: int, device: torch.device | str) -> Memory | None:
        """See `RecurrentAgent.initial_memory`."""
        if not self.memory_spec:
            return None
        return {k: torch.zeros(batch, *s, device=device) for k, s in self.memory_spec.items()}

    def policy_step(
        self, params: Params, observations: Observation, firsts: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """See `RecurrentAgent.policy_step`."""
        step = Window(tree_map(_one_step, observations), _one_step(firsts), memory)
        features, memory = self._call_torso(params, step)
        logits = _linear(params, "head.logits", features[0])
        return keep_legal(logits, observations), memory

    def remember(self, params: Params, window: Window) -> Memory:
        """See `RecurrentAgent.remember`."""
        memory: Memory = self._call_torso(params, window)[1]
        return memory

    def outputs(self, params: Params, inputs: Inputs, for_targets: bool = False) -> AgentOutputs:
        """Every head, for every action; or only those that a rule's targets read."""
        heads = self.heads.for_targets() if for_targets else self.heads
        params, features = self._features(params, inputs)
        state = self._state_heads(params, features, inputs)
        if not heads.action:
            return AgentOutputs(state)
        return AgentOutputs(state, self._every_action(params, *self._root(params, features), heads))

    def taken(
        self,
        params: Params,
        inputs: Inputs,
        actions: Tensor,
        only: Collection[str] | None = None,
    ) -> TakenOutputs:
        """See `Agent.taken`: action heads run for the taken action only."""
        params, features = self._features(params, inputs)
        state = self._state_heads(params, features, inputs)
        names = [name for name in self.heads.action if only is None or name in only]
        if not names:
            return TakenOutputs(state, {})
        root = self._root(params, features[:-1])
        return TakenOutputs(state, self._taken_action(params, *root, actions, names))

    def learn(
        self,
        params: Params,
        inputs: Inputs,
        actions: Tensor,
        differentiable: bool = False,
    ) -> tuple[AgentOutputs, TakenOutputs]:
        """See `Agent.learn`: torso, state heads and root are computed once for both."""
        params, features = self._features(params, inputs)
        state = self._state_heads(params, features, inputs)
        given = state if differentiable else {name: head.detach() for name, head in state.items()}
        if not self.heads.action:
            return AgentOutputs(given), TakenOutputs(state, {})
        cell, gates = self._root(params, features)
        taken = self._taken_action(params, cell[:-1], gates[:-1], actions, self.heads.action)
        with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            every = self._every_action(params, cell, gates, self.heads.for_targets())
        return AgentOutputs(given, every), TakenOutputs(state, taken)

    def _features(self, params: Params, inputs: Inputs) -> tuple[Params, Tensor]:
        """Features [..., F] of a batch, and parameters whose layers read them.

        Where the torso ends in a linear map and there are more observations than outputs, the map
        is multiplied into the layers that follow: two products of a batch become one.
        """
        torso = self._linear_end
        if torso is None:
            return params, self._torso(params, inputs)
        torso_params = self._torso_params(params)
        before = torso.before_tail(torso_params, inputs)
        weight, bias = (torso_params[f"{torso.tail}.{part}"] for part in ("weight", "bias"))
        names = [f"head.{name}" for name in self.heads.state]
        names += ["model.root"] if self.heads.action else []
        if before.shape[:-1].numel() <= sum(len(params[f"{name}.bias"]) for name in names):
            return params, affine(before, weight, bias)
        folded = dict(params)
        for name in names:
            own = params[f"{name}.weight"]
            folded[f"{name}.weight"] = own @ weight
            folded[f"{name}.bias"] = torch.addmv(params[f"{name}.bias"], own, bias)
        return folded, before

    def _torso(self, params: Params, inputs: Inputs) -> Tensor:
        """Features [..., F]."""
        result = self._call_torso(params, inputs)
        features: Tensor = result[0] if self.memory_spec else result
        return features

    def _call_torso(self, params: Params, inputs: Inputs) -> Any:
        return self._call(self._torso_params(params), inputs)

    def _torso_params(self, params: Params) -> Params:
        return {name: params[f"torso.{name}"] for name in self._torso_names}

    def _state_heads(self, params: Params, features: Tensor, inputs: Inputs) -> dict[str, Tensor]:
        state = {name: _linear(params, f"head.{name}", features) for name in self.heads.state}
        return state | {"logits": keep_legal(state["logits"], inputs)}

    def _root(self, params: Params, features: Tensor) -> tuple[Tensor, Tensor]:
        """The root's cell [..., H], and its share of the gates [..., 4 H]."""
        cell = _linear(params, "model.root", features)
        return cell, _linear(params, "model.lstm", torch.tanh(cell))

    def _every_action(
        self, params: Params, cell: Tensor, gates: Tensor, heads: HeadSpec
    ) -> dict[str, Tensor]:
        """Heads [..., A, *shape] of all actions."""
        hidden, _ = lstm_cell(gates.unsqueeze(-2) + params["model.action"], cell.unsqueeze(-2))
        return {name: self._action_head(params, name, hidden) for name in heads.action}

    def _taken_action(
        self,
        params: Params,
        cell: Tensor,
        gates: Tensor,
        actions: Tensor,
        names: Iterable[str],
    ) -> dict[str, Tensor]:
        """The named heads [T, B, *shape] of one action per state."""
        from_action = torch.nn.functional.embedding(actions, params["model.action"])
        hidden, _ = lstm_cell(gates + from_action, cell)
        return {name: self._action_head(params, name, hidden) for name in names}

    @staticmethod
    def _action_head(params: Params, name: str, hidden: Tensor) -> Tensor:
        x = torch.relu(_linear(params, f"model.{name}.0", hidden))
        return _linear(params, f"model.{name}.1", x)

    def _scaled(self, of_action: Tensor, fan_in: int) -> Tensor:
        """The action model's newborn weights for actions [A, 4 H], as large as the configuration
        wants them."""
        std = self.config.action_input_std
        return of_action if std is None else of_action * (std * fan_in**0.5)

    def _layers(self) -> dict[str, tuple[int, int, float | None]]:
        """Every layer outside the torso: name -> (in, out, initial deviation)."""
        config, size = self.config, self.torso_size
        layers: dict[str, tuple[int, int, float | None]] = {
            f"head.{name}": (size, _numel(shape), config.head_std)
            for name, shape in self.heads.state.items()
        }
        if self.heads.action:
            cells = config.model_size
            layers["model.root"] = (size, cells, None)
            layers["model.lstm"] = (self.num_actions + cells, 4 * cells, None)
        for name, shape in self.heads.action.items():
            layers[f"model.{name}.0"] = (config.model_size, config.head_hidden, None)
            layers[f"model.{name}.1"] = (
                config.head_hidden,
                _numel(shape),
                config.action_head_std,
            )
        return layers


def torso_function(torso: nn.Module) -> Callable[[Params, Inputs], Any]:
    """A torso as a function of parameters and inputs; a copy of it calls a copy of the torso."""
    return torso.functional if isinstance(torso, Functional) else partial(_call_with, torso)


def _call_with(torso: nn.Module, params: Params, inputs: Inputs) -> Any:
    return functional_call(torso, dict(params), (inputs,))


def _one_step(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0)


def _linear(params: Params, name: str, x: Tensor) -> Tensor:
    """[..., in] -> [..., out]; weights as in `nn.Linear`."""
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    size = len(bias)
    odd = -size % 8
    if not odd or size < _WIDE:
        return affine(x, weight, bias)
    # Products whose width is not a multiple of eight, such as 601, take twice as long; and so
    # would every softmax of a result with gaps.
    weight = torch.nn.functional.pad(weight, (0, 0, 0, odd))
    bias = torch.nn.functional.pad(bias, (0, odd))
    return affine(x, weight, bias)[..., :size].contiguous()


def _bell(bias: Tensor, largest: float, width: float) -> Tensor:
    """Logits [N] of a normal distribution around zero, over N bins from -largest to largest."""
    bins = torch.linspace(-largest, largest, len(bias), dtype=bias.dtype, device=bias.device)
    return (-0.5 * (bins / width).square()).clamp(min=_LEAST_LOGIT)


def _output_size(torso: nn.Module) -> int:
    if not isinstance(torso, Body) or not isinstance(torso.output_size, int):
        raise ValueError(
            f"torso: {type(torso).__name__} must say the length of its output in an integer "
            "attribute `output_size`"
        )
    return torso.output_size


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
