"""Films for a report: the agents of runs whose folders have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from discorl.errors import DiscorlError
from discorl.reports.read import RunData
from discorl.runs.folder import VIDEOS
from discorl.runs.plots import group_seeds
from discorl.training.handle import Run
from discorl.watching.video import VideoSettings

_MOST = 4
"""Films in one report: more agents play with `discorl watch`."""
_FRAMES = 200
Say = Callable[[str], None]


@dataclass(frozen=True)
class Film:
    """An episode, or why there is none."""

    gif: bytes | None
    words: str


def own_films(folder: Path) -> list[Path]:
    """GIFs in a run's folder; of those that were made at evaluations, the newest."""
    return [*sorted(folder.glob("*.gif")), *sorted((folder / VIDEOS).glob("*.gif"))[-1:]]


def film_agents(runs: Sequence[RunData], say: Say) -> dict[Path, Film]:
    """An episode of one agent of each experiment that has no film yet: the environment is made.

    Args:
      say: told what takes a while.
    """
    trained = [run for run in runs if run.kind == "train" and run.records]
    experiments = group_seeds(trained).values()
    unseen = [own for own in experiments if not any(own_films(run.folder) for run in own)]
    films = {}
    for own in unseen[:_MOST]:
        folder = next((run for run in own if run.finished), own[0]).folder
        say(f"{folder}: filming an episode")
        films[folder] = _film(folder)
    return films


def _film(folder: Path) -> Film:
    try:
        video = Run(folder).show().film(1, VideoSettings(max_frames=_FRAMES))
    except DiscorlError as error:
        return Film(None, f"There is no film of {folder.name}: {str(error).rstrip('.')}.")
    return Film(video.gif, f"{folder.name}: {video.summary()}, sampled actions")
