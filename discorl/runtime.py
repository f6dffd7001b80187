"""Process-wide settings for speed. Called by the entry points, never on import."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_HUGE_BYTES = 1 << 29
_PAGE = 1 << 21
_MADV_HUGEPAGE = 14
SMALL_WORK = 500_000_000
"""Updates smaller than this (see `Life.work`) are computed on one thread. A judgement, measured on
a busy machine only: docs/train.md has the figures."""
_threads_by_size = False


def tune_process(threads_by_size: bool = False) -> None:
    """Keep large temporaries out of the system's hands, and tiny numbers out of the slow path.

    A learner step allocates tensors of many megabytes; by default glibc returns them to the
    system at once and every reuse costs thousands of page faults. Reading them in pages of 4 KiB
    costs a tenth of the step, so the heap asks for huge ones. And softmaxes of confident heads are
    full of denormal numbers, on which CPUs compute many times slower.

    Args:
      threads_by_size: from now on, runs whose updates are small compute on one thread, unless
        OMP_NUM_THREADS is set. The commands ask for it; a Python program has its own say.
    """
    global _threads_by_size
    _threads_by_size = threads_by_size and "OMP_NUM_THREADS" not in os.environ
    torch.set_flush_denormal(True)
    if sys.platform == "linux":
        try:
            libc = ctypes.CDLL("libc.so.6")
        except OSError:
            return  # Another C library: nothing to tune.
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
        _ask_for_huge_pages(libc)


def _ask_for_huge_pages(libc: ctypes.CDLL) -> None:
    """Let the heap grow by half a gigabyte of addresses that, once used, are huge pages.

    Pages that are never touched take no memory, and a system without huge pages ignores the wish.
    """
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    address = libc.malloc(_HUGE_BYTES)
    if address:
        begin = -(-address // _PAGE) * _PAGE
        libc.madvise(begin, address + _HUGE_BYTES - begin, _MADV_HUGEPAGE)
        libc.free(address)


@contextmanager
def computing_on(threads: int | None, work: int) -> Iterator[None]:
    """Compute on this many threads inside, and on as many as before after it.

    Args:
      threads: if None, one for small work where `tune_process` was told so, else as many as before.
      work: of an update, as `Life.work` counts it.
    """
    before = torch.get_num_threads()
    if threads is None and _threads_by_size and work < SMALL_WORK:
        threads = 1
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def emulates_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is computed in software, several times slower than float32: on processors
    without instructions for it, such as those that end at AVX2."""
    if device.type != "cpu":
        return False
    return not (torch.backends.mkldnn.is_available() and _cpu_has_bfloat16())


def _cpu_has_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
