"""How the processes of a run know of one another, and of whoever started them."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

FAILED, GAVE_UP = "failed", "gave-up"
_BEAT = 1.0


class Presence:
    """Tells the others that this process is there and how far it is, and knows it of them.

    Through the store at which the processes met, by a thread of its own: it goes on while the
    process waits for another. The thread also sees to it that nobody is left over: if the launcher
    dies, this process is told to stop, and if it has not stopped in time, it is ended.

    Args:
      patience: seconds that a process without a launcher has to stop.
      launcher: process id of whoever started this process and all others; None if nobody is
        missed.
    """

    def __init__(
        self, store: Any, rank: int, size: int, patience: float, launcher: int | None = None
    ) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._patience, self._launcher = patience, launcher
        self._alone_since: float | None = None
        self.count = 0
        """How often this process has waited for the others."""
        self._word = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def missing(self) -> str:
        """Which processes are to blame, in words; empty if that cannot be told."""
        with suppress(RuntimeError):
            before = self._read()
            time.sleep(3 * _BEAT)
            after = self._read()
            gone, behind = [], []
            for rank in (rank for rank in range(self._size) if rank != self._rank):
                count, _, word = after[rank].partition(" ")
                if word == FAILED:
                    gone.append(f"process {rank} stopped with an error of its own")
                elif word != GAVE_UP and after[rank] == before[rank]:
                    gone.append(f"process {rank} died or cannot be reached")
                elif int(count) < self.count:
                    behind.append(f"process {rank} hangs")
            return ", ".join(gone or behind)
        return ""

    def leave(self, word: str) -> None:
        """Say that this process stops, and why; what was said first counts."""
        self._word = self._word or word
        with suppress(RuntimeError):
            self._write(0)

    def stop(self) -> None:
        """Tell no more."""
        self._over.set()
        self._thread.join(timeout=3 * _BEAT)

    def _tell(self) -> None:
        beats = 0
        while not self._over.wait(_BEAT if beats else 0):
            beats += 1
            self._miss_launcher()
            with suppress(RuntimeError):  # The store is gone, and so is whoever kept it.
                self._write(beats)

    def _miss_launcher(self) -> None:
        if self._launcher in (None, os.getppid()):
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
            os.kill(os.getpid(), signal.SIGTERM)  # A run takes it as it would from the launcher.
        elif now - self._alone_since > self._patience:
            os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, beats: int) -> None:
        self._store.set(f"presence/{self._rank}", f"{self.count} {self._word or beats}")

    def _read(self) -> list[str]:
        """What each process told last."""
        keys = [f"presence/{rank}" for rank in range(self._size)]
        return [
            self._store.get(key).decode() if self._store.check([key]) else "0 0" for key in keys
        ]
