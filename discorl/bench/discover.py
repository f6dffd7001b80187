"""A meta-step at the published setting, against the machine's own limit.

2 agents on 5 x 5 Catch, batch 32, rollouts of 16, N = 2, MLP 512-512, LSTM 256, heads 256,
value net 256-256. Its matrix products are 73.2 GFLOP; `limit` is how long they take at this
machine's measured speed. A meta-step is everything: acting, both meta-gradients, the update.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Literal

import torch

from discorl.bench.machine import MatrixProduct, Stopwatch, peak_memory, run_worker
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.discoverer import Discoverer
from discorl.rules.disco import DiscoRule
from discorl.runtime import tune_process

GFLOP = 73.2
INNER_STEPS = (1, 2, 5, 10, 20)
_MODES: tuple[Literal["reverse", "mixed"], ...] = ("reverse", "mixed")
_MEMORY_STEPS = 3


def bench_discover(rounds: int, with_memory: bool) -> dict[str, Any]:
    """Time both modes round by round and return the figures."""
    product = MatrixProduct()
    subjects: dict[str, Callable[[], object]] = {"matrix product": product}
    for mode in _MODES:
        subjects[mode] = _discoverer(mode).meta_step
    seconds = Stopwatch(subjects).run(rounds)
    gflops = product.gflops(seconds["matrix product"])
    limit = GFLOP / gflops
    figures: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "gflop": GFLOP,
        "matrix_gflops": gflops,
        "limit_ms": 1e3 * limit,
    }
    for mode in _MODES:
        figures[f"{mode}_ms"] = 1e3 * seconds[mode]
        figures[f"{mode}_over_limit"] = seconds[mode] / limit
        figures[f"{mode}_fraction_of_matrix_speed"] = limit / seconds[mode]
    if with_memory:
        for mode in _MODES:
            for n in INNER_STEPS:
                name = f"{mode}_peak_memory_mib_n{n}"
                figures[name] = run_worker("discorl.bench.discover", mode, str(n))
    return figures


def _discoverer(mode: Literal["reverse", "mixed"], inner_steps: int = 2) -> Discoverer:
    config = DiscoverConfig(mode=mode, inner_steps=inner_steps)
    return Discoverer(config, DiscoRule.random())


def _measure_memory(mode: str, inner_steps: int) -> float:
    tune_process()
    discoverer = _discoverer("reverse" if mode == "reverse" else "mixed", inner_steps)
    for _ in range(_MEMORY_STEPS):
        discoverer.meta_step()
    return peak_memory()


if __name__ == "__main__":
    print(json.dumps(_measure_memory(sys.argv[1], int(sys.argv[2]))))
