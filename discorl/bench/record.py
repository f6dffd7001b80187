"""Figures over commits: a file that grows by an entry with every measurement kept."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from discorl.errors import DiscorlError
from discorl.files import read_json, write_json


def record(path: Path, benchmark: str, commit: str, figures: dict[str, Any]) -> None:
    """Add the figures to the file, with what they were measured of and on."""
    entries = read_record(path) if path.exists() else []
    entry = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "processor": _processor(),
        "torch": torch.__version__,
        "benchmark": benchmark,
        "figures": figures,
    }
    write_json(path, [*entries, entry])


def read_record(path: Path) -> list[dict[str, Any]]:
    """The file's entries, oldest first."""
    entries = read_json(path)
    if not isinstance(entries, list):
        raise DiscorlError(f"{path}: not a record of `discorl bench`; give another file")
    return entries


def current_commit() -> str:
    """The package's commit, with a plus sign if files differ from it; empty outside a checkout."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
