"""The heads that a rule asks for, as a module to put on a torso of your own."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from discorl.agents.config import NetworkConfig
from discorl.agents.network import Network
from discorl.layers import Params
from discorl.library.catalogue import DEFAULT_RULE, rule_heads
from discorl.rules.base import UpdateRule

NEWBORN = NetworkConfig(value_width=1.0, action_head_std=0.001, action_input_std=1.0)
"""An agent that is born sure that nothing is worth anything, and that tells actions apart, learns
faster."""


class DiscoHeads(nn.Module):
    """Features [..., F] to every head: [..., *shape], and [..., A, *shape] for each action.

    They are `Network`'s heads and action model, computed by its code under its parameter names.
    So `nn.Sequential(torso, DiscoHeads(64, 3))` is an agent.

    Args:
      feature_size: F.
      rule: whose heads to build: a name, a file or a rule.
      config: sizes of the model and initial deviations; its torso settings are ignored. The
        default starts values as a narrow bell around zero.

    Initial weights follow `torch.manual_seed`, like those of other modules.
    """

    def __init__(
        self,
        feature_size: int,
        num_actions: int,
        rule: str | Path | UpdateRule = DEFAULT_RULE,
        config: NetworkConfig = NEWBORN,
    ) -> None:
        super().__init__()
        heads = rule_heads(rule, num_actions)
        self._network = Network(Features(feature_size), heads, config)
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        for name, tensor in self._network.init(generator).items():
            register(self, name, tensor.clone())

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """[..., F] -> name -> [..., *shape]."""
        outputs = self._network.outputs(dict(self.named_parameters()), features)
        return outputs.state | outputs.action

    def extra_repr(self) -> str:
        """What `print` shows."""
        heads = [*self._network.heads.state, *self._network.heads.action]
        return f"{self._network.torso_size}, {self._network.num_actions}, heads={heads}"


class Features(nn.Module):
    """A torso that passes on its input."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def functional(self, params: Params, features: Tensor) -> Tensor:
        return features


def register(module: nn.Module, path: str, tensor: Tensor) -> None:
    """Make `tensor` the parameter `a.b.c` of the module, adding modules `a` and `a.b` if needed."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in module._modules:
            module.add_module(parent, nn.Module())
        module = module.get_submodule(parent)
    module.register_parameter(name, nn.Parameter(tensor))
