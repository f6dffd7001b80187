"""What an engine must answer, and the loop that hands out calls to it."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from discorl.errors import DiscorlError

Task = TypeVar("Task")

_SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class Failure:
    """Why a call returned no result."""

    error: str
    """In one line."""
    details: str = ""
    """A traceback, unless the error says it all."""


class WorkerDied(Exception):
    """A call did not come to its end, through no fault of its own: it can be repeated."""


class Engine(Protocol):
    """Where calls run. A call is a function and one argument, both importable elsewhere too."""

    retries: int
    """How often a call is repeated whose worker died."""

    @property
    def room(self) -> int | None:
        """How many calls it takes at once; None if it queues any number itself."""
        ...

    @property
    def title(self) -> str:
        """How many calls run at once, or where, for people."""
        ...

    def open(self) -> None:
        """Get ready for calls."""
        ...

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """Begin calls, or queue them; returns something hashable for each."""
        ...

    def wait(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        """Those of the submitted calls that have ended; waits a moment if none has."""
        ...

    def result(self, call: Any) -> Any:
        """What a call that has ended returned; WorkerDied if it did not come to its end."""
        ...

    def close(self) -> None:
        """End whatever still runs and leave nothing behind; it may be called without `open`."""
        ...


def run_calls(
    engine: Engine,
    function: Callable[[Task], Any],
    tasks: Sequence[Task],
    stop: list[int],
    tick: Callable[[], None] | None = None,
) -> Generator[tuple[Task, Any], None, None]:
    """Call the function on every task; yield each with its result, or Failure, as it arrives.

    Args:
      function: importable by name, so that other processes find it; so must be what tasks refer to.
      stop: ends the work, including unfinished calls, once it is not empty.
      tick: called several times a second.
    """
    waiting = deque((task, 0) for task in tasks)
    running: dict[Any, tuple[Task, int]] = {}
    caught = partial(_call, function)
    try:
        if waiting and not stop:
            engine.open()
        while (waiting or running) and not stop:
            room = len(waiting) if engine.room is None else engine.room - len(running)
            batch = [waiting.popleft() for _ in range(min(room, len(waiting)))]
            if batch:
                calls = engine.submit(caught, [task for task, _ in batch])
                running.update(zip(calls, batch, strict=True))
            if tick is not None:
                tick()
            for call in engine.wait(list(running), _SECONDS_BETWEEN_LOOKS):
                task, tries = running.pop(call)
                try:
                    outcome = engine.result(call)
                except WorkerDied as death:
                    if tries < engine.retries:
                        waiting.append((task, tries + 1))
                        continue
                    outcome = Failure(str(death))
                yield task, outcome
    finally:
        engine.close()


def _call(function: Callable[[Any], Any], task: Any) -> Any:
    """In the worker: errors are results too."""
    try:
        return function(task)
    except DiscorlError as error:
        return Failure(str(error))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
