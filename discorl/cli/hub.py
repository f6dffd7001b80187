"""`discorl pack` and `discorl push`: rules and agents for the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro
from rich.console import Console

from discorl.settings import Natural, check_fields


@dataclass(frozen=True)
class PackCommand:
    """Write an agent or a rule as a folder for the Hugging Face hub, with a card."""

    what: tyro.conf.Positional[str]
    """A training run, a checkpoint or a file with an agent; or a discovery, a distillation, a rule
    file or a rule's name."""
    folder: tyro.conf.Positional[Path]
    """Folder to write, new or empty."""
    name: str | None = None
    """Title of the card; by default the folder's name."""
    license: str | None = None
    """Licence, in the hub's spelling: apache-2.0."""
    checkpoint: str = "newest"
    """Which agent of a run: newest, best (of the run's own evaluations), or the step of a
    checkpoint."""
    episodes: Natural = 100
    """Episodes that an agent plays for the card, with sampled and again with the likeliest
    actions; 0 for none."""
    film: bool = True
    """Film an episode of an agent."""

    examples: ClassVar = (
        "discorl pack runs/a catch-agent",
        "discorl pack runs/d my-rule --license apache-2.0",
        "discorl pack disco103 disco103-copy",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> int:
        """Write the folder, and say what is in it."""
        from discorl.hub.pack import CARD, Packing, pack
        from discorl.runtime import tune_process

        tune_process()
        packing = Packing(self.name, self.license, self.checkpoint, self.episodes, self.film)
        console = Console(soft_wrap=True, highlight=False)
        say = Console(stderr=True, soft_wrap=True, highlight=False).print
        for path in pack(self.what, self.folder, packing, say):
            console.print(f"{path}: {path.stat().st_size / 1000:,.1f} kB", markup=False)
        console.print(
            f"Read {self.folder / CARD}, then: discorl push {self.folder} OWNER/NAME", markup=False
        )
        return 0


@dataclass(frozen=True)
class PushCommand:
    """Upload a folder that `discorl pack` wrote to the Hugging Face hub."""

    folder: tyro.conf.Positional[Path]
    """The folder."""
    repository: tyro.conf.Positional[str]
    """Repository on the hub, OWNER/NAME; it is made if there is none."""
    private: bool = False
    """If the repository is new, hide it from others."""

    examples: ClassVar = ("discorl push catch-agent me/catch-agent --private",)

    def run(self) -> int:
        """Upload, and say where it is."""
        from discorl.hub.push import push

        address = push(self.folder, self.repository, self.private)
        Console(soft_wrap=True, highlight=False).print(address, markup=False)
        return 0
