"""`python -m discorl.cli.torchrun`: torchrun that ends quietly.

It takes torchrun's arguments. A signal reaches all processes, as with torchrun itself, and the exit
code says so; but where torchrun shows a traceback of its own, this says nothing more: the processes
have said all there is to say.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def main(argv: Sequence[str] | None = None) -> int:
    """Start processes and wait for them; returns the exit code."""
    try:
        run.run(run.parse_args(argv))
    except SignalException as stop:
        return 128 + signal.Signals(stop.sigval).value
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(f"process {rank} ended first, with exit code {failure.exitcode}", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    return 0


if __name__ == "__main__":
    sys.exit(main())
