"""`discorl watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import tyro
from rich.console import Console

from discorl.cli.agents import find_agent, find_run
from discorl.errors import DiscorlError
from discorl.runs.display import counting
from discorl.runtime import tune_process
from discorl.settings import Count, Seed, check_fields
from discorl.watching.recording import Show, play_moments
from discorl.watching.scenes import find_board
from discorl.watching.terminal import show_moments
from discorl.watching.video import VideoSettings, check_format

_OUT = Path("watch.gif")


@dataclass(frozen=True)
class WatchCommand:
    """Watch a trained agent play: a video of whole episodes, or a board game in the terminal."""

    agent: tyro.conf.Positional[Path]
    """A training run's folder, one of its checkpoints, or a file that holds an agent."""
    episodes: Count = 1
    """How many, one after the other."""
    out: Path | None = None
    """Video to write, a .gif or an .mp4; by default watch.gif."""
    live: bool = False
    """Show a board game in the terminal instead."""
    greedy: bool = False
    """Always take the likeliest action; by default actions are drawn, as in training."""
    checkpoint: str = "newest"
    """Which agent of a run: newest, best (of the run's own evaluations), or the step of a
    checkpoint."""
    env: str | None = None
    """Where it plays; by default where it was trained."""
    seed: Seed | None = None
    """Fixes the episodes; by default as in the run's own evaluations."""
    device: str | None = None
    """Where to compute; by default where the run did."""
    max_steps: Count | None = None
    """Steps after which an episode is cut off; by default as in the run's own evaluations."""
    video: VideoSettings = field(default_factory=VideoSettings)

    examples: ClassVar = (
        "discorl watch runs/a",
        "discorl watch runs/a --episodes 5 --greedy --out play.mp4",
        "discorl watch runs/a --live --fps 4",
        "discorl watch agent.safetensors --env CartPole-v1 --max-frames 200 --every 2",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> int:
        """Play, and show it or say where the video is."""
        tune_process()
        if self.live and self.out is not None:
            raise DiscorlError("--live and --out: give one of them")
        out = self.out or _OUT
        check_format(out)
        show, console = self._show(), Console()
        if not self.live or not self._is_shown(show, console):
            self._film(show, out, console)
        return 0

    def _show(self) -> Show:
        """Who plays where."""
        run, checkpoint = find_run(self.agent, self.checkpoint)
        if run is not None and self.env is None:
            return run.show(self.greedy, checkpoint, self.seed, self.device, self.max_steps)
        agent = find_agent(self.agent, self.checkpoint, self.device)
        return agent.show(
            self.env, seed=self.seed or 0, deterministic=self.greedy, max_steps=self.max_steps
        )

    def _is_shown(self, show: Show, console: Console) -> bool:
        """Whether the episodes could be shown in the terminal."""
        if not console.is_terminal:
            raise DiscorlError("--live: this is no terminal; without --live a video is written")
        with show.open() as env:
            board = find_board(env)
            if board is None:
                console.print(
                    f"{show.source.name} has no board to show in a terminal: a video is made "
                    "instead",
                    highlight=False,
                )
                return False
            names = getattr(env, "action_names", None)
            for episode in range(self.episodes):
                seed = show.seed + episode
                moments = play_moments(show.player, env, seed, show.max_steps, episode)
                show_moments(moments, board, names, console, self.video.fps or board.fps)
        return True

    def _film(self, show: Show, out: Path, console: Console) -> None:
        with counting("recording", Console(stderr=True)) as tell:
            film = show.film(self.episodes, self.video, tell)
            film.save(out)
        size = out.stat().st_size / 1000
        console.print(
            f"{film.summary()} in {out}, {size:,.0f} kB"
            + (": --max-frames makes it longer, --every quicker" if film.cut else ""),
            highlight=False,
            soft_wrap=True,
        )
