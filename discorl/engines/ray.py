"""Ray: on this machine, or on a cluster that runs already."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from discorl.engines.base import WorkerDied
from discorl.engines.options import RETRIES, cores, read_options
from discorl.errors import DiscorlError
from discorl.settings import Natural

_NEW = "local"
"""Ray's name for a cluster of its own, on this machine."""


@dataclass(frozen=True)
class RayOptions:
    """What can be set."""

    address: str | None = None
    retries: Natural = RETRIES


def make_engine(jobs: int | None, options: Mapping[str, str], folder: Path) -> RayEngine:
    """On the cluster at an address, or at RAY_ADDRESS, or on one that it starts."""
    read = read_options(RayOptions, options, "ray")
    address = read.address or os.environ.get("RAY_ADDRESS") or _NEW
    return RayEngine(jobs, address, read.retries)


class RayEngine:
    """Each call is a task that takes one CPU."""

    def __init__(self, jobs: int | None, address: str, retries: int) -> None:
        self.retries = retries
        self._address = address
        self._jobs = jobs or (cores() if address == _NEW else None)
        self._calls: set[Any] = set()
        self._joined = False

    @property
    def room(self) -> int | None:
        """See `Engine`."""
        return self._jobs

    @property
    def title(self) -> str:
        """See `Engine`."""
        where = "a Ray of its own" if self._address == _NEW else f"Ray at {self._address}"
        return f"on {where}" + (f", {self._jobs} at once" if self._jobs else "")

    def open(self) -> None:
        """Join the cluster, unless this process has done so already."""
        if ray.is_initialized():
            return
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address == _NEW:
            settings |= {"num_cpus": self._jobs, "include_dashboard": False}
        try:
            with _own_signals():
                ray.init(self._address, **settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise DiscorlError(f"--engine ray: {self._address}: {error}") from error
        self._joined = True

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """See `Engine`."""
        # Whoever hands out the calls repeats them, too.
        remote = ray.remote(num_cpus=1, max_retries=0)(_run)
        calls = [remote.remote(function, task) for task in tasks]
        self._calls.update(calls)
        return calls

    def wait(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        """See `Engine`."""
        done, _ = ray.wait(list(calls), num_returns=1, timeout=seconds)
        return list(done)

    def result(self, call: Any) -> Any:
        """See `Engine`."""
        self._calls.discard(call)
        try:
            return ray.get(call)
        except RayError as error:
            raise WorkerDied(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        """See `Engine`."""
        for call in self._calls:
            ray.cancel(call, force=True)
        self._calls = set()
        if self._joined:
            self._joined = False
            with _own_signals():
                ray.shutdown()


def _run(function: Callable[[Any], Any], task: Any) -> Any:
    """In the worker; Ray takes nothing but plain functions."""
    return function(task)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray sets handlers of its own, and what it starts should not see a Ctrl-C that is ours."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = getattr(signal, "pthread_sigmask", None)
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        if mask:
            mask(signal.SIG_SETMASK, before)
