"""The documentation as a site: every page is reachable, no link is broken, names are right."""

from __future__ import annotations

import importlib
import importlib.util
import re
import unicodedata
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import discorl
from discorl.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
PROTOCOLS = {"UpdateRule", "Agent", "Environment", "Rollout", "TimeStep", "Transitions", "HeadSpec"}

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def inline_code(path: Path) -> list[str]:
    return re.findall(r"`([^`]+)`", prose(path))


def headings(path: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)


def anchor_on_site(heading: str) -> str:
    """As Python-Markdown makes it."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def anchor_on_github(heading: str) -> str:
    return re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.is_file(), target
        if path in PAGES:
            assert linked.is_relative_to(ROOT / "docs"), f"{target}: not part of the site"
        if anchor:
            # Pages are read in both places.
            assert anchor in map(anchor_on_site, headings(linked)), target
            assert anchor in map(anchor_on_github, headings(linked)), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lists_and_tables_stand_apart(path: Path) -> None:
    # GitHub needs no empty line before them, the site does.
    lines = prose(path).splitlines()
    for before, line in pairwise(lines):
        begins_list = re.match(r"([-*]|\d+\.) ", line) and not re.match(r"([-*]|\d+\.| ) ", before)
        begins_table = line.startswith("|") and not before.startswith("|")
        assert not (before.strip() and (begins_list or begins_table)), line


@each_document
def test_names_in_the_package_exist(path: Path) -> None:
    for code in inline_code(path):
        if name := re.match(r"discorl(\.[a-z_A-Z]\w*)+", code):
            assert resolve(name[0]) is not None, f"{name[0]} does not exist"


@each_document
def test_fields_and_methods_exist(path: Path) -> None:
    for code in inline_code(path):
        name = re.match(r"([A-Z]\w+)\.(\w+)", code)
        owner = getattr(discorl, name[1], None) if name else None
        if name and isinstance(owner, type):
            known = {*dir(owner), *getattr(owner, "__dataclass_fields__", ())}
            assert name[2] in known, f"{code} does not exist"


def resolve(dotted: str) -> object:
    """What a dotted name stands for, None if nothing."""
    try:
        return importlib.import_module(dotted)
    except ImportError:
        parent, _, name = dotted.rpartition(".")
        return getattr(resolve(parent), name, None) if parent else None


def test_the_reference_has_everything_public() -> None:
    # Given the objects that the reference asks the docstrings of
    text = (ROOT / "docs" / "api.md").read_text()
    directives = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    # Then they exist, and are what is exported and the protocols
    assert all(getattr(resolve(name), "__doc__", None) for name in directives)
    assert len(directives) == len(set(directives))
    assert {f"discorl.{name}" for name in discorl.__all__} <= set(directives)
    assert {name.rpartition(".")[2] for name in directives} >= PROTOCOLS


def load(script: str) -> ModuleType:
    """A script of the documentation's own."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "docs" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_is_up_to_date() -> None:
    # If not: python docs/settings_page.py
    script = load("settings_page")
    assert script.PAGE == ROOT / "docs" / "settings.md"
    assert script.PAGE.read_text() == script.page()


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """What mkdocs loads."""
    return load("command_line")


def rendered(hook: ModuleType, page: str) -> str:
    of_page = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    return str(hook.on_page_markdown("# Title\n", page=of_page, config=None, files=None))


def test_the_page_of_commands_is_their_own_help(hook: ModuleType) -> None:
    text = rendered(hook, "cli.md")
    # Every command is there in order, with its subcommands, options and defaults,
    assert re.findall(r"^## discorl (\w+)$", text, re.MULTILINE) == list(COMMANDS)
    assert re.findall(r"^### discorl rules (\w+)$", text, re.MULTILINE) == [
        "list",
        "show",
        "fetch",
        "export",
    ]
    assert text.count("usage: discorl") == len(re.findall(r"^###? ", text, re.MULTILINE))
    assert re.search(r"--meta-steps INT\s+Updates of the rule\. \(default: 800\)", text)
    # in plain text that is the same on every machine.
    assert "\x1b" not in text
    assert str(Path.home()) not in text
    assert str(ROOT) not in text


def test_other_pages_stay_as_they_are(hook: ModuleType) -> None:
    assert rendered(hook, "train.md") == "# Title\n"
