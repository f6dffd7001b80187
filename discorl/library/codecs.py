"""Rules to bytes and back: the published `.npz` and our `.safetensors`.

Bytes may be hostile: nothing in them is ever executed, and sizes are checked before memory is
spent. Anything wrong raises one of `PARSER_ERRORS`, most often a ValueError that names the tensor,
what was expected and what was found.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from reprlib import repr as short
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from discorl.errors import DiscorlError
from discorl.library.published import (
    PUBLISHED_LAYERS,
    from_published,
    infer_sizes,
    published_name,
    published_shape,
    to_published,
)
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.meta_network import MetaNetworkSizes

MAX_BYTES = 64 * 2**20
"""The most that a file, and what it unpacks to, may hold: twenty times Disco103."""
_MAX_MEMBERS = 256
_MAX_HEADER = 2**20
_FORMAT, _VERSION = "discorl-rule", "1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names become folders, so a file may not choose one like `../..`."""

PARSER_ERRORS = (
    DiscorlError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    tokenize.TokenError,
    SafetensorError,
)
"""What zipfile, numpy's header parser, json and safetensors raise on hostile bytes."""


def reason(error: BaseException) -> str:
    """What went wrong, in words, even if the exception has none."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, LookupError) or not str(error):
        return f"{type(error).__name__} {error}".strip()
    return str(error)


@contextmanager
def _about(subject: str) -> Iterator[None]:
    """Put the subject before whatever a parser complains about."""
    try:
        yield
    except PARSER_ERRORS as error:
        raise ValueError(f"{subject}: {reason(error)}") from error


def _float32_params(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same in float32, contiguous on the CPU; raises unless all numbers are finite."""
    params = {}
    for name, tensor in tensors.items():
        # An aligned copy: rounding depends on the address, and tensors of a file have any.
        converted = tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
        bad = int((~torch.isfinite(converted)).sum())
        if bad:
            raise ValueError(f"{name}: expected finite float32 numbers, found {bad} that are not")
        params[name] = converted
    return params


def _check_names(found: set[str], expected: set[str]) -> None:
    extra = ", ".join(short(name) for name in sorted(found - expected)[:3])
    for name in sorted(expected - found):
        instead = f", but {extra}" if extra else ""
        raise ValueError(f"{name}: expected a tensor of this name, found none{instead}")
    if extra:
        raise ValueError(f"expected {len(expected)} tensors, found {len(found)}: also {extra}")


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name: expected letters, digits and ._- only, found {short(name)}")
    return name


def decode_npz(data: bytes, name: str) -> DiscoRule:
    """The rule in a published file, under a name of your choice: the file holds none."""
    arrays = _npz_arrays(data)
    shapes = {name: array.shape for name, array in arrays.items()}
    sizes = infer_sizes(shapes)
    _check_published_shapes(shapes, sizes)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return DiscoRule(DiscoConfig(sizes), from_published(_float32_params(tensors)), name)


def _check_published_shapes(found: Mapping[str, tuple[int, ...]], sizes: MetaNetworkSizes) -> None:
    # Sizes are inferred from biases: without this, a wrong bias would blame other layers.
    for layer in PUBLISHED_LAYERS.values():
        weights, biases = found[f"{layer}/w"], found[f"{layer}/b"]
        if weights[-1:] != biases:
            raise ValueError(
                f"{layer}/w: expected a shape to fit {layer}/b {list(biases)}, "
                f"found {list(weights)}"
            )
    for ours, shape in sizes.shapes().items():
        name, expected = published_name(ours), published_shape(ours, shape)
        if found[name] != expected:
            raise ValueError(f"{name}: expected {list(expected)}, found {list(found[name])}")


def _npz_arrays(data: bytes) -> dict[str, NDArray[np.floating[Any]]]:
    """Published name -> array."""
    # Each member has such a signature, so this bounds them before any of them costs memory.
    if data.count(b"PK\x01\x02") > _MAX_MEMBERS:
        raise ValueError(f"expected {2 * len(PUBLISHED_LAYERS)} tensors, found over {_MAX_MEMBERS}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_BYTES} bytes unpacked, found {total}")
        by_name = {member.filename.removesuffix(".npy"): member for member in members}
        _check_names(set(by_name), {f"{p}/{k}" for p in PUBLISHED_LAYERS.values() for k in "wb"})
        if len(members) != len(by_name):
            raise ValueError(f"expected {len(by_name)} tensors, found {len(members)}: some twice")
        arrays = {}
        for name, member in by_name.items():
            with _about(name):
                arrays[name] = _npy_array(archive, member)
        return arrays


