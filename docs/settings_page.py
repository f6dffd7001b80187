"""Writes docs/settings.md from the dataclasses: every setting, its default and what it is.

Run `python docs/settings_page.py` after changing a setting; a test fails if you forget.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from discorl.analysis.config import AnalyseConfig
from discorl.comparison.config import CompareConfig
from discorl.discovery.config import DiscoverConfig
from discorl.distillation.config import DistilConfig
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.disco import DiscoConfig
from discorl.rules.policy_gradient import PolicyGradient
from discorl.settings import Search, declared_search, flat_types
from discorl.training.config import TrainConfig
from discorl.tuning.config import TuneConfig

PAGE = Path(__file__).with_name("settings.md")
INTRODUCTION = """# Settings

<!-- Written by docs/settings_page.py: edit the docstrings of the dataclasses, not this page. -->

Every setting is a flag, with dashes for underscores; a keyword argument of `discorl.train`,
`discorl.discover` or `discorl.distil`; and an entry in `config.json`. Its name is the same
everywhere. The defaults below are those of the published experiments, except for distillation. The
defaults of `discorl train` depend on the rule and the environment, and `discorl train ENV --rule R
--help` prints them. A value of the wrong type or out of range is an error before anything is
written.
"""


def page() -> str:
    """The whole page."""
    sections = [
        INTRODUCTION,
        "## Training\n",
        *_tables(TrainConfig(), "The run"),
        "## Discovery\n",
        "The population's agents live by the settings of training, from *Experience* to\n"
        "*Network*. Those are listed here again only where the published notebook's defaults\n"
        "differ.\n",
        *_tables(DiscoverConfig(), "The run", known=TrainConfig()),
        "## Distillation\n",
        "Listed here is only what discovery has not, or has with other defaults.\n",
        *_tables(DistilConfig(), "The run", known=DiscoverConfig()),
        "## Comparisons\n",
        *_tables(CompareConfig(), "The comparison"),
        "## Searches\n",
        *_tables(TuneConfig(), "The search"),
        "### Where it looks\n",
        "Where `--search` looks if no range is given. Other settings of few values, such as\n"
        "yes or no, are searched whole; for the rest, give a range.\n",
        _searched(),
        "## Analyses\n",
        *_tables(AnalyseConfig(), "The analysis"),
        "## Rules\n",
        "A rule's own settings follow its name: `--rule actor_critic:entropy_cost=0.01`.\n",
        *_tables(ActorCritic(), "`actor_critic`"),
        *_tables(PolicyGradient(), "`policy_gradient`"),
        *_tables(DiscoConfig(), "Discovered rules", nested=False),
    ]
    return "\n".join(sections)


def _tables(
    config: Any, title: str, known: Any = None, nested: bool = True, level: int = 3
) -> list[str]:
    """A table of a dataclass's own values, then the tables of its parts."""
    texts = docstrings(type(config))
    parts = [(f.name, getattr(config, f.name)) for f in fields(config)]
    rows = [
        f"| `{name}` | {_default(value)} | {texts.get(name, '')} |"
        for name, value in parts
        if not is_dataclass(value) and (known is None or _differs(name, value, known))
    ]
    tables = []
    if rows:
        head = f"{'#' * level} {title}\n\n| setting | default | what it is |\n| --- | --- | --- |\n"
        tables.append(head + "\n".join(rows) + "\n")
    for name, value in parts if nested else []:
        if is_dataclass(value):
            same = getattr(known, name, None) if known is not None else None
            same = same if type(same) is type(value) else None
            tables += _tables(value, name.replace("_", " ").capitalize(), same)
    return tables


def _searched() -> str:
    """The settings with a declared range."""
    parts = [("training", TrainConfig()), ("`actor_critic`", ActorCritic())]
    parts.append(("discovered rules", DiscoConfig()))
    rows = [
        f"| `{name}` | {owner} | {_where(mark)} |"
        for owner, config in parts
        for name, kind in flat_types(config).items()
        if (mark := declared_search(kind)) is not None
    ]
    return "\n".join(["| setting | of | where |", "| --- | --- | --- |", *rows, ""])


def _where(mark: Search) -> str:
    if mark.choices:
        return ", ".join(_default(choice) for choice in mark.choices)
    return f"{mark.low:g} to {mark.high:g}{', by factors' if mark.log else ''}"


def _differs(name: str, value: Any, known: Any) -> bool:
    return getattr(known, name, None) != value or name not in {f.name for f in fields(known)}


def docstrings(kind: type) -> dict[str, str]:
    """Field -> the docstring below it, on one line; of the class and of its base classes."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__[:-1]):
        body = ast.parse(inspect.getsource(owner)).body[0]
        assert isinstance(body, ast.ClassDef)
        field = None
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                field = node.target.id
            elif field and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                texts[field], field = " ".join(str(node.value.value).split()), None
            else:
                field = None
    return {name: text.replace("|", "\\|") for name, text in texts.items()}


def _default(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "`" + " ".join(map(str, value)) + "`" if value else "none"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page())
