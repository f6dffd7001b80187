"""Golden files for tests: where they are, and a rule's golden call rebuilt from one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from discorl.library.catalogue import RULES, StoredRule, cache_folders
from discorl.library.published import from_published, infer_sizes
from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.disco import DiscoConfig, DiscoRule, DiscoState
from discorl.rules.meta_network import MetaRNNState
from discorl.values import MovingAverage

DATA = Path(__file__).parent / "data"
LARGE = Path(__file__).parents[2] / "shared" / "goldens"
"""Full-size goldens beside the project; not part of it."""
# Read at import: tests point the cache elsewhere.
_FOLDERS = [LARGE.parent / "weights", *cache_folders()]
NO_WEIGHTS = "the published weights are not here: discorl rules fetch disco103"


def disco103_file() -> Path | None:
    """The published weights, wherever they are on this machine."""
    entry = RULES["disco103"]
    assert isinstance(entry, StoredRule)
    found = (folder / entry.file_name for folder in _FOLDERS)
    return next((path for path in found if path.is_file()), None)


@dataclass(frozen=True)
class RuleCall:
    """Everything one call of a rule takes, in float64, and what it should give."""

    rule: DiscoRule
    heads: dict[str, Tensor]
    outputs: AgentOutputs
    target_outputs: AgentOutputs
    transitions: Transitions
    state: DiscoState
    golden: dict[str, Tensor]


def load(path: Path) -> dict[str, Tensor]:
    """All arrays of a golden file."""
    with np.load(path, allow_pickle=False) as archive:
        return {key: torch.from_numpy(archive[key]) for key in archive.files}


def under(arrays: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The arrays whose names begin with `prefix`, which is left off."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def load_rule_call(path: Path) -> RuleCall:
    """A golden file of a rule that carries its own parameters."""
    golden = load(path)
    params = under(golden, "meta_params/")
    sizes = infer_sizes({name: tuple(tensor.shape) for name, tensor in params.items()})
    heads = {k: v.requires_grad_() for k, v in under(golden, "in/agent_out/").items()}
    bins = heads["q"].shape[-1]
    config = DiscoConfig(sizes=sizes, num_bins=bins, max_abs_value=(bins - 1) / 2)
    rule = DiscoRule(config, from_published(params))
    spec = rule.heads(heads["logits"].shape[-1])
    return RuleCall(
        rule=rule,
        heads=heads,
        outputs=AgentOutputs.from_dict(heads, spec),
        target_outputs=AgentOutputs.from_dict(under(golden, "in/target_out/"), spec),
        transitions=Transitions(
            actions=golden["in/actions"][:-1].long(),
            rewards=golden["in/rewards"],
            terminals=golden["in/is_terminal"],
            behaviour_logits=golden["in/behaviour_logits"][:-1],
        ),
        state=DiscoState(
            rnn=MetaRNNState(golden["state/h"], golden["state/c"]),
            advantage=MovingAverage(*golden["state/adv"]),
            td=MovingAverage(*golden["state/td"]),
        ),
        golden=golden,
    )
