"""Folders that are ready for the hub: an agent or a rule alone, its card, pictures, settings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from discorl.discovery.run import BEST_FILE
from discorl.errors import DiscorlError
from discorl.files import write_atomically, write_json
from discorl.hub.card import Page, Result, agent_card, fresh_agents, rule_card
from discorl.library.catalogue import SHARED_RULE, load_rule, require_discovered, save_rule
from discorl.playing import evaluate
from discorl.reports.differences import (
    find_preset_of,
    passed_as_object,
    read_values,
    rule_run_commands,
    train_commands,
)
from discorl.reports.read import read_run
from discorl.runs.folder import CHECKPOINTS, CONFIG_FILE, CURVE_FILE, check_empty, run_kind
from discorl.runs.handle import RunFolder
from discorl.training.agent import SHARED_AGENT, TrainedAgent, agent_file, read_agent_info
from discorl.training.handle import Run, load_agent
from discorl.watching.video import Video, VideoSettings

CARD, SETTINGS, FILM = "README.md", "training.json", "play.gif"
FILES = (CARD, SHARED_AGENT, SHARED_RULE, SETTINGS, FILM, CURVE_FILE)
"""Everything that a folder for the hub may hold."""
_FRAMES = 200

Say = Callable[[str], None]


@dataclass(frozen=True)
class Packing:
    """What goes into a folder beside the agent or the rule."""

    name: str | None = None
    """In the card's title; by default the folder's name."""
    licence: str | None = None
    """As the hub writes it, for instance apache-2.0."""
    checkpoint: str = "newest"
    """Which agent of a run: newest, best, or the step of a checkpoint."""
    episodes: int = 100
    """That the agent plays for the card; none with 0."""
    film: bool = True
    """Whether to film an episode."""


def pack(
    what: str | Path, folder: str | Path, packing: Packing | None = None, say: Say | None = None
) -> list[Path]:
    """Write an agent or a rule as a folder for the hub; returns its files.

    Args:
      what: a training run, one of its checkpoints or a file with an agent; a discovery or a
        distillation, of which the best rule is taken; a rule's file or its name.
      folder: new or empty.
      say: told what takes a while, and what could not be done.
    """
    folder, packing, say = Path(folder), packing or Packing(), say or (lambda _: None)
    check_empty(folder)
    path = Path(what).expanduser()
    if _is_agent(path):
        _pack_agent(path, folder, packing, say)
    else:
        _pack_rule(what, path, folder, packing)
    return [folder / name for name in FILES if (folder / name).exists()]


def _is_agent(path: Path) -> bool:
    """Whether there is an agent, rather than a rule, if anything."""
    if (path / CONFIG_FILE).exists():
        return run_kind(path) == "train"
    if path.parent.name == CHECKPOINTS:
        return True
    file = agent_file(path)
    return file is not None and bool(read_agent_info(file))


# --- agents


def _pack_agent(path: Path, folder: Path, packing: Packing, say: Say) -> None:
    run = Run(path) if (path / CONFIG_FILE).exists() else None
    if run is None and packing.checkpoint != "newest":
        raise DiscorlError("--checkpoint: the path names one agent; drop it")
    agent = run.load_agent(packing.checkpoint) if run else load_agent(path)
    results = _results(run, agent, packing, say)
    agent.save(folder / SHARED_AGENT)
    pictures = []
    if packing.film and (video := _film(run, agent, packing, say)) is not None:
        video.save(folder / FILM)
        pictures.append((FILM, f"An episode, with a return of {video.returns[0]:.2f}"))
    commands: tuple[str, ...] = ()
    if run is not None:
        commands = _training(run, folder)
        if _copy_curve(run, folder):
            pictures.append((CURVE_FILE, "The learning curve"))
    text = agent_card(agent, _page(folder, packing, results, tuple(pictures), commands))
    _write_card(folder, text)


def _results(
    run: Run | None, agent: TrainedAgent, packing: Packing, say: Say
) -> tuple[Result, ...]:
    """Returns with sampled and with the likeliest actions."""
    if packing.episodes == 0:
        return ()
    env, found = str(agent.info.get("env", "")), []
    for what, greedy in (("sampled actions", False), ("likeliest actions", True)):
        say(f"{packing.episodes} episodes with {what}")
        try:
            if run is None:
                evaluation = evaluate(agent, env, packing.episodes, deterministic=greedy)
            else:
                place = packing.checkpoint
                evaluation = run.evaluate(packing.episodes, greedy, checkpoint=place)
        except DiscorlError as error:
            say(f"the card has no results: {error}")
            return ()
        found.append(Result.of(env, f"episodes with {what}", evaluation))
    return tuple(found)


def _film(run: Run | None, agent: TrainedAgent, packing: Packing, say: Say) -> Video | None:
    say("filming an episode")
    try:
        show = agent.show() if run is None else run.show(checkpoint=packing.checkpoint)
        return show.film(1, VideoSettings(max_frames=_FRAMES))
    except DiscorlError as error:
        say(f"the card has no film: {error}")
        return None


def _training(run: Run, folder: Path) -> tuple[str, ...]:
    """Write a run's settings; returns the command that makes the same run again."""
    data = read_run(run.folder)
    write_json(folder / SETTINGS, data.config)
    values = read_values(data)
    preset = find_preset_of(data, values)
    if passed_as_object(data, values) or preset is None:
        return ()
    return tuple(train_commands([data], values, preset)[:1])


def _copy_curve(run: RunFolder, folder: Path) -> bool:
    source = run.folder / CURVE_FILE
    if source.is_file():
        write_atomically(folder / CURVE_FILE, lambda place: shutil.copyfile(source, place))
    return source.is_file()


# --- rules


def _pack_rule(what: str | Path, path: Path, folder: Path, packing: Packing) -> None:
    if packing.checkpoint != "newest":
        raise DiscorlError("--checkpoint: for agents of training runs; a rule has none")
    run = RunFolder(path) if (path / CONFIG_FILE).exists() else None
    if run is not None and run_kind(path) == "compare":
        raise DiscorlError(f"{path} holds a comparison, which is neither an agent nor a rule")
    rule = require_discovered(load_rule(what if run is None else _best(path)))
    save_rule(rule, folder / SHARED_RULE)
    rule = require_discovered(load_rule(folder / SHARED_RULE))  # With the digest of this file.
    pictures: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    if run is not None:
        data = read_run(path)
        write_json(folder / SETTINGS, data.config)
        commands = tuple(rule_run_commands(data, read_values(data))[:1])
        if _copy_curve(run, folder):
            pictures = ((CURVE_FILE, "How it was made: the population, and fresh agents"),)
    text = rule_card(rule, _page(folder, packing, fresh_agents(rule), pictures, commands))
    _write_card(folder, text)


def _best(folder: Path) -> Path:
    """The rule of a run whose fresh agents did best, or the newest if none tried it yet."""
    best = folder / BEST_FILE
    return best if best.exists() else folder / SHARED_RULE


# --- both


def _page(
    folder: Path,
    packing: Packing,
    results: tuple[Result, ...],
    pictures: tuple[tuple[str, str], ...],
    commands: tuple[str, ...],
) -> Page:
    name = packing.name or folder.resolve().name
    return Page(name, version("discorl"), packing.licence, results, pictures, commands)


def _write_card(folder: Path, text: str) -> None:
    write_atomically(folder / CARD, lambda path: path.write_text(text, encoding="utf-8"))
