"""Pieces of a page. Everything that comes from a file is escaped here."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MISSING = "–"  # noqa: RUF001
_SIGN = re.compile(r"[,:=/_](?=[A-Za-z])")
_LARGEST_PICTURE = 12 * 2**20
"""Bytes; larger ones would make the page slow to open."""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(value: Any) -> Html:
    """A value as text for the page; markup stays as it is."""
    return value if isinstance(value, Html) else Html(html.escape(show(value)))


def show(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return show_number(value)
    if isinstance(value, list | tuple):
        return " ".join(map(show, value)) or "none"
    return str(value)


def show_number(value: float) -> str:
    """A number with as many digits as tell something."""
    if not math.isfinite(value):
        return str(value)
    if 1e-3 <= abs(value) < 0.1:
        return f"{value:.3g}"
    if value == 0 or 0.1 <= abs(value) < 1e6:
        text = f"{value:,.3f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3g}"


def join(parts: Iterable[str]) -> Html:
    """Pieces one after the other."""
    return Html("\n".join(parts))


def section(title: str, parts: Sequence[str], ident: str = "", level: int = 2) -> Html:
    """A titled part of the page; nothing if it is empty."""
    inside = [part for part in parts if part]
    if not inside:
        return Html()
    name = f' id="{html.escape(ident)}"' if ident else ""
    body = "\n".join(inside)
    return Html(
        f"<section class=keyed{name}><h{level}>{escape(title)}</h{level}>\n{body}\n</section>"
    )


def words(markup: str) -> Html:
    """What a live page replaces whole when it has changed."""
    return Html(f'<div class="words">{markup}</div>')


def paragraph(text: Any, kind: str = "") -> Html:
    """A line of text."""
    name = f' class="{kind}"' if kind else ""
    return Html(f"<p{name}>{escape(text)}</p>")


def notices(problems: Iterable[str]) -> Html:
    """What a reader must know before anything else."""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return words(f'<ul class="notice">{items}</ul>') if items else Html()


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Html:
    """A table; numbers stand to the right. Nothing without rows."""
    lines = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    if not lines:
        return Html()
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    head = f"<thead><tr>{head}</tr></thead>" if header else ""
    body = "\n".join(lines)
    return words(f'<div class="wide"><table>{head}<tbody>\n{body}\n</tbody></table></div>')


def card(title: str, entries: Iterable[tuple[str, Any]]) -> Html:
    """Names and values in a box; those without a value are left out."""
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
        for name, value in entries
        if value is not None and value != ""
    )
    return words(f'<div class="card"><h3>{escape(title)}</h3><dl>{rows}</dl></div>')


def cards(parts: Sequence[Html]) -> Html:
    """Boxes side by side where there is room."""
    return Html(f'<div class="cards">{"".join(parts)}</div>') if parts else Html()


def fold(title: str, inside: str) -> Html:
    """What is shown on a click."""
    return Html(f"<details><summary>{escape(title)}</summary>{inside}</details>")


def command(words_of_it: str) -> Html:
    """A line for a terminal."""
    return words(f"<pre><code>{escape(words_of_it)}</code></pre>")


def link(text: Any, to: str) -> Html:
    """A link inside the same page or server."""
    return Html(f'<a href="{html.escape(to)}">{breakable(text)}</a>')


def picture(path: Path, title: str) -> Html:
    """A picture inside the page itself; a line that names it if it cannot be."""
    try:
        size = path.stat().st_size
        if size > _LARGEST_PICTURE:
            return paragraph(f"{path.name} is not shown: it has {size / 2**20:.0f} MiB.", "quiet")
        data = path.read_bytes()
    except OSError as error:
        return paragraph(f"{path.name} is not shown: {error.strerror}.", "quiet")
    return embedded(data, "gif", title)


def embedded(data: bytes, kind: str, title: str) -> Html:
    """The bytes of a picture, a `gif` or a `png`, and a line below it."""
    coded = base64.b64encode(data).decode()
    image = f'<img alt="{html.escape(title)}" src="data:image/{kind};base64,{coded}">'
    return words(f'<figure class="film">{image}<figcaption>{escape(title)}</figcaption></figure>')


def as_script(value: Any) -> str:
    """JSON that may stand inside a script element, whatever the texts in it are."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = escape(value) if isinstance(value, Html) else breakable(value)
    return f"<td{' class=number' if is_number else ''}>{text}</td>"


def breakable(value: Any) -> Html:
    """Text that may also be broken after a sign between words, as in names of environments."""
    return Html(_SIGN.sub(r"\g<0><wbr>", escape(value)))
