"""Pages in a real browser: their scripts run without errors, and the curves are there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import contextmanager
from threading import Thread

import pytest

from discorl.reports import page as page_module
from discorl.reports import server as server_module
from discorl.reports.server import Pages, make_server
from discorl.reports.write import write_report

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")


def open_page(address, profile):
    """The page as a browser has made it, and what its scripts complained of."""
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu",
            f"--user-data-dir={profile}", "--enable-logging=stderr",
            "--virtual-time-budget=20000", "--dump-dom", address,
        ],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, said


def drawn(dom):
    """How many charts the scripts drew, and how many lines are in them."""
    count = re.search(r'data-drawn="(\d+)"', dom)
    return int(count[1]) if count else None, len(re.findall(r'class="trace scatter', dom))


@contextmanager
def serving(folder):
    with make_server(folder, 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_a_report_opens_from_the_disk(made, tmp_path):
    out = tmp_path / "report.html"
    write_report([made], out)
    dom, said = open_page(out.as_uri(), tmp_path / "profile")
    assert said == []
    charts, traces = drawn(dom)
    assert charts == dom.count('<figure class="chart')
    assert charts > 20
    assert traces > charts
    assert dom.count('class="barlayer') > 0
    # Nothing offers to send the chart anywhere
    assert set(re.findall(r'data-title="([^"]*)"', dom)) == {
        "Download plot as a PNG", "Zoom", "Pan", "Reset axes"
    }  # fmt: skip


def test_a_served_report_follows_its_run(runs, tmp_path, monkeypatch):
    # Given a run that goes on whenever somebody looks
    (runs / "other" / "result.json").unlink()
    metrics = runs / "other" / "metrics.jsonl"
    report = Pages.report

    def one_more(self, name):
        page = report(self, name)
        step = len(metrics.read_text().splitlines()) + 1
        record = {"step": step, "charts/episode_return": 1.0, "losses/total_loss": 77.0}
        with metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return page

    monkeypatch.setattr(Pages, "report", one_more)
    opened = []
    monkeypatch.setattr(
        server_module, "plotly_script", lambda: opened.append(1) or page_module.plotly_script()
    )
    # When its page is left open for a while
    with serving(runs) as address:
        dom, said = open_page(f"{address}/report/other", tmp_path / "profile")
    # Then it tells of steps that were not there at first, without having been opened again
    assert said == []
    assert (drawn(dom)[0] or 0) > 5
    steps = re.search(r"step (\d+) of 6", dom)
    assert steps is not None
    assert int(steps[1]) > 7
    assert len(opened) == 1


def test_the_list_of_runs(made, tmp_path):
    with serving(made) as address:
        dom, said = open_page(f"{address}/", tmp_path / "profile")
    assert said == []
    assert re.search(r"<time [^>]*>\d+ (s|min|h|days) ago</time>", dom)
