"""One checkpoint of several processes.

The leading process's tensors have the names that a run of one process gives them. Those of the
others stand beside them under `process_0001/` and so on, without the agent: it is the same in all.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from discorl.errors import DiscorlError
from discorl.group import Group
from discorl.tree import split_groups

_AGENT = "learner/"


def join_parts(group: Group, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """All processes' tensors in the leading one, None elsewhere.

    Raises DiscorlError if the agent is not the same in all of them.
    """
    if group.size == 1:
        return tensors
    agent = {name: t for name, t in tensors.items() if name.startswith(_AGENT)}
    own = {} if group.leads else {n: t.cpu().clone() for n, t in tensors.items() if n not in agent}
    gathered = group.gather((_digest(agent), own))
    if gathered is None:
        return None
    digests = [digest for digest, _ in gathered]
    strangers = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if strangers:
        raise DiscorlError(
            f"the agent of process {strangers[0]} is no longer that of process 0, so nothing was "
            "saved. A rule must take means over Transitions.group, and all processes must compute "
            "alike"
        )
    for rank, (_, part) in enumerate(gathered):
        tensors = tensors | {f"process_{rank:04d}/{name}": t for name, t in part.items()}
    return tensors


def split_parts(tensors: dict[str, Tensor], processes: int) -> list[dict[str, dict[str, Tensor]]]:
    """The groups of each process, the agent in all of them."""
    groups = split_groups(tensors)
    others = [groups.pop(f"process_{rank:04d}") for rank in range(1, processes)]
    return [groups, *({"learner": groups["learner"], **split_groups(part)} for part in others)]


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
