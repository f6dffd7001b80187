"""Errors that tell a person what to do. The command line prints them without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 12
"""So many names are listed even where there is a guess."""


class DiscorlError(Exception):
    """Something the user can fix: bad input, a missing file, a full disk."""


class UnknownNameError(DiscorlError):
    """A name that is not in a list, with the nearest ones that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        guess = f" Did you mean {' or '.join(near)}?" if near else ""
        # With a good guess, a long list only hides it.
        listed = bool(known) and not (near and len(known) > _LISTED)
        listing = f" Known: {', '.join(known)}." if listed else ""
        super().__init__(f"unknown {kind} '{name}'.{guess}{listing}{' ' + hint if hint else ''}")
