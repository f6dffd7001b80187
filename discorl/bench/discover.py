"""A meta-step, against the machine's own limit: at the published setting, and of small agents.

2 agents on 5 x 5 Catch, batch 32, rollouts of 16, N = 2, MLP 512-512, LSTM 256, heads 256,
value net 256-256. Its matrix products are 73.2 GFLOP; `limit` is how long they take at this
machine's measured speed. A meta-step is everything: acting, both meta-gradients, the update.

A population of small agents, such as sprout was discovered with, is timed one by one and stacked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from discorl.bench.machine import MatrixProduct, Stopwatch, peak_memory, run_worker
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.discoverer import Discoverer
from discorl.discovery.start import initial_rule
from discorl.rules.disco import DiscoRule
from discorl.runtime import tune_process
from discorl.settings import change

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
    watch = Stopwatch(subjects)
    seconds = watch.run(rounds)
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
        figures |= watch.over(mode, "matrix product", product.share(GFLOP))
        figures[f"{mode}_fraction_of_matrix_speed"] = limit / seconds[mode]
    if with_memory:
        for mode in _MODES:
            for n in INNER_STEPS:
                name = f"{mode}_peak_memory_mib_n{n}"
                figures[name] = run_worker("discorl.bench.discover", mode, str(n))
    return figures


_SMALL = {
    "rollout_length": 16,
    "learning_rate": 5e-3,
    "learn_first_steps": True,
    "torso": (64, 64),
    "activate_torso": True,
    "model_size": 64,
    "head_hidden": 64,
    "value_torso": (64, 64),
    "value_width": 1.0,
    "action_head_std": 0.001,
    "num_bins": 61,
    "max_abs_value": 30.0,
    "predictions": 32,
    "hidden": 64,
    "meta_hidden": 32,
}
"""How sprout was discovered."""


def bench_population(rounds: int, agents: int, copies: int, envs: Sequence[str]) -> dict[str, Any]:
    """Time a population of small agents one by one, stacked, and stacked with all shapes padded to
    one, round by round."""
    product = MatrixProduct()
    ways = {"one_by_one": {}, "stacked": {"stacked": True}}
    if len(set(envs)) > 1:
        ways["padded"] = {"stacked": True, "padded": True}
    sizes = {"envs": tuple(envs), "agents": agents, "num_envs": copies}
    configs = {way: change(DiscoverConfig(), _SMALL | sizes | own) for way, own in ways.items()}
    subjects: dict[str, Callable[[], object]] = {"matrix product": product}
    figures: dict[str, Any] = {"threads": torch.get_num_threads(), "rounds": rounds}
    figures |= {"agents": agents, "copies": copies}
    for way, config in configs.items():
        discoverer = Discoverer(config, initial_rule(config))
        with FlopCounterMode(display=False) as counter:
            discoverer.meta_step()
        figures[f"{way}_gflop"] = counter.get_total_flops() / 1e9
        subjects[way] = discoverer.meta_step
    watch = Stopwatch(subjects)
    seconds = watch.run(rounds, warmup=1)
    cpu = {name: median(times) for name, times in watch.cpu_seconds.items()}
    gflops = figures["matrix_gflops"] = product.gflops(seconds["matrix product"])
    for way, config in configs.items():
        figures[f"{way}_ms"] = 1e3 * seconds[way]
        figures[f"{way}_agent_updates_per_second"] = agents * config.inner_steps / seconds[way]
        limit = figures[f"{way}_gflop"] / gflops
        figures[f"{way}_fraction_of_matrix_speed"] = limit / seconds[way]
    for way in list(configs)[1:]:
        figures[f"{way}_speedup"] = seconds["one_by_one"] / seconds[way]
        figures[f"{way}_speedup_in_cpu_time"] = cpu["one_by_one"] / cpu[way]
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
