"""The server: what it lists and shows, and what it keeps to itself."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from threading import Thread

import pytest
from report_pages import text

from discorl.cli.__main__ import main
from discorl.reports import server as server_module
from discorl.reports.server import Pages, make_server


@contextmanager
def serving(folder):
    with make_server(folder, 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def ask(port, path, method="GET", **headers):
    """Status, headers and text of an answer; the path is sent exactly as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_list_names_every_run(made):
    with serving(made) as port:
        status, _, page = ask(port, "/")
    assert status == 200
    for name in ("seeds/seed_0", "seeds/seed_1", "other", "found", "compared", "searched"):
        assert f'<a href="/report/{name}">' in page
    said = text(page)
    assert "other training catch:rows=3,columns=3 actor_critic:entropy_cost=0.5 0 6 of 6" in said
    assert "discovered from random 0 4 of 4, finished" in said
    assert "8 of 8 runs, finished" in said
    assert "searched search catch:rows=3,columns=3 actor_critic 0 3 of 3 trials, finished" in said
    assert '<a href="/report/seeds">' in page  # Both seeds in one report.


def test_reports_of_a_run_and_of_a_folder_of_runs(made):
    with serving(made) as port:
        one = ask(port, "/report/seeds/seed_0")
        both = ask(port, "/report/seeds")
        script = ask(port, "/plotly.js", "HEAD")
    assert one[0] == both[0] == script[0] == 200
    assert "actor_critic on catch:rows=3,columns=3" in text(one[2])
    assert "actor_critic, 2 seeds" in text(both[2])
    assert '<script src="/plotly.js">' in one[2]
    assert int(script[1]["Content-Length"]) > 100_000
    assert not script[2]


def test_pages_change_with_the_files_and_not_otherwise(runs, monkeypatch):
    rendered = []
    render = server_module.render_report
    monkeypatch.setattr(
        server_module, "render_report", lambda *a, **k: rendered.append(1) or render(*a, **k)
    )
    with serving(runs) as port:
        _, headers, first = ask(port, "/report/other")
        assert ask(port, "/report/other")[2] == first
        assert ask(port, "/report/other", If_None_Match=headers["ETag"])[0] == 304
        assert len(rendered) == 1
        with (runs / "other" / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 7, "charts/env_steps": 7777777}) + "\n")
        status, changed, second = ask(port, "/report/other", If_None_Match=headers["ETag"])
        assert (status, len(rendered)) == (200, 2)
        assert changed["ETag"] != headers["ETag"]
        assert "7,777,777" in second
        assert "7 of 6" in text(ask(port, "/")[2])


@pytest.mark.parametrize(
    "path",
    [
        "/../secret/config.json", "/report/../secret", "/report/..%2fsecret",
        "/report/%2e%2e/secret", "/report/seeds/../../secret", "/report//etc/passwd",
        "/report/other/config.json", "/other/config.json", "/report/", "/report", "/favicon.ico",
        "/report/other/", "/report/.", "/report/other%00", "//other", "/report/%ff",
    ],
)  # fmt: skip
def test_nothing_else_is_there(runs, path):
    secret = runs.parent / "secret"
    secret.mkdir()
    (secret / "config.json").write_text((runs / "other" / "config.json").read_text())
    with serving(runs) as port:
        status, _, body = ask(port, path)
    assert (status, body) == (404, "404 Not Found\n")


def test_links_out_of_the_folder_are_not_followed(runs, tmp_path):
    outside = tmp_path / "outside"
    (runs / "other").rename(outside)
    (runs / "linked").symlink_to(outside)  # The whole run.
    (runs / "seeds" / "seed_0" / "film.gif").symlink_to(outside / "config.json")  # One file.
    (runs / "compared" / "cells" / "x.json").symlink_to(outside / "config.json")
    (runs / "found" / "videos").mkdir()
    (runs / "found" / "videos" / "film.gif").symlink_to(outside / "config.json")
    with serving(runs) as port:
        said = ask(port, "/")[2]
        for name in ("linked", "seeds/seed_0", "compared", "found"):
            assert name not in said
            assert ask(port, f"/report/{name}")[0] == 404
        assert ask(port, "/report/seeds/seed_1")[0] == 200
    (runs / "seeds" / "seed_1" / "checkpoints").rename(tmp_path / "checkpoints")
    (runs / "seeds" / "seed_1" / "checkpoints").symlink_to(tmp_path / "checkpoints")
    assert Pages(runs).report("seeds/seed_1") is not None  # No report reads them.


def test_only_reading_and_only_from_this_machine(made):
    with serving(made) as port:
        for method in ("POST", "PUT", "DELETE"):
            assert ask(port, "/", method)[0] == 501
        assert ask(port, "/", Host="evil.example")[0] == 403
        assert ask(port, "/", Host=f"localhost:{port}")[0] == 200
        headers = ask(port, "/")[1]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    with make_server(made, 0) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_damaged_runs_are_listed_and_a_folder_without_runs_says_so(runs, tmp_path):
    (runs / "other" / "config.json").write_text("{")
    with serving(runs) as port:
        assert "other training" in text(ask(port, "/")[2])
        assert "config.json cannot be read" in text(ask(port, "/report/other")[2])
    (tmp_path / "empty").mkdir()
    with serving(tmp_path / "empty") as port:
        assert "There is no run in" in text(ask(port, "/")[2])


def test_a_port_in_use_is_a_clear_error(made, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", str(made), "--port", str(port)]) == 2
    assert f"--port {port}: another program listens there" in capsys.readouterr().err


def test_ctrl_c_ends_it_quietly(made):
    process = subprocess.Popen(
        [sys.executable, "-m", "discorl.cli", "serve", str(made), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    assert "is at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "ended\n", "")
