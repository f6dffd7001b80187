"""Reads reports as a person would: their charts, tables and texts."""

from __future__ import annotations

import html
import json
import re
from typing import Any


def charts(page: str) -> dict[str, dict[str, Any]]:
    """Title of a chart -> what plotly is given to draw."""
    found = re.findall(
        r'<figure class="chart[^>]*><figcaption>(.*?)</figcaption>.*?'
        r'<script type="application/json">(.*?)</script>',
        page,
        re.DOTALL,
    )
    return {html.unescape(title): json.loads(data) for title, data in found}


def lines(chart: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name of a line -> its trace; those of bands have none."""
    return {trace["name"]: trace for trace in chart["data"] if "name" in trace}


def bands(chart: dict[str, Any]) -> int:
    """How many lines have a band."""
    return sum(trace.get("fill") == "tonexty" for trace in chart["data"])


def sections(page: str) -> list[str]:
    """The titles of a page's parts."""
    return [html.unescape(title) for title in re.findall(r"<h2>(.*?)</h2>", page)]


def text(page: str) -> str:
    """Every word of a page, without scripts and styles."""
    plain = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL).replace("<wbr>", "")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def commands(page: str) -> list[str]:
    """The commands that a page shows."""
    return [html.unescape(found) for found in re.findall(r"<pre><code>(.*?)</code>", page)]
