"""Rule files: `.npz` as published, and our own `.safetensors`.

Both hold float32. The published format holds parameters only: whatever else makes a rule takes
its default when it is read. A file that is not a sound rule raises `RuleFileError` with the file,
the tensor, what was expected and what was found.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from discorl.errors import DiscorlError
from discorl.files import write_atomically
from discorl.library.codecs import (
    MAX_BYTES,
    PARSER_ERRORS,
    decode_npz,
    decode_safetensors,
    encode_npz,
    encode_safetensors,
    reason,
)
from discorl.rules.disco import DiscoRule

SUFFIXES = (".npz", ".safetensors")


class RuleFileError(DiscorlError):
    """A rule file that is missing, damaged or not a rule."""


def read_rule(path: Path) -> DiscoRule:
    """The rule in a file."""
    return parse_rule(read_bytes(path), path)


def write_rule(rule: DiscoRule, path: Path) -> None:
    """Write a rule in the format of the suffix, all or nothing; same rule, same bytes."""
    check_suffix(path)
    try:
        data = encode_npz(rule) if path.suffix == ".npz" else encode_safetensors(rule)
    except ValueError as error:
        raise DiscorlError(f"{path}: cannot save this rule: {error}") from error
    write_atomically(path, lambda p: p.write_bytes(data))


def parse_rule(data: bytes, path: Path) -> DiscoRule:
    """The rule in the bytes of the file `path`; the suffix tells the format.

    Its name is the stored one or, since `.npz` stores none, the file's.
    """
    check_suffix(path)
    try:
        if path.suffix == ".npz":
            return decode_npz(data, _name_from(path.stem))
        return decode_safetensors(data)
    except PARSER_ERRORS as error:
        raise RuleFileError(f"{path}: {reason(error)}") from error


def check_suffix(path: Path) -> None:
    """Raise unless the path ends like a rule file."""
    if path.suffix not in SUFFIXES:
        expected = " or ".join(SUFFIXES)
        found = path.suffix or "no suffix"
        raise RuleFileError(f"{path}: expected a name ending in {expected}, found {found}")


def read_bytes(path: Path) -> bytes:
    """The whole of a file that may be a rule."""
    try:
        if path.exists() and not path.is_file():
            raise RuleFileError(f"{path}: expected a file, found a folder or device")
        with path.open("rb") as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, MAX_BYTES) + 1)
    except FileNotFoundError:
        raise RuleFileError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise RuleFileError(f"{path}: cannot be read: {reason(error)}") from error
    if len(data) > MAX_BYTES:
        raise RuleFileError(f"{path}: expected at most {MAX_BYTES} bytes, found more")
    return data


def _name_from(stem: str) -> str:
    """A rule's name from a file's: any file may be read, but names become folders."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", stem).lstrip("._-")[:100] or "rule"
