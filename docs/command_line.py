"""Builds the page of commands from their own `--help`: a hook that mkdocs calls for every page."""

from __future__ import annotations

import contextlib
import io
import os
import re
from typing import Any
from unittest import mock

from discorl.cli.__main__ import main
from discorl.cli.commands import COMMANDS

PAGE = "cli.md"
COLUMNS = "84"
"""Lines of this width fit the page without scrolling."""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page as written, and what every command says of itself after it."""
    return markdown + all_help() if page.file.src_uri == PAGE else markdown


def all_help() -> str:
    """Every command and subcommand in Markdown."""
    sections = []
    for name in COMMANDS:
        text = help_of(name)
        sections.append(f"\n## discorl {name}\n{_block(text)}")
        sections += [
            f"\n### discorl {name} {sub}\n{_block(help_of(name, sub))}" for sub in subcommands(text)
        ]
    return "".join(sections)


def help_of(*words: str) -> str:
    """What `discorl WORDS --help` prints."""
    out = io.StringIO()
    plain = mock.patch.dict(os.environ, {"COLUMNS": COLUMNS, "NO_COLOR": "1"})
    with plain, contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return out.getvalue()


def subcommands(text: str) -> list[str]:
    """The subcommands that a help text names, if the command has any."""
    found = re.match(r"usage: discorl \w+ \[-h\] \{([\w,]+)\}", text)
    return found[1].split(",") if found else []


def _block(text: str) -> str:
    return f"\n```text\n{text.strip()}\n```\n"
