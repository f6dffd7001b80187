"""Writing files so that a killed process or a full disk never leaves half of one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from discorl.errors import DiscorlError


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiscorlError(
                f"{path}: cannot be written: No space left on the disk. What was there before is "
                "intact: free some space and resume."
            ) from error
        raise DiscorlError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, flush it to the disk, then rename it to `path`."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            temporary.touch(exist_ok=False)  # Readable by others if their files are.
            mode = temporary.stat().st_mode
            write(temporary)
            temporary.chmod(mode)  # Some libraries put a file of their own in its place.
            sync(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, lambda p: p.write_text(json.dumps(value, indent=2) + "\n"))


def read_json(path: Path) -> Any:
    """Read JSON; the error names the file if it is missing or malformed."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise DiscorlError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise DiscorlError(f"{path} cannot be read: {error}") from error


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
