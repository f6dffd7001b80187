"""Measures several processes against one, and computes the model on docs/scaling.md from that.

`python docs/scaling_figures.py measure FILE` runs everything by turns in one sitting and writes
what it measured; `python docs/scaling_figures.py show FILE` prints the tables. Processes have one
thread unless said otherwise; the published weights must be there.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, Self

import torch

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.start import initial_rule, make_discoverer
from discorl.group import Group
from discorl.library.catalogue import load_rule
from discorl.processes import join_group
from discorl.runtime import tune_process
from discorl.settings import change
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer

STEPS = {"train": 10, "discover": 3}
"""In a turn."""
SIZES = (1 << 6, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22)
"""Numbers in a message, float32."""
REPEATS = 40
FIRST, LEARN_FROM = 40, 31
"""Steps before the timing begins, and those that only fill replay."""
RANKS = (2, 4, 8, 16, 32, 64, 128, 256)
SMALL_AGENTS = {
    "rollout_length": 16,
    "num_envs": 16,
    "torso": (64, 64),
    "model_size": 64,
    "head_hidden": 64,
    "value_torso": (64, 64),
    "num_bins": 61,
    "max_abs_value": 30.0,
    "predictions": 32,
    "hidden": 64,
    "meta_hidden": 32,
    "envs": ("catch:rows=5,columns=5",),
}


@dataclass(frozen=True)
class Subject:
    """What is timed: a kind of run, in so many processes of so many threads."""

    kind: str
    processes: int
    threads: int
    settings: dict[str, Any]
    rounds: int = 10


SUBJECTS = {
    "train, 1 process": Subject("train", 1, 1, {}),
    "train, 1 process of 2 threads": Subject("train", 1, 2, {}, 36),
    "train, 2 processes": Subject("train", 2, 1, {}, 36),
    "train, 2 processes, twice the batch": Subject(
        "train", 2, 1, {"num_envs": 4, "batch_size": 128, "replay_capacity": 2048}
    ),
    "train, 1 process, a quarter of the batch": Subject("train", 1, 1, {"batch_size": 16}),
    "discover, 1 process": Subject("discover", 1, 1, {"agents": 2}),
    "discover, 2 processes": Subject("discover", 2, 1, {"agents": 2}),
    "discover, 2 processes, twice the agents": Subject("discover", 2, 1, {"agents": 4}),
}


class Crew:
    """The processes of a subject, which work when told to."""

    def __init__(self, name: str) -> None:
        subject = SUBJECTS[name]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {
            "OMP_NUM_THREADS": str(subject.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # Others use the machine too.
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(subject.processes),
        }
        self._ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "work", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | shared | {"RANK": str(rank)},
            )
            for rank in range(subject.processes)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.kill()
            rank.wait()

    def tell(self, word: str) -> list[Any]:
        """What each process answers."""
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{word}\n")
            rank.stdin.flush()
        return [json.loads(rank.stdout.readline()) for rank in self._ranks if rank.stdout]


def work(name: str) -> None:
    """One process: does what it reads, a line at a time."""
    tune_process()
    with join_group(timeout=3600) as group:
        step, about = make(SUBJECTS[name], group)
        for line in sys.stdin:
            word, _, count = line.strip().partition(" ")
            answer = about() if word == "about" else None
            answer = messages(group) if word == "messages" else answer
            print(json.dumps(answer if word != "steps" else timed(step, int(count), group)))
            sys.stdout.flush()


def make(subject: Subject, group: Group) -> tuple[Callable[[], object], Callable[[], Any]]:
    """What takes a step, and what tells of the run."""
    if subject.kind == "train":
        config = change(make_config("catch", "disco103"), subject.settings)
        trainer = Trainer(config, load_rule("disco103"), group=group)
        params = trainer.life.state.params

        def about() -> Any:
            numbers = sum(p.numel() for p in params.values())
            return {"numbers": numbers, "return": trainer.life.episodes.mean_return()}

        return trainer.train_step, about
    config = change(DiscoverConfig(), SMALL_AGENTS | subject.settings)
    discoverer = make_discoverer(config, initial_rule(config), group)
    numbers = sum(p.numel() for p in discoverer.rule.params.values())
    return discoverer.meta_step, lambda: {"numbers": numbers}


def timed(step: Callable[[], object], count: int, group: Group) -> dict[str, float]:
    """Per step: seconds by the clock, of the processor, and at messages."""
    talked, wall, cpu = group.seconds, time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    spent = (time.perf_counter() - wall, time.process_time() - cpu, group.seconds - talked)
    return dict(zip(("wall", "cpu", "talk"), (s / count for s in spent), strict=True))


def messages(group: Group) -> dict[int, list[float]]:
    """Bytes -> seconds of each of some sums, the processes having met just before."""
    found = {}
    for size in SIZES:
        tensor, times = torch.zeros(size), []
        for _ in range(REPEATS):
            group.wait()
            started = time.perf_counter()
            group.sum(tensor)
            times.append(time.perf_counter() - started)
        found[4 * size] = times
    return found


def measure(path: Path) -> None:
    """All subjects of a kind by turns, round after round."""
    found: dict[str, Any] = {"turns": {}, "about": {}, "returns": {}, "messages": {}}
    for kind, steps in STEPS.items():
        subjects = {name: own for name, own in SUBJECTS.items() if own.kind == kind}
        with ExitStack() as opened:
            crews = {name: opened.enter_context(Crew(name)) for name in subjects}
            for name, crew in crews.items():
                # Replay fills before the first update.
                crew.tell(f"steps {FIRST if kind == 'train' else 2}")
                found["about"][name] = crew.tell("about")[0]
            found["messages"][kind] = crews[f"{kind}, 2 processes"].tell("messages")[0]
            for turn in range(max(subject.rounds for subject in subjects.values())):
                for name in (name for name, own in subjects.items() if turn < own.rounds):
                    times = crews[name].tell(f"steps {steps}")
                    found["turns"].setdefault(name, []).append(times)
                    returns = [about.get("return") for about in crews[name].tell("about")]
                    found["returns"].setdefault(name, []).append(returns)
                path.write_text(json.dumps(found))
                print(f"{kind}: round {turn + 1}", file=sys.stderr, flush=True)


def show(found: dict[str, Any]) -> None:
    """The tables of docs/scaling.md."""
    print("| run | ms by the clock | CPU ms per process | at messages |")
    print("| --- | --- | --- | --- |")
    for name, turns in found["turns"].items():
        wall, cpu, talk = (
            median(max(rank[key] for rank in turn) for turn in turns)
            for key in ("wall", "cpu", "talk")
        )
        lead = median(turn[0]["talk"] / turn[0]["wall"] for turn in turns)
        share = f"{lead:.0%}" if talk else ""
        print(f"| {name} | {1e3 * wall:.0f} | {1e3 * cpu:.0f} | {share} |")
    print("\n| bytes | fastest, ms | median, ms |\n| --- | --- | --- |")
    for size, times in message_times(found).items():
        print(f"| {size:,} | {1e3 * min(times):.3f} | {1e3 * median(times):.3f} |")
    print("\n| updates | 1 process of 2 threads | 2 processes |\n| --- | --- | --- |")
    pair = [
        found["returns"][f"train, {name}"] for name in ("1 process of 2 threads", "2 processes")
    ]
    for turn, both in enumerate(zip(*pair, strict=True), start=1):
        cells = " | ".join(f"{mean(ranks):.2f}" for ranks in both)
        print(f"| {FIRST - LEARN_FROM + turn * STEPS['train']} | {cells} |")
    for line in model(found):
        print(line)


def message_times(found: dict[str, Any]) -> dict[int, list[float]]:
    """Bytes -> seconds, of both kinds of run."""
    both = found["messages"].values()
    return {int(size): [t for own in both for t in own[size]] for size in next(iter(both))}


def model(found: dict[str, Any]) -> Iterator[str]:
    """Speed-ups with more processes, computed from what was measured with one and two."""

    def cpu(name: str) -> float:
        return median(max(rank["cpu"] for rank in turn) for turn in found["turns"][name])

    times = {size: min(seconds) for size, seconds in message_times(found).items()}
    latency = times[min(times)] / 2  # A sum of two processes is two hops.
    whole, quarter = cpu("train, 1 process"), cpu("train, 1 process, a quarter of the batch")
    per_trajectory = (whole - quarter) / 48
    fixed = whole - 64 * per_trajectory
    gradient = 4 * found["about"]["train, 1 process"]["numbers"]
    rule = 4 * found["about"]["discover, 1 process"]["numbers"]
    agent = cpu("discover, 1 process") / 2

    def per_byte(size: int) -> float:
        """As it was with two processes and a message of about this size."""
        nearest = min(times, key=lambda other: abs(math.log(other / size)))
        return (times[nearest] - times[min(times)]) / nearest

    def sums(ranks: int, size: int, small: int, hops: float) -> float:
        """One large message and some small ones."""
        return (small + 1) * hops * latency + 2 * (ranks - 1) / ranks * size * per_byte(size)

    speeds = ", ".join(f"{1e-9 / per_byte(size):.2f} GB/s" for size in (gradient, rule))
    yield f"\nlatency {1e6 * latency:.0f} µs, {speeds}; an update takes "
    yield f"{1e3 * fixed:.0f} ms and {1e3 * per_trajectory:.2f} ms per trajectory, and sends "
    yield f"{gradient / 2**20:.1f} MiB; a meta-step takes {1e3 * agent:.0f} ms per agent and sends "
    yield f"{rule / 2**10:.0f} KiB\n"
    columns = ("processes", "batch 64", "batch 1024", "batch 64 each", "discover, 256 agents")
    yield f"| {' | '.join(columns)} |"
    yield "| --- | --- | --- | --- | --- |"
    for ranks in RANKS:
        cells = []
        for batch in (64, 1024, 64 * ranks):
            alone = fixed + per_trajectory * batch
            part = fixed + per_trajectory * batch / ranks
            cells.append(_pair(alone, part, lambda h, r=ranks: sums(r, gradient, 3, h), ranks))
        share = agent * 256 / ranks
        cells.append(_pair(agent * 256, share, lambda h, r=ranks: sums(r, rule, 2, h), ranks))
        yield f"| {ranks} | {' | '.join(cells)} |"


def _pair(alone: float, part: float, talk: Callable[[float], float], ranks: int) -> str:
    """How many times as fast: if small messages go round a ring, and if they go through a tree."""
    ring, tree = 2 * (ranks - 1), 2 * math.log2(ranks)
    return ", ".join(f"{alone / (part + talk(hops)):.1f}" for hops in (ring, tree))


if __name__ == "__main__":
    what, target = sys.argv[1:]
    if what == "work":
        work(target)
    elif what == "measure":
        measure(Path(target))
    else:
        show(json.loads(Path(target).read_text()))
