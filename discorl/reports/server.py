"""A server for one reader: the runs of a folder as pages, read-only and on this machine alone.

It answers for names that it found itself by walking the folder, and for nothing else, so no
request can name a path. Symbolic links that lead out of the folder are not followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from discorl.comparison.run import CELLS, RULES
from discorl.errors import DiscorlError
from discorl.reports.listing import REPORTS, list_page, parents
from discorl.reports.page import PLOTLY_ADDRESS, check_plotly, plotly_script
from discorl.reports.read import RunData, find_runs, read_run
from discorl.reports.write import render_report
from discorl.runs.folder import VIDEOS

HOST = "127.0.0.1"
_KEPT = 32
"""So many pages are kept in memory."""
_HTML = "text/html; charset=utf-8"
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'"
)
"""What a page may load: what is in it, and plotly from here."""

Stamp = tuple[tuple[str, int, int], ...]
"""Every file of a run: its name, when it changed (ns), its size."""


class Pages:
    """The pages of a folder of runs, made again when the files behind them have changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs: dict[str, tuple[Stamp, RunData]] = {}
        self._reports: dict[str, tuple[tuple[Stamp, ...], str]] = {}
        self._lock = Lock()

    def listing(self) -> str:
        """The list of all runs."""
        with self._lock:
            stamps = {name: stamp_of(folder) for name, folder in self._find().items()}
            runs = {
                name: (self._read(name, stamp), _changed(stamp)) for name, stamp in stamps.items()
            }
            return list_page(self.root, runs)

    def report(self, name: str) -> str | None:
        """The report on a run, or on all runs that a folder directly holds; None if there is
        nothing of this name."""
        with self._lock:
            found = self._find()
            names = [name] if name in found else parents(list(found)).get(name)
            if names is None:
                return None
            stamps = tuple(stamp_of(found[each]) for each in names)
            known = self._reports.pop(name, None)
            if known is None or known[0] != stamps:
                runs = [self._read(*pair) for pair in zip(names, stamps, strict=True)]
                known = stamps, render_report(runs, served=True)
            self._reports[name] = known
            while len(self._reports) > _KEPT:
                self._reports.pop(next(iter(self._reports)))
            return known[1]

    def _find(self) -> dict[str, Path]:
        """Name -> run folder, for all that lie inside the root."""
        return {
            folder.relative_to(self.root).as_posix(): folder
            for folder in find_runs(self.root)
            if stays_inside(folder, self.root)
        }

    def _read(self, name: str, stamp: Stamp) -> RunData:
        known = self._runs.get(name)
        if known is None or known[0] != stamp:
            known = stamp, read_run(self.root / name)
            self._runs[name] = known
        return known[1]


def stays_inside(folder: Path, root: Path) -> bool:
    """Whether everything that a report reads from a run folder lies below the root."""
    inside = root.resolve()
    return all(path.resolve().is_relative_to(inside) for path in (folder, *_files(folder)))


def stamp_of(folder: Path) -> Stamp:
    """What changes when a file of the run does."""
    stamp = []
    for path in _files(folder):
        try:
            status = path.stat()
        except OSError:  # Gone since it was listed: its run continues.
            continue
        stamp.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(sorted(stamp))


def make_server(root: Path, port: int) -> ThreadingHTTPServer:
    """A server that listens, and answers once `serve_forever` is called.

    Args:
      root: the folder of runs.
      port: on 127.0.0.1; 0 takes any that is free.
    """
    if not root.is_dir():
        raise DiscorlError(f"{root}: no such folder; discorl train makes runs in runs/ by default")
    check_plotly()
    try:
        return _Server((HOST, port), partial(_Handler, Pages(root)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise DiscorlError(
                f"--port {port}: another program listens there; choose another, or 0 for any"
            ) from error
        raise DiscorlError(f"--port {port}: {error.strerror or error}") from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # On Windows this would let two servers listen on one port.
    allow_reuse_address = os.name != "nt"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused by the base class."""

    server_version = "discorl"
    sys_version = ""

    def __init__(self, pages: Pages, *args: object) -> None:
        self._pages = pages
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """A page, plotly, or not found."""
        if not self._asked_here():
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        path = unquote(urlsplit(self.path).path)
        if path == PLOTLY_ADDRESS:
            self._answer(plotly_script(), "text/javascript; charset=utf-8")
        elif page := self._page(path):
            self._answer(page, _HTML)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a page asks every few seconds."""

    def _page(self, path: str) -> str | None:
        if path == "/":
            return self._pages.listing()
        if not path.startswith(REPORTS):
            return None
        try:
            return self._pages.report(path.removeprefix(REPORTS))
        except DiscorlError:  # The run was removed a moment ago.
            return None

    def _asked_here(self) -> bool:
        """Whether the browser meant this machine: a foreign name could point here too."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        return host in (HOST, "localhost")

    def _answer(self, text: str, kind: str) -> None:
        data = text.encode()
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self._finish({"ETag": tag})
            return
        self.send_response(HTTPStatus.OK)
        self._finish({"ETag": tag, "Content-Type": kind, "Content-Length": str(len(data))})
        self._write(data)

    def _refuse(self, status: HTTPStatus) -> None:
        data = f"{status.value} {status.phrase}\n".encode()
        self.send_response(status)
        self._finish({"Content-Type": "text/plain", "Content-Length": str(len(data))})
        self._write(data)

    def _finish(self, headers: dict[str, str]) -> None:
        shared = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in (shared | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _write(self, data: bytes) -> None:
        if self.command != "HEAD":
            try:
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):  # The reader went away.
                self.close_connection = True


def _files(folder: Path) -> list[Path]:
    """What a report may read: the run's own files, its films, a comparison's cells and rules."""
    found, inner = [], (CELLS, RULES, VIDEOS)
    for place in (folder, *(folder / name for name in inner)):
        try:
            found += [p for p in place.iterdir() if p.name in inner or not p.is_dir()]
        except OSError:
            continue
    return found


def _changed(stamp: Stamp) -> float:
    """When the newest file changed, in seconds since 1970."""
    return max((time for _, time, _ in stamp), default=0) / 1e9
