"""What this machine can do: the yardstick for step times."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from discorl.errors import DiscorlError

_MATRIX = 2048


class MatrixProduct:
    """Times float32 products of large square matrices, to be called between other timings."""

    def __init__(self) -> None:
        self._a = torch.randn(_MATRIX, _MATRIX)
        self._b = torch.randn(_MATRIX, _MATRIX)

    def __call__(self) -> None:
        torch.mm(self._a, self._b)

    @staticmethod
    def share(gflop: float) -> float:
        """How many of these products make so many floating point operations, in 10^9."""
        return gflop * 1e9 / (2 * _MATRIX**3)

    @staticmethod
    def gflops(seconds: float) -> float:
        """The speed if one product takes this long."""
        return 2 * _MATRIX**3 / seconds / 1e9


@dataclass
class Stopwatch:
    """Times several things in turn, round after round, so that all see the same noise."""

    subjects: dict[str, Callable[[], object]]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    """Processor time of all threads, which other processes do not lengthen much."""

    def run(self, rounds: int, warmup: int = 2) -> dict[str, float]:
        """Median seconds of each subject."""
        for subject in self.subjects.values():
            for _ in range(warmup):
                subject()
        for _ in range(rounds):
            for name, subject in self.subjects.items():
                # A subject in another process has a clock of its own.
                processor = getattr(subject, "process_time", time.process_time)
                subject()  # Untimed: caches and allocator are as in a run of many steps.
                cpu_started, started = processor(), time.perf_counter()
                subject()
                self.seconds.setdefault(name, []).append(time.perf_counter() - started)
                self.cpu_seconds.setdefault(name, []).append(processor() - cpu_started)
        return {name: median(times) for name, times in self.seconds.items()}

    def over(self, name: str, limit: str, share: float) -> dict[str, float]:
        """How many times as long as this share of the subject `limit` another took."""
        return self._compare(name, limit, f"{name}{{}}_over_limit", share)

    def speedup(self, figure: str, name: str, other: str) -> dict[str, float]:
        """How many times as fast as another a subject was."""
        return self._compare(other, name, f"{figure}{{}}", 1)

    def _compare(self, name: str, other: str, figure: str, share: float) -> dict[str, float]:
        figures: dict[str, float] = {}
        for kind, times in (("", self.seconds), ("_cpu", self.cpu_seconds)):
            pairs = zip(times[name], times[other], strict=True)
            ratios = [own / (share * theirs) for own, theirs in pairs]
            figures |= spread(figure.format(kind), ratios)
        return figures


def spread(figure: str, ratios: Sequence[float]) -> dict[str, float]:
    """Median and quartiles over rounds: other load slows all that is in a round alike."""
    low, middle, high = quantiles(ratios, n=4)
    return {figure: middle, f"{figure}_from": low, f"{figure}_to": high}


def peak_memory() -> float:
    """Largest resident size of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Unlike `ru_maxrss`, this does not remember the process that started this one.
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run_worker(module: str, *args: str) -> Any:
    """Run a module in a fresh process and return the JSON on its last line of output."""
    done = subprocess.run(
        [sys.executable, "-m", module, *args], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DiscorlError(f"{module} {' '.join(args)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
