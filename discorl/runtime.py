"""Process-wide settings for speed. Called by the entry points, never on import."""

from __future__ import annotations

import ctypes
import sys

import torch

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30


def tune_process() -> None:
    """Keep large temporaries out of the system's hands, and tiny numbers out of the slow path.

    A learner step allocates tensors of many megabytes; by default glibc returns them to the
    system at once and every reuse costs thousands of page faults. And softmaxes of confident
    heads are full of denormal numbers, on which CPUs compute many times slower.
    """
    torch.set_flush_denormal(True)
    if sys.platform == "linux":
        try:
            libc = ctypes.CDLL("libc.so.6")
        except OSError:
            return  # Another C library: nothing to tune.
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
