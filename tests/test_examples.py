"""Examples run and say what they gave; notebooks are clean and known. `nbmake` runs those."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGE = ROOT / "docs" / "examples.md"

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def docstring(path: Path) -> str:
    """Of a script's module."""
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def test_there_are_examples_and_notebooks() -> None:
    assert len(EXAMPLES) >= 7
    assert len(NOTEBOOKS) >= 4


@each_example
def test_examples_run(path: Path, tmp_path: Path) -> None:
    # Given a machine without the published weights
    offline = ["--rule", "sprout"] if re.search(r"^    rule: ", path.read_text(), re.M) else []
    empty = {"DISCORL_CACHE": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    # When a script is run there with its smallest budget
    run = subprocess.run(
        [sys.executable, str(path), "--smoke", *offline],
        cwd=tmp_path,
        env={**os.environ, **empty, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    # Then it ends well, and has said something on the way
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) >= 3


def test_an_example_says_how_to_get_the_weights(tmp_path: Path) -> None:
    # Given a machine without the published weights
    empty = {"DISCORL_CACHE": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    # When an example asks for them
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "catch_disco103.py"), "--smoke"],
        cwd=tmp_path,
        env={**os.environ, **empty},
        capture_output=True,
        text=True,
    )
    # Then it says what to do, in one line
    assert run.returncode == 1
    assert "discorl rules fetch disco103" in run.stderr
    assert "Traceback" not in run.stderr


@each_example
def test_examples_are_short_and_documented(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 150
    text = docstring(path)
    assert f"python examples/{path.name}" in text
    assert re.search(r"^Measured: \S", text, re.M)
    assert "PENDING" not in text


@each_example
def test_every_argument_is_explained(path: Path) -> None:
    classes = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)]
    (args,) = [c for c in classes if c.name == "Args"]
    for field, after in zip(args.body, [*args.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(after, ast.Expr), ast.unparse(field)


@each_example
def test_examples_do_not_hide_packages(path: Path) -> None:
    # A script's folder comes first where Python looks for modules.
    probe = f"import importlib.util as u; raise SystemExit(u.find_spec({path.stem!r}) is not None)"
    run = subprocess.run([sys.executable, "-I", "-c", probe])
    assert run.returncode == 0, f"{path.name} would be imported in place of a package"


@pytest.mark.parametrize("path", [*EXAMPLES, *NOTEBOOKS], ids=lambda path: path.name)
def test_the_page_lists_it(path: Path) -> None:
    text = PAGE.read_text()
    assert f"`{path.relative_to(ROOT).as_posix()}`" in text
    if path.suffix == ".py":
        assert f"python examples/{path.name}" in docstring(path)


def test_the_page_lists_nothing_else() -> None:
    for name in re.findall(r"(?:examples|notebooks)/\w+\.\w+", PAGE.read_text()):
        assert (ROOT / name).is_file(), name


@each_notebook
def test_notebooks_are_clean(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert any(cell["cell_type"] == "markdown" for cell in cells)
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
    source = "".join("".join(cell["source"]) for cell in code)
    assert 'SMOKE = os.environ.get("DISCORL_SMOKE") == "1"' in source
    assert "plt.show()" in "".join(code[-1]["source"])
