"""What a run folder holds, whatever the run does, and who may write to it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from discorl.errors import DiscorlError
from discorl.files import explain_write_errors, read_json

fcntl: Any
try:
    import fcntl
except ImportError:  # Not on this system: folders are not locked there.
    fcntl = None

CONFIG_FILE = "config.json"
RULE_FILE = "rule.safetensors"
RESULT_FILE = "result.json"
EVALUATION_FILE = "evaluation.json"
CURVE_FILE = "curve.png"
TRIALS_FILE = "trials.json"
CHECKPOINTS = "checkpoints"
VIDEOS = "videos"
LOCK_FILE = ".lock"
SEED_FOLDER = "seed_"
"""What the name of a seed's folder begins with, where one command trains several."""

Kind = Literal["train", "discover", "distil", "compare", "tune"]
KINDS: dict[Kind, str] = {
    "train": "a training run",
    "discover": "a discovery",
    "distil": "a distillation",
    "compare": "a comparison",
    "tune": "a search for settings",
}
"""Command -> what the folder it makes is called."""
_FITTING: dict[Kind, str] = {
    "train": "use discorl resume, evaluate, watch, export or plot with it",
    "discover": "use discorl resume or plot with it, or train with its rule: discorl train catch "
    "--rule {}/best_rule.safetensors",
    "distil": "use discorl resume or plot with it, or train with its rule: discorl train catch "
    "--rule {}/best_rule.safetensors",
    "compare": "use discorl resume or plot with it; its results are in {}/table.md",
    "tune": "use discorl resume or plot with it, or train with what it found: discorl train "
    "--config {}/preset.json",
}
"""Command -> what can be done with the folder it makes."""
_SHOWN = 5
_claimed: set[Path] = set()
"""Folders this process writes to: the system's lock does not keep a process from itself."""


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Write to a folder that is new or empty; it is removed again if no run comes of it."""
    found = check_new(folder)
    missing = [p for p in (folder, *folder.parents) if not os.path.isdir(p)]
    had_lock = LOCK_FILE in found
    if not had_lock:
        check_empty(folder)  # Before anything is written into it.
    try:
        with writing_to(folder):
            check_empty(folder)
            yield
    finally:
        if not had_lock and not (folder / CONFIG_FILE).exists():
            with suppress(OSError):
                (folder / LOCK_FILE).unlink(missing_ok=True)
                for made in missing:
                    made.rmdir()


def check_new(folder: Path) -> list[str]:
    """What a folder holds; DiscorlError if it holds a run, or cannot be a folder."""
    try:
        found = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DiscorlError(f"{folder}: {error.strerror}: choose another --out") from error
    if CONFIG_FILE in found:
        raise DiscorlError(
            f"{folder} already holds {KINDS[run_kind(folder)]}: resume it with `discorl resume "
            f"{folder}`, or choose another --out"
        )
    return found


def left_by_failed(folder: Path) -> bool:
    """Whether a launcher restarted this process after a failure that left a run in the folder."""
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return restarted and (folder / CONFIG_FILE).exists()


def check_empty(folder: Path) -> None:
    """Raise DiscorlError if a folder holds anything, and say what."""
    found = [name for name in check_new(folder) if name != LOCK_FILE]
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise DiscorlError(
            f"{folder} is not empty, and nothing is overwritten: it holds "
            f"{', '.join(found[:_SHOWN])}{more}. Choose another --out"
        )


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Be the only writer of a folder; the lock dies with this process, however it ends."""
    path, place = folder / LOCK_FILE, folder.resolve()
    if place in _claimed:  # Before the file is opened: closing it again would give up the lock.
        raise DiscorlError(f"{folder} is being written to by process {os.getpid()}, this one")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _lock(handle) or not _is_still(handle, path):
            raise DiscorlError(f"{folder} is being written to by {_holder(path)}")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f"process {os.getpid()} on {socket.gethostname()} since {now}"
        with explain_write_errors(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode(), 0)
        _claimed.add(place)
        try:
            yield
        finally:
            _claimed.discard(place)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    if fcntl is None:
        return True
    try:
        # Of the process, not of the file handle: forked children do not keep it alive.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_still(handle: int, path: Path) -> bool:
    """Whether the file that was locked is the one in the folder: one that gave up removed it."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def discard(folder: Path) -> None:
    """Remove what a run wrote that never began, from a folder that was its own; the lock stays."""
    for path in folder.iterdir():
        if path.name == LOCK_FILE:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _holder(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text()[:200].strip() or "another process"
    return "another process"


def run_kind(folder: Path) -> Kind:
    """Which command made the run in a folder."""
    return kind_of(read_settings(folder))


def kind_of(settings: dict[str, Any]) -> Kind:
    """Which command made the run with these settings."""
    if "meta_steps" in settings:
        return "distil" if "teacher" in settings else "discover"
    if "trials" in settings:
        return "tune"
    return "compare" if "rules" in settings else "train"


def seed_folders(folder: Path) -> list[Path]:
    """The runs that `train --seeds` put into a folder, by seed; or the folder itself, if there are
    none or it holds a run of its own."""
    found = [path.parent for path in folder.glob(f"{SEED_FOLDER}[0-9]*/{CONFIG_FILE}")]
    if not found or (folder / CONFIG_FILE).exists():
        return [folder]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def read_settings_file(path: Path, kind: Kind) -> dict[str, Any]:
    """The settings in a file, if they are of this kind of run; DiscorlError if not."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise DiscorlError(f"{path}: expected an object of settings")
    if (found := kind_of(values)) != kind:
        raise DiscorlError(
            f"{path}: these are settings of {KINDS[found]}, not of {KINDS[kind]}: use discorl "
            f"{found}"
        )
    return values


def require_kind(folder: Path, kind: Kind) -> None:
    """Raise DiscorlError, saying what it is, unless the folder holds a run of this kind."""
    found = run_kind(folder)
    if found != kind:
        raise DiscorlError(
            f"{folder} holds {KINDS[found]}, not {KINDS[kind]}: {_FITTING[found].format(folder)}"
        )


def read_settings(folder: Path) -> dict[str, Any]:
    """The plain values of a run's configuration."""
    try:
        (folder / CONFIG_FILE).stat()
    except FileNotFoundError:
        missing = f"no {CONFIG_FILE} in it" if folder.exists() else "no such folder"
        inner = sorted(path.parent for path in folder.glob(f"*/{CONFIG_FILE}"))
        hint = f"; name one of the {len(inner)} in it, for instance {inner[0]}" if inner else ""
        raise DiscorlError(f"{folder} holds no run: there is {missing}{hint}") from None
    except NotADirectoryError:
        raise DiscorlError(f"{folder} holds no run: it is a file, not a folder") from None
    except OSError as error:
        raise DiscorlError(f"{folder} holds no run: {error.strerror}") from error
    values = read_json(folder / CONFIG_FILE)
    if not isinstance(values, dict):
        raise DiscorlError(f"{folder / CONFIG_FILE}: expected an object of settings")
    return values


def file_name(text: str) -> str:
    """The text with nothing in it that a file's name should not hold, and not too long."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)[:100]


def unused_folder(name: str) -> Path:
    """The name of a folder under `runs/` that no other run has."""
    from discorl.processes import group_size  # It brings PyTorch, which reading a folder need not.

    if group_size() > 1:
        raise DiscorlError("--out: name the run folder, so that all processes use the same")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{file_name(name)}-{stamp}-{secrets.token_hex(2)}"
