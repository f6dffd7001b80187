"""Calls in worker processes, one after another in each; if one dies, the others carry on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from discorl.errors import DiscorlError

Task = TypeVar("Task")

_SECONDS_BETWEEN_LOOKS = 0.2
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Failure:
    """Why a call returned no result."""

    error: str
    """In one line."""
    details: str = ""
    """A traceback, unless the error says it all."""


@dataclass
class _Worker(Generic[Task]):
    """A process, our end of its pipe, and what it is working on."""

    process: BaseProcess
    pipe: Connection
    task: Task


def run_in_workers(
    function: Callable[[Task], Any],
    tasks: Sequence[Task],
    jobs: int,
    stop: list[int],
    tick: Callable[[], None] | None = None,
) -> Generator[tuple[Task, Any], None, None]:
    """Call the function on every task; yield each with its result, or Failure, as it arrives.

    Args:
      function: importable by name, so that new processes find it; so must be what tasks refer to.
      jobs: how many processes work at once.
      stop: ends the work, including unfinished calls, once it is not empty.
      tick: called several times a second.
    """
    waiting = list(reversed(tasks))
    workers: list[_Worker[Task]] = []
    try:
        while (waiting or workers) and not stop:
            while waiting and len(workers) < jobs:
                workers.append(_start(function, waiting.pop()))
            if tick is not None:
                tick()
            ready = wait([w.pipe for w in workers], _SECONDS_BETWEEN_LOOKS)
            for worker in [w for w in workers if w.pipe in ready]:
                task = worker.task
                result, alive = _collect(worker)
                if alive and waiting:
                    _hand_out(worker, waiting.pop())
                else:
                    workers.remove(worker)
                    _end(worker)
                yield task, result
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            _end(worker)


def _start(function: Callable[[Task], Any], task: Task) -> _Worker[Task]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_work, args=(function, theirs, os.getpid()), daemon=True)
    with _interrupts_held_back():
        process.start()
    theirs.close()
    worker = _Worker(process, ours, task)
    _hand_out(worker, task)
    return worker


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process started inside never sees Ctrl-C, which is ours to handle; we see it after."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # Before the mask is set: it lifts it on starting.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_out(worker: _Worker[Task], task: Task) -> None:
    worker.task = task
    with suppress(BrokenPipeError):  # If it has died, collecting its result will tell.
        worker.pipe.send(task)


def _collect(worker: _Worker[Task]) -> tuple[Any, bool]:
    """The result of the worker's task, and whether the worker is still alive."""
    try:
        return worker.pipe.recv(), True
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return Failure(f"the process died, exit code {worker.process.exitcode}"), False


def _end(worker: _Worker[Task]) -> None:
    worker.pipe.close()
    worker.process.join()


def _work(function: Callable[[Any], Any], pipe: Connection, parent: int) -> None:
    """In the worker: tasks in, results out, until the other end is closed."""
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    while True:
        try:
            pipe.send(_call(function, pipe.recv()))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _die_with(parent: int) -> None:
    """End this process when the one that started it has gone, whatever it computes."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def _call(function: Callable[[Any], Any], task: Any) -> Any:
    try:
        return function(task)
    except DiscorlError as error:
        return Failure(str(error))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
