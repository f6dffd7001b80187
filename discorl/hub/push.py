"""A folder goes to the Hugging Face hub."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.files import write_atomically
from discorl.hub.card import PLACE
from discorl.hub.pack import CARD, FILES
from discorl.library.catalogue import SHARED_RULE
from discorl.training.agent import SHARED_AGENT

_UNKNOWN = ("401", "Unauthorized", "LocalTokenNotFound", "Invalid user token")
"""What the client says to somebody who has not logged in."""


def push(folder: str | Path, repository: str, private: bool = False) -> str:
    """Upload a folder that `pack` wrote, as one commit; returns the repository's address.

    The repository is made if there is none. Of the folder, only what `pack` writes is sent. The
    card's lines on loading name the repository from then on.

    Args:
      repository: OWNER/NAME.
      private: whether a new repository is hidden from others; one that exists stays as it is.
    """
    folder = Path(folder)
    _check(folder, repository)
    api = _client()
    card = folder / CARD
    text = card.read_text(encoding="utf-8").replace(PLACE, repository)
    write_atomically(card, lambda path: path.write_text(text, encoding="utf-8"))
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message=f"Upload {folder.resolve().name} with discorl",
        )
    except Exception as error:  # Which library speaks HTTP for the client depends on its version.
        raise DiscorlError(f"{repository}: not uploaded: {_why(error)}") from error
    return str(address)


def _check(folder: Path, repository: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise DiscorlError(f"{repository}: expected a repository of the hub, OWNER/NAME")
    if not folder.is_dir():
        raise DiscorlError(f"{folder}: no such folder; `discorl pack` makes one")
    held = {path.name for path in folder.iterdir()}
    if CARD not in held or not held & {SHARED_AGENT, SHARED_RULE}:
        raise DiscorlError(
            f"{folder} holds no agent or rule with a card; `discorl pack` makes such a folder"
        )


def _client() -> Any:
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise DiscorlError(f"the hub needs the extra: {install_line('hub')}") from error
    return hub.HfApi()


def _why(error: Exception) -> str:
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if any(sign in words for sign in _UNKNOWN):
        return "the hub does not know you: log in with `hf auth login`, or set HF_TOKEN"
    return words[:300]
