"""A stand-in for the Hugging Face hub: what its client needs to upload a folder and get it back."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_of_the_tests"
COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """Holds repositories in memory; only the bearer of `TOKEN` may write."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.visibility: dict[str, str] = {}
        self.files: dict[str, dict[str, bytes]] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repository = "/".join(parts[2:4])
            names = sorted(self.server.files.get(repository, {}))
            if repository not in self.server.files:
                self._answer({"error": "Repository not found"}, 401)
            elif parts[4:5] == ["tree"]:
                self._answer([self._listed(repository, name) for name in names])
            else:
                siblings = [{"rfilename": name} for name in names]
                self._answer({"id": repository, "sha": COMMIT, "siblings": siblings})
        elif parts[2:3] == ["resolve"]:
            self._send(self.server.files["/".join(parts[:2])][parts[4]])
        else:
            self._answer({"error": "not here"}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}"
            private = wanted.get("private") or wanted.get("visibility") == "private"
            self.server.visibility.setdefault(name, "private" if private else "public")
            self._answer({"url": f"{self.server.address}/{name}"})
        elif self.path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            names = [entry["path"] for entry in json.loads(body)["files"]]
            modes = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            self._answer({"files": modes})
        elif "/commit/" in self.path:
            self._commit("/".join(self.path.split("/")[3:5]), body)
        else:
            self._answer({"error": "not here"}, 404)

    def _commit(self, repository: str, body: bytes) -> None:
        held = self.server.files.setdefault(repository, {})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                held[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        address = f"{self.server.address}/{repository}/commit/{COMMIT}"
        self._answer({"commitUrl": address, "commitOid": COMMIT})

    def _listed(self, repository: str, name: str) -> dict[str, Any]:
        data = self.server.files[repository][name]
        return {"type": "file", "path": name, "size": len(data), "oid": _digest(data)}

    def _answer(self, value: Any, code: int = 200) -> None:
        self._send(json.dumps(value).encode(), code)

    def _send(self, data: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{_digest(data)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@contextmanager
def stand_in() -> Iterator[Hub]:
    """A hub on this machine."""
    with Hub() as hub:
        Thread(target=hub.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()
