"""A rule during its discovery: as the checkpoints of its run hold it."""

from __future__ import annotations

from pathlib import Path

from discorl.discovery.run import BEST_FILE
from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule, require_discovered
from discorl.rules.disco import DiscoRule
from discorl.runs.checkpoint import Checkpoint, list_checkpoints, read_checkpoint
from discorl.runs.folder import CHECKPOINTS, CONFIG_FILE, RULE_FILE, run_kind

_PREFIX = "rule/"


def rules_on_the_way(place: Path) -> list[tuple[str, DiscoRule]]:
    """What a discovery's rule was, oldest first, each with a label: at the checkpoints that the run
    kept, and at its best; empty if `place` is neither such a run nor one of its checkpoints."""
    if place.parent.name == CHECKPOINTS and _is_rule_run(place.parent.parent):
        return [_at(place.parent.parent, read_checkpoint(place))[1:]]
    if not _is_rule_run(place):
        return []
    found = [_at(place, read_checkpoint(path)) for path in list_checkpoints(place / CHECKPOINTS)]
    best = place / BEST_FILE
    if best.exists():
        rule = require_discovered(load_rule(best))
        step = int(rule.provenance.get("meta_steps", "0"))
        if all(step != other for other, _, _ in found):
            found.append((step, f"{_name(place)} at {step} (best)", rule))
    if not found:
        raise DiscorlError(f"{place} has no checkpoint yet: there is no rule in it to look into")
    return [(label, rule) for _, label, rule in sorted(found, key=lambda entry: entry[0])]


def _is_rule_run(folder: Path) -> bool:
    return (folder / CONFIG_FILE).exists() and run_kind(folder) in ("discover", "distil")


def _at(folder: Path, checkpoint: Checkpoint) -> tuple[int, str, DiscoRule]:
    """Meta-step, label, and the rule as a checkpoint has it."""
    form = require_discovered(load_rule(folder / RULE_FILE))
    params = {
        name.removeprefix(_PREFIX): tensor.clone().float()
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(_PREFIX)
    }
    return checkpoint.step, f"{_name(folder)} at {checkpoint.step}", form.with_params(params)


def _name(folder: Path) -> str:
    return folder.resolve().name
