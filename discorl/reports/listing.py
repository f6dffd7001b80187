"""The list of runs in a folder, as a page."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from discorl.reports.compared import count_runs
from discorl.reports.markup import Html, escape, link, paragraph, show, table
from discorl.reports.page import whole_page
from discorl.reports.read import RunData
from discorl.reports.searched import count_trials
from discorl.runs.plots import EPISODE_RETURN

REPORTS = "/report/"
"""Where a run's report is: this, and the run's name."""
_WORDS = {"train": "training", "discover": "discovery", "distil": "distillation",
          "compare": "comparison", "tune": "search"}  # fmt: skip


def list_page(root: Path, runs: dict[str, tuple[RunData, float]]) -> str:
    """The page that names every run.

    Args:
      root: the folder.
      runs: name -> what was read of it, and when it last changed (seconds since 1970).
    """
    newest_first = sorted(runs.items(), key=lambda item: -item[1][1])
    rows = [_row(name, run, changed) for name, (run, changed) in newest_first]
    header = ("run", "kind", "environment", "rule", "seed", "progress", "newest return", "updated")
    empty = f"There is no run in {root} yet. Make one: discorl train catch --out {root}/first"
    parts = [table(header, rows) if rows else paragraph(empty), _together(runs)]
    return whole_page(f"Runs in {root.name or root}/", parts, served=True, charts=False)


def parents(names: list[str]) -> dict[str, list[str]]:
    """Folders that directly hold several runs -> the names of those runs."""
    held = Counter(name.rpartition("/")[0] for name in names)
    return {
        folder: [name for name in names if name.rpartition("/")[0] == folder]
        for folder, count in held.items()
        if folder and count > 1
    }


def _together(runs: dict[str, tuple[RunData, float]]) -> Html:
    """Links to reports on all the runs of a folder, such as the seeds of one experiment."""
    groups = parents(list(runs))
    rows = [(link(folder, _address(folder)), len(names)) for folder, names in groups.items()]
    return table(("together in one report", "runs"), rows)


def _row(name: str, run: RunData, changed: float) -> tuple[object, ...]:
    rule = ", ".join(map(str, run.config.get("rules") or [])) if run.kind == "compare" else run.rule
    envs = ", ".join(map(str, run.config.get("envs") or [])) if run.kind == "compare" else run.env
    newest = run.newest(EPISODE_RETURN if run.kind == "train" else "population/return")
    when = datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds")
    time = Html(f'<time datetime="{when}">{when}</time>')
    return (link(name, _address(name)), _WORDS[run.kind], envs, rule, run.config.get("seed"),
            _progress(run), newest, time)  # fmt: skip


def _progress(run: RunData) -> Html:
    done, planned, unit, finished = _counted(run)
    if planned is None:
        return escape(done)
    bar = f'<progress max="{planned}" value="{min(done, planned)}"></progress>'
    ended = ", finished" if finished else ""
    return Html(f'<span class="progress">{bar} {show(done)} of {show(planned)}{unit}{ended}</span>')


def _counted(run: RunData) -> tuple[int, int | None, str, bool]:
    """What is done, of how much, in which unit, and whether it is over."""
    if run.kind == "compare":
        done, planned = count_runs(run)
        return done, planned, " runs", planned is not None and done >= planned
    if run.kind == "tune":
        done, trials = count_trials(run), run.config.get("trials")
        return done, trials if type(trials) is int else None, " trials", done > 0
    return run.step, run.steps, "", run.finished


def _address(name: str) -> str:
    return REPORTS + quote(name)
