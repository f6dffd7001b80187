"""What a verification found: errors of single quantities, of a file, of several files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Json = dict[str, object]


@dataclass(frozen=True)
class Check:
    """One quantity of a golden file compared with ours."""

    quantity: str
    """The array's name in the file."""
    error: float | None
    """Relative to the golden array's largest magnitude; infinite if no number can say how wrong
    ours is, None if the file does not let us compare."""
    note: str = ""
    """Why the error is infinite, or why there is none."""

    def passes(self, tolerance: float) -> bool:
        """Whether ours is close enough; what cannot be compared does not fail."""
        return self.error is None or self.error <= tolerance


def compare(quantity: str, ours: Tensor, golden: NDArray[np.generic]) -> Check:
    """Compare our tensor with the golden array of the same shape."""
    result = ours.detach().cpu().double().numpy()
    expected = golden.astype(np.float64)
    if result.shape != expected.shape:
        found = f"expected shape {list(expected.shape)}, ours is {list(result.shape)}"
        return Check(quantity, math.inf, found)
    if expected.size == 0:
        return Check(quantity, math.inf, "the golden array is empty")
    if not np.isfinite(expected).all():
        return Check(quantity, math.inf, "the golden array is not finite")
    if not np.isfinite(result).all():
        return Check(quantity, math.inf, "ours is not finite")
    return Check(quantity, relative_error(result, expected))


def relative_error(ours: NDArray[np.float64], golden: NDArray[np.float64]) -> float:
    """`max|ours - golden| / max|golden|`; absolute if the golden array is all zeros."""
    error = float(np.abs(ours - golden).max())
    largest = float(np.abs(golden).max())
    return error / largest if largest > 0 else error


@dataclass(frozen=True)
class Precision:
    """All checks of a file in one float type."""

    tolerance: float
    checks: tuple[Check, ...]

    def failures(self) -> list[str]:
        """The quantities above tolerance."""
        return [check.quantity for check in self.checks if not check.passes(self.tolerance)]

    def max_error(self) -> float:
        """The largest error of those compared."""
        return max(check.error for check in self.checks if check.error is not None)


@dataclass(frozen=True)
class FileReport:
    """One golden file: compared, or why it could not be."""

    path: Path
    kind: str = ""
    precisions: Mapping[str, Precision] = field(default_factory=dict)
    """Float type's name -> its checks, the same quantities in the same order."""
    problem: str = ""
    """Why the file could not be verified; then there are no checks."""

    @property
    def passed(self) -> bool:
        return not self.problem and not self.failures()

    def failures(self) -> list[str]:
        """The quantities above tolerance in any float type, each once."""
        failed = (name for part in self.precisions.values() for name in part.failures())
        return list(dict.fromkeys(failed))

    def rows(self) -> list[dict[str, Check]]:
        """Per quantity: float type's name -> check."""
        columns = (part.checks for part in self.precisions.values())
        return [dict(zip(self.precisions, row, strict=True)) for row in zip(*columns, strict=True)]

    def compared(self) -> int:
        """How many quantities were compared."""
        return sum(any(c.error is not None for c in row.values()) for row in self.rows())

    def as_json(self) -> Json:
        """Plain data; an infinite error becomes null, and its note says why."""
        return {
            "path": str(self.path),
            "kind": self.kind,
            "passed": self.passed,
            "problem": self.problem,
            "tolerances": {name: part.tolerance for name, part in self.precisions.items()},
            "quantities": [self._row_as_json(row) for row in self.rows()],
        }

    def _row_as_json(self, row: Mapping[str, Check]) -> Json:
        checks = list(row.values())
        return {
            "name": checks[0].quantity,
            "compared": any(check.error is not None for check in checks),
            "passed": checks[0].quantity not in self.failures(),
            "errors": {name: _finite(check.error) for name, check in row.items()},
            "note": first_note(checks),
        }


@dataclass(frozen=True)
class Report:
    """All files asked for, in that order."""

    files: tuple[FileReport, ...]

    @property
    def exit_code(self) -> int:
        """0 all good, 1 a quantity above tolerance, 2 a file that could not be verified."""
        if any(file.problem for file in self.files):
            return 2
        return 0 if all(file.passed for file in self.files) else 1

    def summary(self) -> str:
        """One line for a person."""
        quantities = sum(file.compared() for file in self.files)
        failed = sum(len(file.failures()) for file in self.files)
        unread = sum(bool(file.problem) for file in self.files)
        counts = f"{_count(len(self.files), 'file')}, {_count(quantities, 'quantity')}"
        if not failed and not unread:
            return f"{counts}, all within tolerance"
        verdicts = [f"{failed} above tolerance"] if failed else []
        verdicts += [f"{_count(unread, 'file')} not verified"] if unread else []
        return f"{counts}: {', '.join(verdicts)}"

    def as_json(self) -> Json:
        """Plain data of everything."""
        return {
            "passed": self.exit_code == 0,
            "summary": self.summary(),
            "files": [file.as_json() for file in self.files],
        }


def first_note(checks: Iterable[Check]) -> str:
    """What there is to say about a quantity in all float types."""
    return next((check.note for check in checks if check.note), "")


def _finite(error: float | None) -> float | None:
    return error if error is not None and math.isfinite(error) else None


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"
