"""Fetch a file of known SHA-256, from the web or from the Hugging Face hub."""

from __future__ import annotations

import hashlib
import http.client
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.files import write_atomically
from discorl.library.codecs import MAX_BYTES, reason
from discorl.library.formats import read_bytes

_CHUNK = 2**16
_BUSY = (408, 425, 429)
"""Client errors that go away by themselves."""
_WORTH_RETRYING = (OSError, http.client.HTTPException, ValueError)
"""No network, a cut connection, a busy server, an answer that is not HTTP."""


@dataclass(frozen=True)
class Patience:
    """How long to keep trying."""

    tries: int = 3
    backoff: float = 1.0
    """Seconds before the second try, doubled before each further one."""
    timeout: float = 30.0
    """Seconds without an answer after which a try has failed."""


class FetchError(DiscorlError):
    """A fetch that failed, with how to do it by hand."""

    def __init__(self, problem: str, source: str, sha256: str, destination: Path) -> None:
        super().__init__(
            f"{problem.rstrip('.')}. To do it by hand: get {source} (SHA-256 {sha256}) and put it "
            f"at {destination}, or set DISCORL_CACHE to the folder that holds {destination.name}"
        )


class _NotWorthRetrying(Exception):
    """The same would happen again."""


def download(url: str, sha256: str, destination: Path, patience: Patience | None = None) -> None:
    """Fetch a URL to a file, via memory, so that the file is whole and verified or not there.

    Any number of processes may do this at once.
    """
    patience = patience or Patience()
    if not url.startswith(("https://", "http://")):
        raise DiscorlError(f"url: expected http:// or https://, found {url}")
    try:
        data = _get_patiently(url, patience)
    except (_NotWorthRetrying, *_WORTH_RETRYING) as error:
        problem = f"cannot fetch {url}: {_why(error)}"
        raise FetchError(problem, url, sha256, destination) from error
    _store(data, url, sha256, destination)


def download_from_hub(repository: str, file_name: str, sha256: str, destination: Path) -> None:
    """The same from a Hugging Face repository, whose library has its own retries and progress."""
    source = f"https://huggingface.co/{repository}/resolve/main/{file_name}"
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise DiscorlError(
            f"the hub needs huggingface_hub, which is not installed: {install_line('hub')}"
        ) from error
    try:
        fetched = hf_hub_download(repository, file_name)
    except Exception as error:
        # The library lets exceptions of whichever HTTP client it uses pass through.
        problem = f"cannot fetch {source}: {_why(error)}"
        raise FetchError(problem, source, sha256, destination) from error
    _store(read_bytes(Path(fetched)), source, sha256, destination)


def _store(data: bytes, source: str, sha256: str, destination: Path) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        problem = f"{source} is not the expected file: SHA-256 {found}"
        raise FetchError(problem, source, sha256, destination)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiscorlError(f"{destination.parent}: cannot be made: {reason(error)}") from error
    write_atomically(destination, lambda p: p.write_bytes(data))


def _get_patiently(url: str, patience: Patience) -> bytes:
    attempt = 1
    while True:
        try:
            return _get(url, patience.timeout)
        except _WORTH_RETRYING:
            if attempt >= patience.tries:
                raise
        time.sleep(patience.backoff * 2 ** (attempt - 1))
        attempt += 1


def _get(url: str, timeout: float) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "discorl"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return _read(response, Path(url).name)
    except urllib.error.HTTPError as error:
        if error.code < 500 and error.code not in _BUSY:
            raise _NotWorthRetrying(_why(error)) from error
        raise


def _read(response: http.client.HTTPResponse, label: str) -> bytes:
    """The body, of the length the server announced and no longer than `MAX_BYTES`."""
    length = response.headers.get("Content-Length")
    total = int(length) if length else None
    if total is not None and total > MAX_BYTES:
        raise _NotWorthRetrying(f"expected at most {MAX_BYTES} bytes, found {total}")
    data = bytearray()
    with _progress() as progress:
        task = progress.add_task(label, total=total)
        while chunk := response.read(_CHUNK):
            data += chunk
            progress.advance(task, len(chunk))
            if len(data) > MAX_BYTES:
                raise _NotWorthRetrying(f"expected at most {MAX_BYTES} bytes, found more")
    # Reading in chunks, http.client does not notice a connection cut short.
    if total is not None and len(data) != total:
        raise ConnectionError(f"connection cut after {len(data)} of {total} bytes")
    return bytes(data)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )


def _why(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        nested = error.reason
        return reason(nested) if isinstance(nested, BaseException) else str(nested)
    return reason(error)
