"""What a run folder holds, whatever the run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from discorl.errors import DiscorlError
from discorl.files import read_json

CONFIG_FILE = "config.json"
RULE_FILE = "rule.safetensors"
RESULT_FILE = "result.json"
CURVE_FILE = "curve.png"
CHECKPOINTS = "checkpoints"


def refuse_existing(folder: Path, command: str) -> None:
    """Raise DiscorlError if the folder already holds a run; `command` is what made it."""
    if (folder / CONFIG_FILE).exists():
        raise DiscorlError(
            f"{folder} already holds a run: resume it with `discorl {command} --resume "
            f"{folder}`, or choose another --out"
        )


Kind = Literal["train", "discover", "compare"]


def run_kind(folder: Path) -> Kind:
    """Which command made the run in a folder."""
    settings = read_settings(folder)
    if "meta_steps" in settings:
        return "discover"
    return "compare" if "rules" in settings else "train"


def read_settings(folder: Path) -> dict[str, Any]:
    """The plain values of a run's configuration."""
    if not (folder / CONFIG_FILE).exists():
        raise DiscorlError(f"{folder} holds no run: there is no {CONFIG_FILE}")
    values = read_json(folder / CONFIG_FILE)
    if not isinstance(values, dict):
        raise DiscorlError(f"{folder / CONFIG_FILE}: expected an object of settings")
    return values


def file_name(text: str) -> str:
    """The text with underscores for whatever a file name should not hold."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)
