"""Optional dependencies: the line that installs them."""

from __future__ import annotations

import json
from functools import cache

_FILE = "file://"


@cache
def install_line(extra: str) -> str:
    """What to type for an extra: from where this package itself was installed."""
    # Here, because it takes longer to import than all else that --help needs.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        told = json.loads(distribution("discorl").read_text("direct_url.json") or "{}")
        url = told.get("url", "")
        editable = told.get("dir_info", {}).get("editable", False)
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        url, editable = "", False
    if not url.startswith(_FILE) or "%" in url:
        return f"pip install 'discorl[{extra}]'"
    return f"pip install {'-e ' if editable else ''}'{url.removeprefix(_FILE)}[{extra}]'"
