"""How PyTorch's launcher ends: with an exit code that tells what happened, and in a line at most.

`torchrun` raises an exception of its own after a signal or a failure, whatever its processes did,
and so ends with a traceback and exit code 1. Its processes cannot change that, but what is
installed beside it can: it loads every entry point of `torchrun.handlers`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any


def exit_code(error: BaseException) -> int | None:
    """What a launcher that stopped with this error returns; None if it is no end of its processes.

    Says which process ended first, if one failed.
    """
    # Slow to import, and not in every PyTorch.
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if isinstance(error, SignalException):
        return 128 + signal.Signals(error.sigval).value
    if isinstance(error, ChildFailedError):
        rank, failure = error.get_first_failure()
        print(f"process {rank} ended first, with exit code {failure.exitcode}", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    return None


def load() -> Callable[[Any], Any]:
    """What torchrun calls as it starts; whatever it launches but our command line is left alone.

    Returns:
      What it asks for: a way for processes to meet, here the usual one.
    """
    if "discorl.cli" in sys.argv:
        sys.excepthook = _end
    return _meet


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    code = exit_code(error)
    if code is None:
        sys.__excepthook__(kind, error, trace)
    else:
        raise SystemExit(code)


def _meet(parameters: Any) -> Any:
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    backend, store = create_backend(parameters)
    return create_handler(store, backend, parameters)
