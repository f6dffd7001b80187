"""The student at birth: a part of its teacher, as far as one fits into the other."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from discorl.distillation.merging import Merging
from discorl.layers import Params
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.meta_network import MetaNetworkSizes, initial_params


def cut_student(
    teacher: DiscoRule, config: DiscoConfig, merging: Merging | None, seed: int
) -> DiscoRule:
    """A rule of the student's sizes with the teacher's most important units in it.

    Of the LSTM and the meta-RNN, the units with the largest outgoing weights are kept; the nets
    that read y and z get the mean row of each group of bins. A tensor that does not fit after
    this, because another size differs, starts random. If all sizes are the teacher's, then the
    student is the teacher.
    """
    generator = torch.Generator().manual_seed(seed)
    random = initial_params(config.sizes, generator)
    cut = _cut(teacher, config, merging)
    params = {
        name: cut[name].to(p.dtype).contiguous() if cut[name].shape == p.shape else p
        for name, p in random.items()
    }
    return DiscoRule(config, params, name="student")


def student_config(
    teacher: DiscoRule,
    sizes: MetaNetworkSizes,
    num_bins: int | None,
    max_abs_value: float | None,
) -> DiscoConfig:
    """The teacher's settings with the student's sizes and, if given, its own bins."""
    known = teacher.config
    return replace(
        known,
        sizes=sizes,
        num_bins=known.num_bins if num_bins is None else num_bins,
        max_abs_value=known.max_abs_value if max_abs_value is None else max_abs_value,
    )


def _cut(teacher: DiscoRule, config: DiscoConfig, merging: Merging | None) -> dict[str, Tensor]:
    """The teacher's tensors without the units that the student lacks."""
    cut = {name: p.detach().cpu() for name, p in teacher.params.items()}
    known, wanted = teacher.config.sizes, config.sizes
    if merging is not None:
        for prefix in ("", "meta."):
            for net, groups in (("y_net", merging.y), ("z_net", merging.z)):
                name = f"{prefix}{net}.0.w"
                cut[name] = groups.mean(cut[name])
        for net, groups in (("y_target", merging.y), ("z_target", merging.z)):
            # A sum of exponentials that are about equal: their mean, and the log of their number.
            cut[f"{net}.w"] = groups.mean(cut[f"{net}.w"].t()).t()
            mean = groups.mean(cut[f"{net}.b"].unsqueeze(1)).squeeze(1)
            cut[f"{net}.b"] = mean + groups.sizes.to(mean.dtype).log()
    if wanted.hidden < known.hidden:
        keep = _strongest(cut, known.hidden, wanted.hidden)
        inputs = cut["lstm.w"].shape[0] - known.hidden
        cut["lstm.w"] = _gates(cut["lstm.w"], keep)[_after(inputs, keep)]
        cut["lstm.b"] = _gates(cut["lstm.b"], keep)
        cut["gate.w"], cut["gate.b"] = cut["gate.w"][:, keep], cut["gate.b"][keep]
        for net in ("meta_input", "y_target", "z_target"):
            cut[f"{net}.w"] = cut[f"{net}.w"][keep]
        half = known.hidden + known.policy_channels[1]
        rows = torch.cat([keep, torch.arange(known.hidden, half)])
        cut["policy_target.block.w"] = cut["policy_target.block.w"][torch.cat([rows, rows + half])]
    if wanted.meta_hidden < known.meta_hidden:
        strength = cut["gate.w"].square().sum(dim=1)
        keep = strength.topk(wanted.meta_hidden).indices.sort().values
        cut["meta.lstm.w"] = _gates(cut["meta.lstm.w"], keep)[_after(known.meta_embedding, keep)]
        cut["meta.lstm.b"] = _gates(cut["meta.lstm.b"], keep)
        cut["gate.w"] = cut["gate.w"][keep]
    return cut


def _strongest(params: Params, hidden: int, count: int) -> Tensor:
    """The units of the trajectory LSTM whose weights to the targets are largest, as indices."""
    block = params["policy_target.block.w"]
    half = block.shape[0] // 2
    to_policy = block[:hidden] + block[half : half + hidden]
    outgoing = [to_policy, params["y_target.w"], params["z_target.w"]]
    shares = [w.square().sum(dim=1) / w.square().sum() for w in outgoing]
    return torch.stack(shares).sum(dim=0).topk(count).indices.sort().values


def _gates(tensor: Tensor, keep: Tensor) -> Tensor:
    """The columns of the units to keep, of all four gates: [..., 4 H] -> [..., 4 H']."""
    return torch.cat([gate[..., keep] for gate in tensor.chunk(4, dim=-1)], dim=-1)


def _after(inputs: int, keep: Tensor) -> Tensor:
    """Rows of all inputs, and of the units to keep after them."""
    return torch.cat([torch.arange(inputs), inputs + keep])
