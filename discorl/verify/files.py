"""Golden files: named arrays written by the published implementation in float64."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discorl.errors import DiscorlError
from discorl.verify.report import Check, compare

SIGNATURES = {
    "meta": ("meta_grad/",),
    "learner": ("params/0/",),
    "rule": ("in/agent_out/",),
    "values": (
        "transform/",
        "two_hot/",
        "vtrace/",
        "retrace/",
        "importance/",
        "moving_average/",
        "value_loss/",
        "policy_gradient/",
    ),
}
"""Kind of file -> how some of its arrays' names begin; the first kind that fits counts."""

_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What a damaged archive can raise, from NumPy or from the zip underneath."""


@dataclass(frozen=True)
class GoldenFile:
    """The arrays of one file."""

    path: Path
    arrays: Mapping[str, NDArray[np.generic]]

    def tensor(self, key: str, dtype: torch.dtype) -> Tensor:
        """An array as a tensor: floats in `dtype`, integers as int64, booleans as they are."""
        if key not in self.arrays:
            raise DiscorlError(f"{self.path}: the array {key} is missing")
        tensor = torch.from_numpy(np.array(self.arrays[key]))
        if not torch.isfinite(tensor).all():
            raise DiscorlError(f"{self.path}: the array {key} is not finite")
        if tensor.is_floating_point():
            return tensor.to(dtype)
        return tensor if tensor.dtype == torch.bool else tensor.long()

    def under(self, prefix: str, dtype: torch.dtype) -> dict[str, Tensor]:
        """All arrays whose name begins with `prefix`, which is left off their names."""
        names = [key for key in self.arrays if key.startswith(prefix)]
        return {key.removeprefix(prefix): self.tensor(key, dtype) for key in names}

    def compare(self, results: Mapping[str, Tensor]) -> list[Check]:
        """Compare the results that the file holds, in the file's order."""
        shared = [key for key in self.arrays if key in results]
        return [compare(key, results[key], self.arrays[key]) for key in shared]


def read_golden(path: Path) -> GoldenFile:
    """Read all arrays, never unpickling anything; DiscorlError, naming the file, on failure."""
    if not path.exists():
        raise DiscorlError(f"{path}: no such file")
    try:
        # Opened here, because NumPy leaves the file open if the archive is damaged.
        with path.open("rb") as stream:
            arrays = _arrays(np.load(stream, allow_pickle=False))
    except _UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise DiscorlError(
            f"{path}: not a readable .npz file of plain arrays ({reason})"
        ) from error
    if not arrays:
        raise DiscorlError(f"{path}: the file holds no arrays")
    return GoldenFile(path, arrays)


def kind_of(golden: GoldenFile) -> str:
    """Which kind of golden file it is, by the names of its arrays."""
    for kind, prefixes in SIGNATURES.items():
        if any(key.startswith(prefixes) for key in golden.arrays):
            return kind
    known = ", ".join(SIGNATURES)
    first = next(iter(golden.arrays))
    raise DiscorlError(
        f"{golden.path}: not a golden file; its arrays, like {first}, fit none of {known}"
    )


def _arrays(archive: object) -> dict[str, NDArray[np.generic]]:
    """Every array in the archive, read now; raises ValueError for anything but numbers."""
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("one bare array, expected an archive of named ones")
    arrays = {}
    for name in archive.files:
        array = archive[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise ValueError(f"{name} is not an array of numbers")
        arrays[name] = array
    return arrays
