"""`discorl rules`: list, show, fetch and export update rules."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from discorl.errors import DiscorlError
from discorl.library.catalogue import (
    RuleStatus,
    Source,
    fetch_rule,
    load_rule,
    parameter_count,
    rule_statuses,
    save_rule,
)
from discorl.library.published import PUBLISHED_LAYERS
from discorl.rules.base import UpdateRule


@dataclass(frozen=True)
class ListRules:
    """List all named rules and where they are."""

    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        statuses = rule_statuses()
        if self.json:
            _print_json([asdict(status) for status in statuses])
            return 0
        rows = [
            (s.name, s.kind, _whereabouts(s), "?" if s.parameters is None else f"{s.parameters:,}")
            for s in statuses
        ]
        _print_table(("name", "kind", "where", "parameters"), rows)
        return 0


@dataclass(frozen=True)
class ShowRule:
    """Show what a rule is made of and where it came from."""

    name: tyro.conf.Positional[str]
    """A name from `discorl rules list`, or a rule file."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        description = _describe(load_rule(self.name))
        if self.json:
            _print_json(description)
            return 0
        layers = description.pop("layers")
        if layers:
            _print_layers(layers, description["tensors"], description["parameters"])
        _print_table(("", ""), _flat(description), header=False)
        return 0


@dataclass(frozen=True)
class FetchRule:
    """Download a rule into the cache, checked by SHA-256."""

    name: tyro.conf.Positional[str]
    """A name from `discorl rules list`."""
    source: Source = "github"
    """The publisher's repository, or the mirror on the Hugging Face hub."""
    url: str | None = None
    """Another address of the same file."""

    def run(self) -> int:
        path = fetch_rule(self.name, source=self.source, url=self.url)
        _say(f"{self.name} is at {path}")
        return 0


@dataclass(frozen=True)
class ExportRule:
    """Write a rule to a file: .npz for the published code, .safetensors for discorl."""

    name: tyro.conf.Positional[str]
    """A name from `discorl rules list`, or a rule file."""
    file: tyro.conf.Positional[Path]
    """File to write, ending in .npz or .safetensors."""
    force: bool = False
    """Overwrite the file if it exists."""

    def run(self) -> int:
        if os.path.lexists(self.file) and not self.force:
            raise DiscorlError(f"{self.file}: exists already; --force overwrites it")
        rule = load_rule(self.name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            save_rule(rule, self.file)
        for warning in caught:
            Console(stderr=True).print(Text(f"warning: {warning.message}"), soft_wrap=True)
        _say(f"{rule.name} written to {self.file}")
        return 0


@dataclass(frozen=True)
class RulesCommand:
    """List, show, fetch and export update rules."""

    action: (
        Annotated[ListRules, tyro.conf.subcommand("list")]
        | Annotated[ShowRule, tyro.conf.subcommand("show")]
        | Annotated[FetchRule, tyro.conf.subcommand("fetch")]
        | Annotated[ExportRule, tyro.conf.subcommand("export")]
    )

    examples: ClassVar = (
        "discorl rules list",
        "discorl rules show sprout",
        "discorl rules fetch disco103",
        "discorl rules export runs/d/best_rule.safetensors rule.npz",
    )

    def run(self) -> int:
        return self.action.run()


def _describe(rule: UpdateRule) -> dict[str, Any]:
    """Everything that `show` prints, ready for JSON."""
    layers = _layers(rule) if rule.params else []
    return {
        "name": rule.name,
        "parameters": parameter_count(rule),
        "tensors": 2 * len(layers),
        "config": asdict(rule.config),
        "provenance": getattr(rule, "provenance", {"origin": "code of discorl"}),
        "layers": layers,
    }


def _layers(rule: UpdateRule) -> list[dict[str, Any]]:
    layers = []
    for name, published in PUBLISHED_LAYERS.items():
        weights, biases = rule.params[f"{name}.w"], rule.params[f"{name}.b"]
        layers.append(
            {
                "name": name,
                "published": published,
                "w": list(weights.shape),
                "b": list(biases.shape),
                "parameters": weights.numel() + biases.numel(),
            }
        )
    return layers


def _print_layers(layers: list[dict[str, Any]], tensors: int, parameters: int) -> None:
    rows = [
        (x["name"], x["published"], f"{x['w']} {x['b']}", f"{x['parameters']:,}") for x in layers
    ]
    rows.append(("total", f"{tensors} tensors", "", f"{parameters:,}"))
    _print_table(("module", "published as", "weights, biases", "parameters"), rows)


def _whereabouts(status: RuleStatus) -> str:
    if status.problem is None:
        return status.where or ""
    if status.where is None:
        return f"not here: discorl rules fetch {status.name}"
    return status.problem


def _flat(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested dictionaries as pairs, keys joined with dots."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _print_table(
    columns: Iterable[str], rows: Iterable[Iterable[Any]], header: bool = True
) -> None:
    table = Table(box=None, show_header=header, pad_edge=False)
    for column in columns:
        right = column == "parameters"
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        # Text, because a file's words must not be read as markup.
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _say(message: str) -> None:
    Console().print(Text(message), soft_wrap=True)
