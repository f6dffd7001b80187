"""Verify this implementation against golden files of the published one.

`verify_files` runs our functions on the inputs a file holds, in float64 and in float32, and
reports how far each result is from the file's. A new kind of file is one entry in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from discorl.errors import DiscorlError
from discorl.verify import learner, meta, rule, values
from discorl.verify.files import GoldenFile, kind_of, read_golden
from discorl.verify.report import Check, FileReport, Precision, Report

__all__ = ["KINDS", "Check", "FileReport", "GoldenFile", "Kind", "Report", "verify_files"]

Checker = Callable[[GoldenFile, torch.dtype, Path | None], list[Check]]
"""From a file, a float type and a rule's weights (for files that carry none) to its checks."""


@dataclass(frozen=True)
class Kind:
    """How files of one kind are checked."""

    checker: Checker
    inputs: tuple[str, ...]
    """Patterns of the arrays that are given; all others must be checked."""
    float64_tolerance: float = 1e-9
    float32_tolerance: float = 1e-3

    def tolerances(self) -> dict[torch.dtype, float]:
        """Float type -> largest error that passes."""
        return {torch.float64: self.float64_tolerance, torch.float32: self.float32_tolerance}


# Adam's first step is the learning rate times the gradient's sign, so in float32 an element
# whose gradient is rounding noise may go either way: 2 x 0.01 of parameters around 0.3. Meta-
# gradients pass through the same step, whose derivative grows with one over the gradient.
KINDS: dict[str, Kind] = {
    "values": Kind(values.check_values, values.INPUTS),
    "rule": Kind(rule.check_rule, rule.INPUTS),
    "learner": Kind(
        learner.check_learner, learner.INPUTS, float64_tolerance=1e-8, float32_tolerance=0.1
    ),
    "meta": Kind(meta.check_meta, meta.INPUTS, float64_tolerance=1e-7, float32_tolerance=0.5),
}


def verify_files(paths: Sequence[Path], weights: Path | None = None) -> Report:
    """Verify every file; one that cannot be is reported as such and does not stop the rest.

    Args:
      paths: golden .npz files of any kind.
      weights: a rule's .npz for files that do not carry their own; Disco103 if None.
    """
    return Report(tuple(_verify_file(path, weights) for path in paths))


def _verify_file(path: Path, weights: Path | None) -> FileReport:
    kind_name = ""
    try:
        golden = read_golden(path)
        kind_name = kind_of(golden)
        return FileReport(path, kind_name, _precisions(golden, kind_name, weights))
    except DiscorlError as error:
        return FileReport(path, kind_name, problem=str(error))


def _precisions(golden: GoldenFile, kind_name: str, weights: Path | None) -> dict[str, Precision]:
    if kind_name not in KINDS:
        raise DiscorlError(f"{golden.path}: {kind_name} files are not supported yet")
    kind = KINDS[kind_name]
    precisions = {}
    for dtype, tolerance in kind.tolerances().items():
        checks = _run(kind, golden, dtype, weights)
        _check_coverage(golden, kind, checks)
        precisions[str(dtype).removeprefix("torch.")] = Precision(tolerance, tuple(checks))
    return precisions


def _run(kind: Kind, golden: GoldenFile, dtype: torch.dtype, weights: Path | None) -> list[Check]:
    """The checks, with errors about the file's contents naming the file."""
    try:
        return kind.checker(golden, dtype, weights)
    except KeyError as error:
        raise DiscorlError(f"{golden.path}: the array {error} is missing") from error
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise DiscorlError(f"{golden.path}: its arrays do not fit together: {error}") from error


def _check_coverage(golden: GoldenFile, kind: Kind, checks: list[Check]) -> None:
    """Nothing in a file may go unchecked."""
    seen = {check.quantity for check in checks}
    for key in golden.arrays:
        given = any(fnmatchcase(key, pattern) for pattern in kind.inputs)
        if key not in seen and not given:
            raise DiscorlError(f"{golden.path}: no check is known for the array {key}")
    if all(check.error is None for check in checks):
        raise DiscorlError(f"{golden.path}: nothing in the file could be checked")
