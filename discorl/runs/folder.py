"""What a run folder holds, whatever the run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discorl.errors import DiscorlError
from discorl.files import read_json

CONFIG_FILE = "config.json"
RULE_FILE = "rule.safetensors"
RESULT_FILE = "result.json"
CURVE_FILE = "curve.png"
CHECKPOINTS = "checkpoints"


def refuse_existing(folder: Path, command: str) -> None:
    """Raise DiscorlError if the folder holds a run already; `command` is what made it."""
    if (folder / CONFIG_FILE).exists():
        raise DiscorlError(
            f"{folder} already holds a run: go on with it by `discorl {command} --resume "
            f"{folder}`, or choose another --out"
        )


def read_settings(folder: Path) -> dict[str, Any]:
    """The plain values of a run's configuration."""
    if not (folder / CONFIG_FILE).exists():
        raise DiscorlError(f"{folder} holds no run: there is no {CONFIG_FILE}")
    values = read_json(folder / CONFIG_FILE)
    if not isinstance(values, dict):
        raise DiscorlError(f"{folder / CONFIG_FILE}: expected an object of settings")
    return values
