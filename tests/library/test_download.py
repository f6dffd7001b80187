"""Fetching, against a server on this machine that misbehaves on request."""

from __future__ import annotations

import hashlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.library.download import FetchError, Patience, download, download_from_hub

BODY = bytes(range(256)) * 600
SHA256 = hashlib.sha256(BODY).hexdigest()
QUICK = Patience(tries=3, backoff=0.01, timeout=2.0)


class Server(ThreadingHTTPServer):
    """Answers `/NAME`: good, missing, busy-once, cut-once, cut, silent, huge, garbage."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.strip("/")
        first = name not in self.server.requests
        self.server.requests.append(name)
        if name == "missing":
            return self.send_error(404)
        if name == "busy-once" and first:
            return self.send_error(503)
        if name == "silent":
            threading.Event().wait(1.0)
            return None
        if name == "garbage":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            return None
        self.send_response(200)
        self.send_header("Content-Length", str(10**12 if name == "huge" else len(BODY)))
        self.end_headers()
        cut = name == "cut" or (name == "cut-once" and first)
        self.wfile.write(BODY[:70_000] if cut else BODY)
        return None

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "file.npz"


def only_file(destination: Path) -> bool:
    return list(destination.parent.iterdir()) == [destination]


@pytest.mark.parametrize(("name", "requests"), [("good", 1), ("cut-once", 2), ("busy-once", 2)])
def test_arrives(server: Server, destination: Path, name: str, requests: int) -> None:
    download(server.url(name), SHA256, destination, QUICK)
    assert destination.read_bytes() == BODY
    assert only_file(destination)
    assert len(server.requests) == requests


@pytest.mark.parametrize(
    ("name", "requests", "message"),
    [
        ("missing", 1, "HTTP 404"),
        ("cut", 3, "connection cut after 70000 of 153600 bytes"),
        ("garbage", 3, "this is no HTTP"),
        ("huge", 1, "expected at most 67108864 bytes, found 1000000000000"),
    ],
)
def test_fails_and_says_how_to_do_without(
    server: Server, destination: Path, name: str, requests: int, message: str
) -> None:
    with pytest.raises(FetchError, match=message) as caught:
        download(server.url(name), SHA256, destination, QUICK)
    for needed in (server.url(name), SHA256, str(destination), "DISCORL_CACHE"):
        assert needed in str(caught.value)
    assert len(server.requests) == requests
    assert not destination.parent.exists()


def test_wrong_hash_keeps_the_old_file(server: Server, destination: Path) -> None:
    destination.parent.mkdir()
    destination.write_bytes(b"old")
    with pytest.raises(FetchError, match=f"not the expected file: SHA-256 {SHA256}"):
        download(server.url("good"), "0" * 64, destination, QUICK)
    assert destination.read_bytes() == b"old"
    assert only_file(destination)
    assert len(server.requests) == 1


def test_timeout(server: Server, destination: Path) -> None:
    impatient = Patience(tries=2, backoff=0.0, timeout=0.1)
    with pytest.raises(FetchError, match="timed out"):
        download(server.url("silent"), SHA256, destination, impatient)
    assert len(server.requests) == 2


def test_no_network(destination: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.npz"
        with pytest.raises(FetchError, match="refused") as caught:
            download(url, SHA256, destination, QUICK)
    assert f"get {url} (SHA-256 {SHA256}) and put it at {destination}" in str(caught.value)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://host/file", "nonsense"])
def test_only_the_web(destination: Path, url: str) -> None:
    with pytest.raises(DiscorlError, match=f"url: expected http:// or https://, found {url}"):
        download(url, SHA256, destination, QUICK)


def test_cache_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DiscorlError, match="cannot be made"):
        download(server.url("good"), SHA256, tmp_path / "file" / "x.npz", QUICK)


def test_processes_at_once(server: Server, destination: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from discorl.library.download import download;"
        "download(sys.argv[1], sys.argv[2], Path(sys.argv[3]))"
    )
    command = [sys.executable, "-c", code, server.url("good"), SHA256, str(destination)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert destination.read_bytes() == BODY
    assert only_file(destination)


def test_threads_at_once(server: Server, destination: Path) -> None:
    def fetch() -> None:
        download(server.url("good"), SHA256, destination, QUICK)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert destination.read_bytes() == BODY
    assert only_file(destination)


class TestHub:
    """With a stand-in for the library, which is an extra."""

    @staticmethod
    def install(monkeypatch: pytest.MonkeyPatch, fake: Callable[[str, str], str]) -> None:
        module = SimpleNamespace(hf_hub_download=fake)
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)

    def test_arrives(
        self, destination: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "someone").mkdir()
        (tmp_path / "someone" / "file.npz").write_bytes(BODY)
        self.install(monkeypatch, lambda repo, name: str(tmp_path / repo / name))
        download_from_hub("someone", "file.npz", SHA256, destination)
        assert destination.read_bytes() == BODY
        with pytest.raises(FetchError, match="not the expected file"):
            download_from_hub("someone", "file.npz", "0" * 64, destination)

    def test_no_network(self, destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: str) -> str:
            raise LookupError("no connection")

        self.install(monkeypatch, fail)
        with pytest.raises(FetchError, match="no connection") as caught:
            download_from_hub("someone", "file.npz", SHA256, destination)
        assert str(destination) in str(caught.value)

    def test_not_installed(self, destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(DiscorlError, match=re.escape(install_line("hub"))):
            download_from_hub("someone", "file.npz", SHA256, destination)
