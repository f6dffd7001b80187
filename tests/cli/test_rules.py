"""`discorl rules`, as a user types it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Annotated

import pytest
import tyro

from discorl.cli.rules import RulesCommand
from discorl.errors import DiscorlError
from discorl.library.formats import read_rule, write_rule
from discorl.rules.disco import DiscoRule


class Stub:
    """A second command, so that `rules` is a subcommand as it is in `discorl`."""


def discorl(*words: str) -> int:
    command = tyro.cli(
        Annotated[RulesCommand, tyro.conf.subcommand("rules")]
        | Annotated[Stub, tyro.conf.subcommand("stub")],
        args=words,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    assert isinstance(command, RulesCommand)
    return command.run()


@pytest.fixture(autouse=True)
def wide_terminal(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def tiny_file(tmp_path: Path, tiny_rule: DiscoRule) -> Path:
    write_rule(tiny_rule, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert discorl("rules", "list") == 0
    printed = capsys.readouterr().out
    assert "not here: discorl rules fetch disco103" in printed
    assert "actor_critic" in printed


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert discorl("rules", "list", "--json") == 0
    rules = {rule["name"]: rule for rule in json.loads(capsys.readouterr().out)}
    assert set(rules) >= {"disco103", "actor_critic", "policy_gradient"}
    assert rules["disco103"]["where"] is None


def test_show(tiny_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert discorl("rules", "show", str(tiny_file)) == 0
    printed = capsys.readouterr().out
    assert "meta.action_net.0" in printed
    assert "lstm/~/meta_lstm/~unroll/sequential/conv1_d" in printed
    assert "42 tensors" in printed
    assert "random parameters, seed 0" in printed


def test_show_json(tiny_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert discorl("rules", "show", str(tiny_file), "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config"]["num_bins"] == 21
    assert shown["parameters"] == sum(layer["parameters"] for layer in shown["layers"])
    assert shown["provenance"]["path"] == str(tiny_file)


def test_show_hand_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert discorl("rules", "show", "actor_critic") == 0
    assert "vtrace_lambda" in capsys.readouterr().out


def test_words_of_a_file_are_no_markup(
    tmp_path: Path, tiny_rule: DiscoRule, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_rule = DiscoRule(tiny_rule.config, tiny_rule.params, "x", {"origin": "[red]x[/blue]"})
    write_rule(tiny_rule, tmp_path / "rule.safetensors")
    assert discorl("rules", "show", str(tmp_path / "rule.safetensors")) == 0
    assert "[red]x[/blue]" in capsys.readouterr().out


def test_disco103(
    empty_cache: Path, disco103_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty_cache.mkdir()
    shutil.copy(disco103_path, empty_cache / "disco_103.npz")
    assert discorl("rules", "list") == 0
    assert str(empty_cache / "disco_103.npz") in capsys.readouterr().out
    assert discorl("rules", "show", "disco103") == 0
    printed = capsys.readouterr().out
    assert "754,778" in printed
    assert "42 tensors" in printed


def test_export_and_overwrite(
    tmp_path: Path, tiny_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.npz"
    assert discorl("rules", "export", str(tiny_file), str(target)) == 0
    assert "num_bins=21" in capsys.readouterr().err
    before = target.read_bytes()
    with pytest.raises(DiscorlError, match="exists already; --force overwrites it"):
        discorl("rules", "export", str(tiny_file), str(target))
    assert target.read_bytes() == before
    target.write_bytes(b"old")
    assert discorl("rules", "export", str(tiny_file), str(target), "--force") == 0
    assert read_rule(target).config.sizes.hidden == 16


def test_export_of_code() -> None:
    with pytest.raises(DiscorlError, match=r"rule .actor_critic. has no parameters"):
        discorl("rules", "export", "actor_critic", "out.npz")


def test_fetch_without_network(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(DiscorlError, match="cannot fetch") as caught:
        discorl("rules", "fetch", "disco103", "--url", "http://127.0.0.1:9/disco_103.npz")
    assert str(empty_cache / "disco_103.npz") in str(caught.value)
