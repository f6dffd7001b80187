"""What the documents promise: examples run, commands and flags exist, metrics are explained."""

from __future__ import annotations

import importlib
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

import discorl
from discorl.cli.__main__ import main
from discorl.cli.commands import COMMANDS
from discorl.cli.launch import LAUNCHED
from discorl.comparison.config import CompareConfig
from discorl.discovery.config import DiscoverConfig
from discorl.envs import registry
from discorl.envs.worlds import find_world
from discorl.library import catalogue
from discorl.rules.disco import DiscoRule
from discorl.runs.metrics import read_metrics

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON_DOCUMENTS = [path for path in DOCUMENTS if "```python\n" in path.read_text()]
CONFIGS = {
    "train": discorl.TrainConfig,
    "discover": DiscoverConfig,
    "distil": discorl.DistilConfig,
    "compare": CompareConfig,
}
FEW_STEPS = 34
"""Enough for an update at the default batch and number of environments."""
FEW_META_STEPS = 3


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a document in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def commands(path: Path) -> list[list[str]]:
    """Every `discorl ...` of a document's shell blocks and inline code, as words."""
    shell = [block.replace("\\\n", " ") for block in blocks(path, "sh")]
    lines = [line for block in shell for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines += re.findall(r"`([^`]+)`", prose)
    words = [own_words(line.partition("#")[0].removeprefix("$ ").split()) for line in lines]
    # A bare `discorl` is the project's name.
    return [w for w in words if w[:1] == ["discorl"] and len(w) > 1]


def own_words(words: list[str]) -> list[str]:
    """The command without variables before it."""
    while words and re.fullmatch(r"[A-Z_]+=\S+", words[0]):
        words = words[1:]
    return words


def launched(words: list[str]) -> int:
    """Where the flags of a command begin that `discorl launch` is to launch; its end if none."""
    places = [words.index(name) for name in LAUNCHED if words[1] == "launch" and name in words]
    return min(places, default=len(words))


@pytest.mark.parametrize("path", PYTHON_DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a document whose blocks build on one another, and registries that may be written to
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "RULES", dict(catalogue.RULES))
    monkeypatch.setattr(registry, "GAMES", dict(registry.GAMES))
    # When they are run in order, with fewer steps
    names = {"__name__": "example"}
    for block in blocks(path, "python"):
        code = re.sub(r"\b(\w*steps)=\d+", rf"\1={FEW_STEPS}", block)
        code = re.sub(r"\bmeta_steps=\d+", f"meta_steps={FEW_META_STEPS}", code)
        exec(compile(code, path.name, "exec", dont_inherit=True), names)  # then none raises


def test_the_readme_has_an_example() -> None:
    assert ROOT / "README.md" in PYTHON_DOCUMENTS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_exist(path: Path) -> None:
    for words in commands(path):
        name = words[1]
        assert name in COMMANDS or name in ("COMMAND", "--help", "--version"), " ".join(words)


def shown_commands() -> list[str]:
    """Every command that could be typed as it stands, each once."""
    found = {" ".join(words[1:]) for path in DOCUMENTS for words in commands(path)}
    return sorted(c for c in found if c.split()[0] in COMMANDS and "--help" not in c)


SUBCOMMANDS = [
    c for c in shown_commands() if re.fullmatch(r"(rules|bench)( \w+)?|launch|pack|push", c)
]
"""Named without what they work on, or working on nothing."""


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_subcommands_exist(command: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0


@pytest.mark.parametrize("command", sorted({*shown_commands()} - {*SUBCOMMANDS}))
def test_commands_parse(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a command with a number in place of the letter that stands for one
    name, *args = re.sub(r"(--seed) S\b", r"\1 0", command).split()
    module, attribute, _ = COMMANDS[name]
    monkeypatch.setattr(getattr(importlib.import_module(module), attribute), "run", lambda _: 0)
    # and a configuration where it names one
    monkeypatch.chdir(tmp_path)
    for flag, place in pairwise(args):
        if flag in ("--resume", "--config"):
            file = tmp_path / place / "config.json" if flag == "--resume" else tmp_path / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(CONFIGS[name]().to_json()))
    # and the package that its environment needs
    for world in filter(None, map(find_world, args)):
        if not world.installed:
            pytest.skip(f"{world.name} is not installed: pip install 'discorl[{world.extra}]'")
    # When it is parsed and not run, then nothing is wrong with it
    assert main([name, *args]) == 0


def flags() -> list[tuple[str, str]]:
    """(command with its subcommand, flag) for every flag that a document shows, each once."""
    seen = set()
    for path in DOCUMENTS:
        for words in commands(path):
            depth = 3 if words[1] in ("rules", "bench") else 2
            inner = launched(words)
            names = [" ".join(words[1:depth])] * inner + words[inner : inner + 1] * len(words)
            for name, word in list(zip(names, words, strict=False))[depth:]:
                if word.startswith("--") and word != "--help":
                    seen.add((name, word.partition("=")[0]))
    return sorted(seen)


@pytest.mark.parametrize(("command", "flag"), flags())
def test_flags_exist(command: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert re.search(rf"{flag}\b", capsys.readouterr().out), f"discorl {command} has no {flag}"


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for path in DOCUMENTS:
        lines = [line for block in blocks(path, "sh") for line in block.splitlines()]
        for line in lines + re.findall(r"`([^`\n]+)`", path.read_text()):
            if words := re.match(r"make (\w+)", line):
                assert words[1] in targets, f"{path.name}: {line}"


@pytest.mark.parametrize("kind", ["actor_critic", "discovered"])
def test_every_metric_is_explained(kind: str, tiny_rule: DiscoRule, tmp_path: Path) -> None:
    # Given a short run with evaluations
    rule = kind
    if kind == "discovered":
        rule = str(tmp_path / "tiny.safetensors")
        discorl.save_rule(tiny_rule, rule)
    run = tmp_path / "run"
    settings = {"batch_size": 2, "torso": (8,), "log_every": 1, "eval_every": 1}
    result = discorl.train("catch:rows=3", rule, run, steps=2, eval_episodes=2, **settings)
    # Then its document names everything it wrote
    names = {name for record in read_metrics(run) for name in record}
    assert {"losses/total_loss", "eval/return_greedy", "charts/episode_return"} <= names
    explained = set(re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    assert names <= explained
    assert set(result) <= explained


def test_every_metric_of_discovery_is_explained(tmp_path: Path) -> None:
    # Given a short discovery with an evaluation
    env = "catch:rows=3,columns=3"
    result = discorl.discover(
        tmp_path / "run",
        envs=(env,),
        agents=1,
        meta_steps=1,
        num_envs=2,
        rollout_length=4,
        torso=(8,),
        model_size=4,
        head_hidden=4,
        value_torso=(4,),
        sizes=discorl.MetaNetworkSizes(predictions=12, hidden=8, meta_hidden=4),
        log_every=1,
        eval_steps=3,
    )
    # Then its document names everything it wrote
    names = {name.replace(env, "ENV") for record in result.metrics for name in record}
    assert {"meta/meta_loss", "eval/fresh_agents", "population/return/ENV", "eval/ENV"} <= names
    explained = set(re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    assert names <= explained
    assert set(result) <= explained


SETTINGS = (ROOT / "docs" / "settings.md").read_text()


def explained(*sections: str) -> list[str]:
    """The settings that some sections of their page explain."""
    parts = [SETTINGS.partition(f"\n## {name}\n")[2].partition("\n## ")[0] for name in sections]
    return re.findall(r"^\| `(\w+)` \| [^|]+ \| \S.* \|$", "".join(parts), re.MULTILINE)


def test_every_setting_is_explained_once() -> None:
    settings = list(discorl.TrainConfig().to_json())
    assert sorted(explained("Training")) == sorted(settings)
    assert sorted(explained("Comparisons")) == sorted(CompareConfig().to_json())


def test_every_setting_of_discovery_is_explained() -> None:
    # Those that are training's, with the same default, are not repeated
    training, own = discorl.TrainConfig().to_json(), DiscoverConfig().to_json()
    shared = {name for name, value in own.items() if name in training and training[name] == value}
    assert {*explained("Discovery")} == {*own} - shared
    assert {*own} <= {*explained("Training", "Discovery")}


@pytest.mark.parametrize("rule", ["actor_critic", "sprout"])
def test_every_setting_of_a_rule_is_explained(rule: str) -> None:
    settings = catalogue.rule_settings(discorl.load_rule(rule))
    assert {*settings} <= {*explained("Rules")}


def test_public_names_resolve() -> None:
    assert discorl.__all__ == sorted(discorl.__all__)
    for name in discorl.__all__:
        assert getattr(discorl, name).__module__.startswith("discorl.")
