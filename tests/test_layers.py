"""One direction of imports: each layer knows those before it, and nothing else."""

import ast
from pathlib import Path

import discorl

PACKAGE = Path(discorl.__file__).parent
LAYERS = (
    "errors extras",
    "settings shapes tree layers group",
    "values observations gradients frames statistics",
    "outputs rollout",
    "optim agents rules stacking",
    "learner",
    "replay envs",
    "life",
    "files runtime presence",
    "processes engines",
    "library",
    "runs",
    "watching",
    "training discovery own_loop",
    "playing distillation exporting",
    "verify comparison",
    "analysis",
    "bench tuning",
    "reports",
    "hub",
    "api",
    "cli",
)
"""From the bottom up; what stands in one line knows nothing of its neighbours."""
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
QUIET = {"rich", "tyro", "tensorboard", "matplotlib", "urllib", "safetensors", "tempfile", "shutil"}
"""What writes files, downloads or speaks to a terminal; nothing below `library` may."""


def modules():
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def part_of(path):
    """The top-level module or package of a file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file imports, also those that it imports late."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_part_has_its_place():
    assert {part_of(path) for path in modules()} == set(LEVEL)


def test_imports_go_down():
    wrong = []
    for path in modules():
        own = part_of(path)
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "discorl" or parts[1:2] in ([], [own]):
                continue
            if LEVEL[parts[1]] >= LEVEL[own]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_nothing_knows_the_entry_point():
    assert not [path for path in modules() if "discorl.cli.__main__" in imports(path)]


def test_files_downloads_and_terminals_stay_above():
    low = [path for path in modules() if LEVEL[part_of(path)] < LEVEL["files"]]
    assert not [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in low
        for name in imports(path)
        if name.split(".")[0] in QUIET
    ]


def test_the_design_names_the_layers_in_this_order():
    text = (PACKAGE.parent / "docs" / "design.md").read_text()
    listed = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    names = [name for cell in listed for name in cell.replace("`", "").split(",")]
    assert [name.strip() for name in names] == " ".join(LAYERS).split()
