"""Processes on this machine, of loky's pools.

One pool for each process: when a worker dies, loky gives up the whole pool, with whatever the
others were doing. So no worker has others.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loky.backend import get_context
from loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from discorl.engines.base import WorkerDied
from discorl.engines.options import RETRIES, cores, read_options
from discorl.settings import Natural

_SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class LocalOptions:
    """What can be set."""

    retries: Natural = RETRIES


def make_engine(jobs: int | None, options: Mapping[str, str], folder: Path) -> LocalEngine:
    """One process for each core, unless another number is given."""
    return LocalEngine(jobs or cores(), read_options(LocalOptions, options, "local").retries)


class LocalEngine:
    """Each process works on one call after another."""

    def __init__(self, jobs: int, retries: int) -> None:
        self.retries = retries
        self._jobs = jobs
        self._idle: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[Any], ProcessPoolExecutor] = {}

    @property
    def room(self) -> int:
        """See `Engine`."""
        return self._jobs

    @property
    def title(self) -> str:
        """See `Engine`."""
        return f"{self._jobs} at once"

    def open(self) -> None:
        """Processes start with the first calls."""

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """See `Engine`."""
        return [self._submit(function, task) for task in tasks]

    def _submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        while True:
            pool = self._idle.pop() if self._idle else _new_pool()
            with _interrupts_held_back():
                try:
                    call: Future[Any] = pool.submit(function, task)
                except BrokenProcessPool:  # It died while it had nothing to do.
                    pool.shutdown(kill_workers=True)
                    continue
            self._busy[call] = pool
            return call

    def wait(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        """See `Engine`."""
        return list(wait(calls, seconds, FIRST_COMPLETED).done)

    def result(self, call: Any) -> Any:
        """See `Engine`."""
        pool = self._busy.pop(call)
        try:
            result = call.result()
        except BrokenProcessPool as error:
            pool.shutdown(kill_workers=True)
            raise WorkerDied(_last_words(error)) from error
        self._idle.append(pool)
        return result

    def close(self) -> None:
        """See `Engine`."""
        pools = [*self._idle, *self._busy.values()]
        self._idle, self._busy = [], {}
        for pool in pools:
            pool.shutdown(kill_workers=True)


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        max_workers=1,
        # As with multiprocessing's spawn, what the main module registers is there.
        context=get_context("loky_init_main"),
        initializer=_begin,
        initargs=(os.getpid(),),
    )


def _last_words(error: Exception) -> str:
    """Loky has the exit code in the text of its error alone."""
    code = re.search(r"exit codes of the workers are \{\w+\((-?\d+)\)", str(error))
    return "the process died" + (f", exit code {code[1]}" if code else "")


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process started inside never sees Ctrl-C, which is ours to handle; we see it after."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """In the worker: loky's do not notice if whoever started them is killed."""
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def _die_with(parent: int) -> None:
    """End this process when the one that started it has gone, whatever it computes."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)