def _npy_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[np.floating[Any]]:
    """One array, header first; the rest is unpacked only if it has the size the header says."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"expected stored or deflated, found method {member.compress_type}")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"expected npy version 1.0 or 2.0, found {version}")
        if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8):
            never = ", pickled objects, which are never loaded" if dtype.hasobject else ""
            raise ValueError(f"expected float32, found {dtype}{never}")
        expected = math.prod(shape) * dtype.itemsize
        declared = member.file_size - file.tell()
        if declared != expected:
            raise ValueError(f"expected {expected} bytes for {list(shape)}, found {declared}")
        # One byte more than expected makes zipfile reach the end, where it checks the CRC.
        body = file.read(expected + 1)
    flat = np.frombuffer(body, dtype).astype(dtype.newbyteorder("="))
    return np.ascontiguousarray(flat.reshape(shape, order="F" if fortran else "C"))


def encode_npz(rule: DiscoRule) -> bytes:
    """The rule's parameters as a published file."""
    params = _float32_params(rule.params)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, tensor in sorted(to_published(params).items()):
            # A fixed date and system: the bytes depend on the rule and nothing else.
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system = 3
            array = io.BytesIO()
            np.lib.format.write_array(array, tensor.numpy(), allow_pickle=False)
            archive.writestr(member, array.getvalue())
    return buffer.getvalue()


def decode_safetensors(data: bytes) -> DiscoRule:
    """The rule that `encode_safetensors` was given, or an error."""
    header, body = _safetensors_header(data)
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise ValueError(f"expected metadata with format {_FORMAT}, found none")
    if metadata.get("version") != _VERSION:
        raise ValueError(f"version: expected {_VERSION}, found {short(metadata.get('version'))}")
    name = _check_name(metadata.get("name"))
    config = _like("config", DiscoConfig(), _json_object(metadata, "config"))
    provenance = _json_object(metadata, "provenance")
    if not all(isinstance(value, str) for value in provenance.values()):
        raise ValueError("provenance: expected texts, found something else")
    shapes = config.sizes.shapes()
    entries = {key: entry for key, entry in header.items() if key != "__metadata__"}
    _check_names(set(entries), set(shapes))
    for key, entry in entries.items():
        with _about(key):
            if entry["dtype"] not in ("F16", "F32", "F64"):
                raise ValueError(f"expected float32, found {short(entry['dtype'])}")
            if tuple(entry["shape"]) != shapes[key]:
                raise ValueError(f"expected {list(shapes[key])}, found {short(entry['shape'])}")
    params = _float32_params(load_safetensors(data))
    digest = _digest(header, body)
    if metadata.get("sha256") != digest:
        raise ValueError(f"expected SHA-256 {short(metadata.get('sha256'))}, found {digest}")
    return DiscoRule(config, {key: params[key] for key in shapes}, name, provenance)


def _safetensors_header(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header as a dictionary, and the bytes after it."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(_MAX_HEADER, len(data) - 8):
        raise ValueError("expected a safetensors header, found none or a part")
    header = json.loads(data[8 : 8 + size].decode())
    if not isinstance(header, dict):
        raise ValueError("expected a safetensors header, found something else")
    return header, data[8 + size :]


def _json_object(metadata: Mapping[str, Any], key: str) -> dict[str, Any]:
    with _about(key):
        value = json.loads(metadata[key])
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {type(value).__name__}")
        return value


def _like(where: str, default: Any, value: Any) -> Any:
    """`value` as read from JSON, if it is of the same kind as `default`."""
    if isinstance(default, DiscoConfig | MetaNetworkSizes) and isinstance(value, dict):
        names = {field.name for field in fields(default)}
        if set(value) != names:
            odd = sorted(names ^ set(value))[0]
            raise ValueError(
                f"{where}: expected {len(names)} entries, found {short(odd)} missing or new"
            )
        children = {k: _like(f"{where}.{k}", getattr(default, k), value[k]) for k in value}
        return type(default)(**children)
    if isinstance(default, tuple) and isinstance(value, list) and len(value) == len(default):
        return tuple(_like(where, d, v) for d, v in zip(default, value, strict=True))
    if isinstance(default, int) and type(value) is int and value > 0:
        return value
    if isinstance(default, float) and type(value) in (int, float) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"{where}: expected something like {default!r}, found {short(value)}")


def encode_safetensors(rule: DiscoRule) -> bytes:
    """The whole rule.

    Written by hand because the library orders metadata differently from one run to the next.
    """
    params = _float32_params(rule.params)
    metadata = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": _check_name(rule.name),
        "config": json.dumps(asdict(rule.config)),
        "provenance": json.dumps(rule.provenance, sort_keys=True),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    body = b""
    for name, tensor in params.items():
        data = tensor.numpy().astype("<f4").tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        body += data
    metadata["sha256"] = _digest(header, body)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def _digest(header: Mapping[str, Any], body: bytes) -> str:
    """SHA-256 of everything in the file but the digest itself; the format has no checksum."""
    metadata = {k: v for k, v in header["__metadata__"].items() if k != "sha256"}
    text = json.dumps({**header, "__metadata__": metadata}, sort_keys=True)
    return hashlib.sha256(text.encode() + body).hexdigest()
