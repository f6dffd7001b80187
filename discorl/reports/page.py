"""The page around a report: styles, scripts and plotly inside it, so that it opens anywhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.reports.markup import Html, escape, link

PLOTLY_ADDRESS = "/plotly.js"
"""Where a server has plotly, which pages then need not hold."""
_SECONDS = 5
"""Between two looks of a served page for news."""


def check_plotly() -> None:
    """Raise DiscorlError, with the line that installs it, if plotly is not there."""
    if find_spec("plotly") is None:
        raise DiscorlError(f"reports need plotly: {install_line('report')}")


@cache
def plotly_script() -> str:
    """Plotly's own script, from the installed package."""
    check_plotly()
    script = files("plotly") / "package_data" / "plotly.min.js"
    return script.read_text(encoding="utf-8")


def whole_page(
    title: str,
    parts: Sequence[Html],
    contents: Sequence[tuple[str, str]] = (),
    served: bool = False,
    charts: bool = True,
) -> str:
    """A document that stands for itself, or one that a server keeps up to date.

    Args:
      contents: (title, id) of its parts, if there are several.
      served: whether it comes from `discorl serve`.
      charts: whether it has any.
    """
    items = "".join(f"<li>{link(name, f'#{ident}')}</li>" for name, ident in contents)
    navigation = f"<nav><ul>{items}</ul></nav>" if len(contents) > 1 else ""
    home = f"<p>{link('All runs', '/')}</p>" if served and charts else ""
    every = f' data-every="{_SECONDS}"' if served else ""
    live = f'<p id="live" class="quiet">Looks for news every {_SECONDS} s.</p>' if served else ""
    body = "\n".join(part for part in parts if part)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="discorl {version("discorl")}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{_asset("report.css")}</style>
</head>
<body{every}>
<header>{home}<h1>{escape(title)}</h1>{live}{navigation}
<noscript><p class="notice">The charts need JavaScript; the tables do not.</p></noscript></header>
<main>
{body}
</main>
<footer>{_written(served)}</footer>
{_plotly(served) if charts else ""}<script>
{_asset("report.js")}</script>
</body>
</html>
"""


def _written(served: bool) -> str:
    by = f"discorl {version('discorl')}"
    if served:  # A time would make every page differ from the one before.
        return f"<p>Served by {by}.</p>"
    return f"<p>Written by {by} on {time.strftime('%Y-%m-%d at %H:%M')}.</p>"


def _plotly(served: bool) -> str:
    if served:
        return f'<script src="{PLOTLY_ADDRESS}"></script>\n'
    return f"<script>{plotly_script()}</script>\n"


@cache
def _asset(name: str) -> str:
    return (files("discorl") / "assets" / name).read_text(encoding="utf-8")
