"""`discorl envs`: list environments, show one with its training settings, draw them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import tyro
from rich.console import Console
from rich.table import Column, Table

from discorl.envs.base import EnvironmentConfig
from discorl.envs.checker import Finding, check_environment
from discorl.envs.families import FAMILIES, PREFIX
from discorl.envs.registry import list_environments
from discorl.envs.settings import default_settings
from discorl.envs.worlds import WORLDS
from discorl.errors import DiscorlError
from discorl.settings import flat_settings, typed
from discorl.training.describe import describe_environment
from discorl.training.presets import AUTO, KIND_PRESETS, make_config


@dataclass(frozen=True)
class EnvsCommand:
    """List the environments, show one with its training settings, or draw them."""

    action: tyro.conf.Positional[Literal["list", "show", "check", "draw"]] = "list"
    """List environments and families, show one, check one of your own, or write a picture of
    each."""
    env: tyro.conf.Positional[str | None] = None
    """The environment to show or check: any that `discorl train` takes."""
    rule: str = AUTO
    """The rule whose presets are shown."""
    json: bool = False
    """Print JSON on standard output."""
    out: Path | None = None
    """Folder for the pictures."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)

    examples: ClassVar = (
        "discorl envs",
        "discorl envs show minatar/breakout --rule disco103",
        "discorl envs check my_module:make_env",
    )

    def run(self) -> int:
        """Print a table, or draw."""
        if self.action == "draw":
            return self._draw()
        if self.action == "show":
            return self._show()
        if self.action == "check":
            return self._check()
        games, families = _describe_games(), _describe_families()
        worlds, outside = _describe_worlds(), _describe_presets(self.rule)
        if self.json:
            print(json.dumps([*games, *families, *worlds, *outside]))
            return 0
        _print_table(games)
        _print_table(families)
        _print_table(worlds)
        _print_install_lines(worlds)
        _print_table(outside)
        return 0

    def _show(self) -> int:
        if self.env is None:
            raise DiscorlError("envs show: name an environment, as in discorl envs show catch")
        environment = flat_settings(self.environment)
        description = describe_environment(self.env, self.rule, **environment)
        if self.json:
            print(json.dumps(description))
        else:
            _print_description(description)
        return 0

    def _check(self) -> int:
        """Try an environment out: exit code 1 if something is wrong with it."""
        if self.env is None:
            raise DiscorlError(
                "envs check: name an environment: discorl envs check my_module:make_env"
            )
        console = Console()

        def tell(finding: Finding) -> None:
            style = {"ok": "green", "advice": "yellow", "problem": "red"}[finding.level]
            line = f"{finding.level:8} {finding.text}"
            console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

        findings = check_environment(self.env, self.environment, None if self.json else tell)
        if self.json:
            print(json.dumps([asdict(finding) for finding in findings]))
        return int(any(finding.level == "problem" for finding in findings))

    def _draw(self) -> int:
        # Matplotlib is slow to import, and the list does not need it.
        from discorl.runs.gallery import draw_environment

        if self.out is None:
            raise DiscorlError("--out: expected a folder for the pictures")
        for entry in list_environments():
            draw_environment(entry.name, self.out / f"{entry.name}.png")
        Console().print(f"{len(list_environments())} pictures in {self.out}", soft_wrap=True)
        return 0


def _describe_games() -> list[dict[str, Any]]:
    return [asdict(entry) for entry in list_environments()]


def _describe_families() -> list[dict[str, Any]]:
    """Like games, but with the values to draw from in place of defaults."""
    return [
        {
            "name": f"{PREFIX}:{name}",
            "settings": {key: _range(values) for key, values in family.ranges.items()},
            "summary": family.summary,
        }
        for name, family in sorted(FAMILIES.items())
    ]


def _describe_worlds() -> list[dict[str, Any]]:
    """Like games, with the line that installs them and whether they are there."""
    return [
        {
            "name": world.name,
            "settings": default_settings(world.load(world.settings)) if world.settings else {},
            "summary": f"{world.summary}: {world.example}" if world.find else world.summary,
            "install": world.install_line,
            "installed": world.installed,
        }
        for world in WORLDS
    ]


def _describe_presets(rule: str) -> list[dict[str, Any]]:
    """Like games, but with the settings that a rule trains with."""
    rows = []
    for preset in KIND_PRESETS:
        config = make_config(preset.example, rule, kind=preset.kind)
        settings = {name: getattr(config, name) for name in preset.for_rule(config.rule)}
        rows.append(
            {
                "name": preset.kind,
                "settings": {"rule": config.rule, **settings, "env_steps": config.env_steps},
                "summary": f"{preset.summary}: {preset.example}",
            }
        )
    return rows


def _range(values: Sequence[Any]) -> str:
    """`3..6`, or the choices with bars between them."""
    if isinstance(values, range):
        return f"{values[0]}..{values[-1]}"
    return "|".join(str(value) for value in values)


def _print_table(entries: list[dict[str, Any]]) -> None:
    """One row per entry, with the optimum, or how to install it, where entries have one."""
    extra = [name for name in ("optimum", "install") if name in entries[0]]
    columns = ("name", "settings", *extra, "what it is")
    table = Table(*(Column(name, overflow="fold") for name in columns))
    for entry in entries:
        settings = ", ".join(f"{key}={value}" for key, value in entry["settings"].items())
        more = [_number(entry["optimum"])] if "optimum" in entry else []
        if "install" in entry:
            more = [_presence(entry)]
        table.add_row(entry["name"], settings, *more, entry["summary"])
    Console().print(table)


def _presence(entry: dict[str, Any]) -> str:
    if entry["installed"]:
        return "installed"
    return "see below" if _is_line(entry["install"]) else entry["install"]


def _is_line(install: str) -> bool:
    return install.startswith("pip ")


def _print_install_lines(entries: list[dict[str, Any]]) -> None:
    """Whole and unwrapped, so that they can be copied."""
    for entry in entries:
        if not entry["installed"] and _is_line(entry["install"]):
            line = f"{entry['name']:11}{entry['install']}"
            Console().print(line, markup=False, highlight=False, soft_wrap=True)


def _print_description(description: dict[str, Any]) -> None:
    """Two columns: what it is, then the settings."""
    settings = description.pop("settings")
    table = Table("what", Column(description.pop("environment"), overflow="fold"))
    observations = description.pop("observations")
    text = ", ".join(f"{name} {shape}" for name, shape in observations.items())
    table.add_row("observation", text.removeprefix("observations "))
    description["optimum"] = _number(description["optimum"])
    for name, value in description.items():
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_", " "), shown)
    table.add_section()
    for name, value in settings.items():
        words = typed(name, value)
        table.add_row(words[0], " ".join(words[1:]))
    Console().print(table)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
