"""A network of the user's own: a torso that needs heads, or a module that has them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from discorl.agents.base import Agent
from discorl.agents.check import check_outputs, check_parameters, require_module, trainable
from discorl.agents.config import NetworkConfig
from discorl.agents.module import has_forward_step, module_agent, original_module
from discorl.agents.network import Network
from discorl.agents.torsos import Remembering
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec, ObservationSpec, spec_entries
from discorl.outputs import HeadSpec


def agent_from_module(
    module: nn.Module, spec: ObservationSpec, heads: HeadSpec, config: NetworkConfig
) -> Agent:
    """An agent around a module.

    Args:
      module: maps observations [..., *shape] to features [..., F], which the rule's heads are put
        on; or to a dictionary of all those heads. Or a body with memory, which has `output_size`
        and `memory_spec` as in `discorl.agents.recurrent`.
      config: sizes of the heads.
    """
    module = original_module(require_module(module))
    check_parameters(module)
    if has_forward_step(module):
        raise DiscorlError(
            "network: modules with forward_step learn in a loop of your own, with DiscoTrainer"
        )
    if isinstance(module, Remembering):
        return Network(module, heads, config)
    example = _example(spec)
    try:
        with torch.no_grad():
            outputs = module(example)
    except Exception as error:
        shapes = ", ".join(map(str, spec_entries(spec).values()))
        raise DiscorlError(
            f"network: its forward failed on observations {shapes} with two leading "
            f"dimensions: {type(error).__name__}: {error}"
        ) from error
    if isinstance(outputs, Mapping):
        agent = module_agent(module, heads)
        check_outputs(agent, trainable(module), example)
        return agent
    if not isinstance(outputs, Tensor) or outputs.dim() != 3:
        raise DiscorlError(
            "network: for observations [T, B, ...] it must give features [T, B, F], or a "
            f"dictionary with the heads {[*heads.state, *heads.action]}"
        )
    return Network(_Sized(module, outputs.shape[-1]), heads, config)


class _Sized(nn.Module):
    """A torso that states the length of its output."""

    def __init__(self, torso: nn.Module, output_size: int) -> None:
        super().__init__()
        self.torso = torso
        self.output_size = output_size

    def forward(self, observations: Any) -> Any:
        """[..., *shape] -> [..., output_size]."""
        return self.torso(observations)


def _example(spec: ObservationSpec) -> Any:
    def zeros(entry: ArraySpec) -> Tensor:
        return torch.zeros(2, 2, *entry.shape, dtype=entry.dtype)

    return zeros(spec) if isinstance(spec, ArraySpec) else {k: zeros(v) for k, v in spec.items()}
