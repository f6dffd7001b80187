"""Whether a module of your own can learn by a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discorl.agents.check import check_outputs, check_parameters, require_module, trainable
from discorl.agents.module import module_agent, original_module
from discorl.library.catalogue import DEFAULT_RULE, rule_heads
from discorl.observations import Observation
from discorl.rules.base import UpdateRule


def check_agent(
    agent: Any,
    observations: Observation,
    num_actions: int,
    rule: str | Path | UpdateRule = DEFAULT_RULE,
) -> None:
    """Raise DiscorlError, which says what to do, unless the module can learn by the rule.

    Args:
      agent: a module that returns the rule's heads, of any kind that `DiscoTrainer` takes.
      observations: [T, B, ...] as a rollout holds them; a few are enough.
      rule: a name, a file or a rule.
    """
    module = original_module(require_module(agent))
    check_parameters(module)
    heads = module_agent(module, rule_heads(rule, num_actions))
    check_outputs(heads, trainable(module), observations)
