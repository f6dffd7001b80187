"""The published JAX implementation as a subject, in a process and a Python of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from discorl.errors import DiscorlError
from discorl.rollout import Rollout

_WORKER = Path(__file__).with_name("reference_worker.py")
_FIELDS = ("observations", "actions", "rewards", "discounts", "logits")


class Reference:
    """The reference's learner step on the same batch, on as many cores as PyTorch has threads.

    Args:
      python: an interpreter that has the reference: see docs/reference_environment.sh.
      weights: the rule's parameters under their published names.
    """

    def __init__(self, python: Path, rollout: Rollout, weights: Path) -> None:
        self._folder = TemporaryDirectory()
        batch = Path(self._folder.name) / "batch.npz"
        arrays = {name: getattr(rollout, name) for name in _FIELDS}
        assert all(isinstance(array, Tensor) for array in arrays.values())
        np.savez(batch, **{name: array.numpy() for name, array in arrays.items()})
        command = [str(part) for part in (python, _WORKER, batch, weights, torch.get_num_threads())]
        try:
            self._worker = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise DiscorlError(f"--reference {python}: {error.strerror}") from error

    def __call__(self) -> None:
        """One step; the first one compiles."""
        self._ask("step")

    def process_time(self) -> float:
        """Seconds of processor time that the other process has taken."""
        return self._ask("clock")

    def close(self) -> None:
        """End the other process."""
        self._worker.communicate()
        self._folder.cleanup()

    def _ask(self, word: str) -> float:
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        try:
            print(word, file=self._worker.stdin, flush=True)
            return float(self._worker.stdout.readline())
        except (OSError, ValueError):
            _, complaint = self._worker.communicate()
            last = complaint.strip().splitlines()[-1:] or ["it ended without a word"]
            raise DiscorlError(f"--reference: the other Python failed: {last[0]}") from None
