"""A report on some run folders: one page with a part for each kind of run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from discorl.errors import DiscorlError
from discorl.files import write_atomically
from discorl.reports.compared import comparison_part
from discorl.reports.films import Film, Say, film_agents
from discorl.reports.markup import Html, escape
from discorl.reports.page import check_plotly, whole_page
from discorl.reports.read import RunData, expand_folders, read_run
from discorl.reports.rule_runs import rule_run_part
from discorl.reports.searched import search_part
from discorl.reports.training import training_part
from discorl.runs.folder import KINDS

_PARTS = {"compare": comparison_part, "tune": search_part}


def write_report(
    folders: Sequence[str | Path], out: str | Path, film: bool = True, say: Say | None = None
) -> list[RunData]:
    """Write one HTML file about some runs; returns what was read of them.

    Args:
      folders: run folders of any kind, or folders that hold some.
      out: the file, which is overwritten.
      film: let agents play that no film in their folders shows; otherwise no environment from
        outside is made.
      say: told what takes a while.
    """
    out = Path(out)
    if out.suffix not in (".html", ".htm"):
        raise DiscorlError(f"--out {out}: a report is a web page: let its name end in .html")
    check_plotly()
    runs = [read_run(folder) for folder in expand_folders([Path(folder) for folder in folders])]
    films = film_agents(runs, say or (lambda _: None)) if film else {}
    text = render_report(runs, films=films)
    write_atomically(out, lambda path: path.write_text(text, encoding="utf-8"))
    return runs


def render_report(
    runs: Sequence[RunData], served: bool = False, films: Mapping[Path, Film] | None = None
) -> str:
    """The page about some runs.

    Args:
      served: see `whole_page`.
      films: run folder -> a film that it does not hold itself.
    """
    trained = [run for run in runs if run.kind == "train"]
    others = [run for run in runs if run.kind != "train"]
    parts: list[tuple[str, Html]] = []
    if trained:
        title = "Training run" if len(trained) == 1 else f"{len(trained)} training runs"
        parts.append((title, training_part(trained, "t0", films or {})))
    for number, run in enumerate(others, start=1):
        part = _PARTS.get(run.kind, rule_run_part)
        parts.append((_title(run), part(run, f"p{number}")))
    if len(parts) == 1:
        return whole_page(_whole_title(runs), [parts[0][1]], served=served)
    contents = [(title, f"part-{number}") for number, (title, _) in enumerate(parts)]
    bodies = [
        Html(f'<div id="{ident}"><h1 class="part">{escape(title)}</h1>{body}</div>')
        for (title, ident), (_, body) in zip(contents, parts, strict=True)
    ]
    return whole_page("Report", bodies, contents, served=served)


def _title(run: RunData) -> str:
    return f"{KINDS[run.kind].split(' ', 1)[1].capitalize()} {run.folder.name}"


def _whole_title(runs: Sequence[RunData]) -> str:
    if len(runs) == 1 and runs[0].kind == "train":
        return f"{runs[0].rule} on {runs[0].env}"
    if len(runs) == 1:
        return _title(runs[0])
    envs = list(dict.fromkeys(run.env for run in runs))
    where = envs[0] if len(envs) == 1 else f"{len(envs)} environments"
    return f"{len(runs)} training runs on {where}"
