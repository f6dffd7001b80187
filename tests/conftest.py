"""Fixtures for all tests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from goldens import NO_WEIGHTS, disco103_file
from hypothesis import settings

from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.meta_network import MetaNetworkSizes

# Some virtual machines announce AMX and then refuse it: half precision would end the process, or
# break every convolution that comes after. Read at the first use, here and in child processes.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Tests run side by side, one to a core: more threads wait for one another. Here, whoever starts the
# tests, and in child processes; a number in the environment is kept.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

# Machines are shared and noisy: no test asserts a time.
settings.register_profile("discorl", deadline=None)
settings.load_profile("discorl")


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """Commands tune the process that they run in, and show warnings their own way."""
    threads, shown = torch.get_num_threads(), warnings.showwarning
    yield
    warnings.showwarning = shown
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def disco103_path() -> Path:
    """The published weights, wherever they are on this machine."""
    path = disco103_file()
    if path is None:
        pytest.skip(NO_WEIGHTS)
    return path


@pytest.fixture(scope="session")
def tiny_rule() -> DiscoRule:
    """A random rule small enough to save and load by the hundred."""
    sizes = MetaNetworkSizes(
        predictions=12,
        hidden=16,
        prediction_embedding=(5, 1),
        policy_channels=(5, 2),
        policy_target_channels=6,
        meta_hidden=8,
        meta_embedding=6,
        meta_prediction_embedding=(5, 1),
        meta_policy_channels=(4, 2),
    )
    return DiscoRule.random(DiscoConfig(sizes=sizes, num_bins=21, max_abs_value=10.0))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the user's caches."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("DISCORL_CACHE", str(cache))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return cache
