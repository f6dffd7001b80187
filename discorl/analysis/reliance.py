"""Whether a rule needs what it had agents predict: y or z hidden from it, and how agents learn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from discorl.analysis.config import AnalyseConfig
from discorl.analysis.responses import Row
from discorl.analysis.subjects import Candidate, Told, train_agent
from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.disco import DiscoRule, DiscoState, DiscoTargets
from discorl.settings import change
from discorl.training.trainer import Trainer

WHOLE = "the rule as it is"
_POINTS = 50
"""Roughly how many points a curve has."""


@dataclass(frozen=True)
class ShortSighted(DiscoRule):
    """A rule that makes the targets of y and z without reading `hidden`, and all else with it."""

    hidden: str = "y"

    def targets(
        self,
        outputs: AgentOutputs,
        target_outputs: AgentOutputs | None,
        transitions: Transitions,
        state: DiscoState,
        differentiable: bool = False,
    ) -> tuple[DiscoTargets, DiscoState]:
        """See `UpdateRule.targets`."""
        args = (outputs, target_outputs, transitions, state, differentiable)
        seeing, new_state = super().targets(*args)
        sighted = DiscoRule(self.config, self.params)
        unseeing, _ = blind(sighted, self.hidden).targets(*args)
        return replace(seeing, y=unseeing.y, z=unseeing.z), new_state


def blind(rule: DiscoRule, hidden: str) -> DiscoRule:
    """The rule with zeros in place of all it reads of y or of z: their embeddings' last layers,
    in the trajectory net and in the meta-RNN, give nothing."""
    layers = (f"{hidden}_net.1.", f"meta.{hidden}_net.1.")
    params = {
        name: torch.zeros_like(tensor) if name.startswith(layers) else tensor
        for name, tensor in rule.params.items()
    }
    return rule.with_params(params)


def variants(rule: DiscoRule) -> dict[str, DiscoRule]:
    """The rule as it is, and with y or z hidden from some targets or all."""
    found = {WHOLE: rule}
    for hidden in ("y", "z"):
        part = ShortSighted(rule.config, rule.params, rule.name, rule.provenance, hidden)
        found[f"no {hidden} for the targets of y and z"] = part
        found[f"no {hidden} for any target"] = blind(rule, hidden)
    return found


def reliance(candidates: Sequence[Candidate], config: AnalyseConfig, told: Told) -> list[Row]:
    """Learning curves of fresh agents by each variant of each discovered rule; a random rule is
    left as it is."""
    rows: list[Row] = []
    for candidate in candidates:
        if not isinstance(candidate.rule, DiscoRule):
            continue
        ways = {WHOLE: candidate.rule} if candidate.null else variants(candidate.rule)
        for variant, rule in ways.items():
            for seed in range(config.seed, config.seed + config.seeds):
                what = f"{candidate.label}, {variant}, seed {seed}"
                life = change(candidate.config, {"seed": seed})
                with closing(Trainer(life, rule)) as trainer:
                    returns = train_agent(trainer, life.steps, told, what)
                rows += _curve(candidate.label, variant, seed, returns)
    return rows


def _curve(label: str, variant: str, seed: int, returns: Sequence[float]) -> list[Row]:
    every = max(len(returns) // _POINTS, 1)
    return [
        {"rule": label, "variant": variant, "seed": seed, "step": step, "return": value}
        for step, value in enumerate(returns, start=1)
        if step % every == 0 or step == len(returns)
    ]
