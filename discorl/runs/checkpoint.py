"""Checkpoints: a folder each, with tensors as safetensors and the rest as JSON.

`checkpoints/step_00000400/{state.safetensors, meta.json}`. The folder is filled under another
name, flushed and renamed, so a checkpoint is there whole or not at all; `meta.json` holds the
state's SHA-256, so damage done later is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from discorl.errors import DiscorlError
from discorl.files import explain_write_errors, read_json, sync

_STATE = "state.safetensors"
_META = "meta.json"
_PREFIX = "step_"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to be resumed."""

    step: int
    tensors: dict[str, Tensor]
    """Name -> tensor."""
    values: dict[str, Any]
    """What is not a tensor: plain JSON."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint into `folder`, then remove all but the newest `keep`."""
    path = folder / f"{_PREFIX}{checkpoint.step:08d}"
    with explain_write_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        temporary = folder / f".tmp_{os.getpid()}_{secrets.token_hex(4)}"
        temporary.mkdir()
        try:
            _fill(temporary, checkpoint)
            if path.exists():
                shutil.rmtree(path)
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync(folder)
    for old in list_checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def load_latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is intact; damaged ones are skipped with a warning."""
    for path in reversed(list_checkpoints(folder)):
        try:
            return read_checkpoint(path)
        except DiscorlError as error:
            if not path.exists():  # Its run continues, and has newer ones by now.
                return load_latest(folder)
            warnings.warn(f"{error}; trying the checkpoint before it", stacklevel=2)
    return None


def find_checkpoint(folder: Path, step: str | int) -> Path:
    """The checkpoint of a step, by its number."""
    known = {int(number): path for path in list_checkpoints(folder) if (number := _number(path))}
    text = str(step).removeprefix(_PREFIX)
    if not text.isdecimal() or int(text) not in known:
        steps = ", ".join(map(str, known)) or "none"
        raise DiscorlError(
            f"{folder.parent} has no checkpoint of step {step}: it has {steps}. Give one of them, "
            "or newest, or best"
        )
    return known[int(text)]


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoint folders, oldest first."""
    return sorted(p for p in folder.glob(f"{_PREFIX}*") if p.is_dir() and _number(p))


def _number(path: Path) -> str:
    """The step in a checkpoint's name; empty if the folder is none."""
    number = path.name.removeprefix(_PREFIX)
    return number if number.isdecimal() else ""


def _fill(folder: Path, checkpoint: Checkpoint) -> None:
    tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
    try:
        save_file(tensors, folder / _STATE)
    except SafetensorError as error:
        # It reports a full disk as text; the JSON below would hit the same disk.
        if "No space left" in str(error) or "os error 28" in str(error):
            raise OSError(28, "No space left on device") from error
        raise OSError(5, str(error)) from error
    meta = {
        "step": checkpoint.step,
        "sha256": _digest(folder / _STATE),
        "values": checkpoint.values,
    }
    (folder / _META).write_text(json.dumps(meta, indent=2) + "\n")
    # The library keeps its files to their owner; colleagues may read what they may read.
    (folder / _STATE).chmod((folder / _META).stat().st_mode)
    for name in (_STATE, _META):
        sync(folder / name)
    sync(folder)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder; raises DiscorlError if it is missing or damaged."""
    meta = read_json(path / _META)
    try:
        step, sha256, values = meta["step"], meta["sha256"], meta["values"]
        if type(step) is not int or not isinstance(values, dict):
            raise TypeError(f"{_META} holds other kinds of values")
        intact = _digest(path / _STATE) == sha256
    except (OSError, KeyError, TypeError) as error:
        raise DiscorlError(f"checkpoint {path} is damaged: {error!r}") from error
    if not intact:
        raise DiscorlError(f"checkpoint {path} is damaged: {_STATE} is not what was written")
    try:
        # Copied, because a file's tensors may lie at any address, and rounding depends on
        # alignment: a resumed run would drift from one that never stopped.
        tensors = {name: t.clone() for name, t in load_file(path / _STATE).items()}
        return Checkpoint(step, tensors, values)
    except (OSError, SafetensorError) as error:
        raise DiscorlError(f"checkpoint {path} is damaged: {error}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_leftovers(folder: Path) -> None:
    """Remove what a killed process was writing."""
    for leftover in folder.glob(".tmp_*"):
        shutil.rmtree(leftover, ignore_errors=True)
