"""Named rules: found, verified, loaded, saved."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from discorl.errors import DiscorlError, UnknownNameError
from discorl.library import catalogue
from discorl.library.catalogue import (
    Remote,
    StoredRule,
    fetch_rule,
    load_rule,
    parameter_count,
    rule_statuses,
    save_rule,
)
from discorl.library.download import FetchError, Patience
from discorl.library.formats import RuleFileError, write_rule
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.disco import DiscoRule
from discorl.rules.policy_gradient import PolicyGradient

pytestmark = pytest.mark.usefixtures("empty_cache")
QUICK = Patience(tries=1, timeout=1.0)
NOWHERE = "http://127.0.0.1:9/file.npz"


@pytest.fixture
def tiny_entry(
    tmp_path: Path, tiny_rule: DiscoRule, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, StoredRule]:
    """A file, and the library's entry `tiny` for it."""
    path = tmp_path / "published" / "tiny.npz"
    path.parent.mkdir()
    write_rule(tiny_rule, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    remote = Remote(NOWHERE, "someone/rules")
    entry = StoredRule("tiny.npz", digest, {"paper": "A, B (2025)"}, remote)
    monkeypatch.setitem(catalogue.RULES, "tiny", entry)
    return path, entry


class TestLoad:
    def test_hand_written(self) -> None:
        assert load_rule("actor_critic") == ActorCritic()
        assert load_rule("policy_gradient") == PolicyGradient()

    @pytest.mark.parametrize("name", ["disco_103", "actor-critic", "Disco103"])
    def test_unknown_name_gets_suggestions(self, name: str) -> None:
        with pytest.raises(UnknownNameError, match=r"Did you mean .*\.npz or \.safetensors"):
            load_rule(name)

    def test_not_here_says_where_and_how(self, empty_cache: Path, tmp_path: Path) -> None:
        with pytest.raises(DiscorlError, match="discorl rules fetch disco103") as caught:
            load_rule("disco103")
        for place in (empty_cache, tmp_path / "xdg" / "discorl"):
            assert str(place / "disco_103.npz") in str(caught.value)

    def test_users_cache_without_settings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DISCORL_CACHE")
        monkeypatch.delenv("XDG_CACHE_HOME")
        expected = tmp_path / "home" / ".cache" / "discorl" / "disco_103.npz"
        with pytest.raises(DiscorlError, match="looked at") as caught:
            load_rule("disco103")
        assert f"looked at {expected}." in str(caught.value)

    @pytest.mark.parametrize("folder", ["cache", "xdg/discorl"])
    def test_by_name_from_a_cache(
        self, tmp_path: Path, tiny_entry: tuple[Path, StoredRule], folder: str
    ) -> None:
        path, entry = tiny_entry
        (tmp_path / folder).mkdir(parents=True)
        cached = shutil.copy(path, tmp_path / folder / "tiny.npz")
        rule = load_rule("tiny")
        assert isinstance(rule, DiscoRule)
        assert rule.name == "tiny"
        assert rule.provenance == {
            "paper": "A, B (2025)",
            "path": str(cached),
            "sha256": entry.sha256,
        }

    def test_altered_file_in_the_cache(
        self, empty_cache: Path, tiny_entry: tuple[Path, StoredRule]
    ) -> None:
        path, entry = tiny_entry
        empty_cache.mkdir()
        (empty_cache / "tiny.npz").write_bytes(path.read_bytes() + b"x")
        with pytest.raises(
            RuleFileError, match="Delete it, then run: discorl rules fetch tiny"
        ) as e:
            load_rule("tiny")
        assert entry.sha256 in str(e.value)
        assert str(empty_cache / "tiny.npz") in str(e.value)

    def test_shipped_rule_is_one_entry(
        self,
        tmp_path: Path,
        tiny_entry: tuple[Path, StoredRule],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path, entry = tiny_entry
        shipped = StoredRule("tiny.npz", entry.sha256, {"origin": "here"})
        monkeypatch.setitem(catalogue.RULES, "tiny", shipped)
        with pytest.raises(DiscorlError, match=r"assets.*tiny.npz. Reinstall discorl"):
            load_rule("tiny")
        monkeypatch.setattr(catalogue, "_ASSETS", path.parent)
        assert load_rule("tiny").name == "tiny"
        with pytest.raises(DiscorlError, match="nothing to fetch"):
            fetch_rule("tiny")

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_path(self, tmp_path: Path, tiny_rule: DiscoRule, suffix: str) -> None:
        path = tmp_path / f"mine{suffix}"
        write_rule(tiny_rule, path)
        for rule in (load_rule(path), load_rule(str(path))):
            assert isinstance(rule, DiscoRule)
            assert rule.name == ("mine" if suffix == ".npz" else "random")
            assert rule.provenance["path"] == str(path)
            assert rule.provenance["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_path_of_a_known_file_is_recognised(self, tiny_entry: tuple[Path, StoredRule]) -> None:
        path, _ = tiny_entry
        rule = load_rule(path.rename(path.with_name("renamed.npz")))
        assert isinstance(rule, DiscoRule)
        assert (rule.name, rule.provenance["paper"]) == ("tiny", "A, B (2025)")

    def test_path_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(RuleFileError, match=r"gone.npz: no such file"):
            load_rule(tmp_path / "gone.npz")

    @pytest.mark.parametrize("name", ["rule.pt", "rule"])
    def test_path_with_another_suffix(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).touch()
        with pytest.raises(RuleFileError, match=r"expected a name ending in .npz or .safetensors"):
            load_rule(tmp_path / name)

    def test_disco103(self, empty_cache: Path, disco103_path: Path) -> None:
        empty_cache.mkdir()
        shutil.copy(disco103_path, empty_cache / "disco_103.npz")
        rule = load_rule("disco103")
        assert isinstance(rule, DiscoRule)
        assert parameter_count(rule) == 754_778
        assert len(rule.params) == 42
        assert rule.config.sizes.hidden == 256
        assert "Nature" in rule.provenance["paper"]


class TestSave:
    def test_safetensors_keeps_settings_and_where_it_came_from(
        self, tmp_path: Path, tiny_entry: tuple[Path, StoredRule]
    ) -> None:
        path, entry = tiny_entry
        save_rule(load_rule(path), tmp_path / "copy.safetensors")
        rule = load_rule(tmp_path / "copy.safetensors")
        assert isinstance(rule, DiscoRule)
        assert rule.name == "tiny"
        assert rule.provenance["paper"] == "A, B (2025)"
        assert rule.provenance["saved_from_sha256"] == entry.sha256
        assert str(path).encode() not in (tmp_path / "copy.safetensors").read_bytes()

    def test_npz_warns_of_what_it_cannot_hold(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        with pytest.warns(
            UserWarning, match=r"num_bins=21, max_abs_value=10.0 will be the default"
        ):
            save_rule(tiny_rule, tmp_path / "rule.npz")
        rule = load_rule(tmp_path / "rule.npz")
        assert isinstance(rule, DiscoRule)
        assert all(torch.equal(rule.params[k], v) for k, v in tiny_rule.params.items())
        save_rule(rule, tmp_path / "again.npz")

    def test_only_discovered_rules(self, tmp_path: Path) -> None:
        with pytest.raises(DiscorlError, match="'actor_critic' has no parameters"):
            save_rule(ActorCritic(), tmp_path / "rule.safetensors")

    def test_suffix(self, tmp_path: Path, tiny_rule: DiscoRule) -> None:
        with pytest.raises(RuleFileError, match=r"expected a name ending in .*, found .pt"):
            save_rule(tiny_rule, tmp_path / "rule.pt")


class TestFetch:
    def test_already_here(self, empty_cache: Path, tiny_entry: tuple[Path, StoredRule]) -> None:
        empty_cache.mkdir()
        cached = shutil.copy(tiny_entry[0], empty_cache / "tiny.npz")
        assert fetch_rule("tiny", patience=QUICK) == cached

    def test_altered_file_is_fetched_again(
        self, empty_cache: Path, tiny_entry: tuple[Path, StoredRule]
    ) -> None:
        empty_cache.mkdir()
        (empty_cache / "tiny.npz").write_bytes(b"altered")
        with pytest.raises(FetchError, match=NOWHERE):
            fetch_rule("tiny", patience=QUICK)

    def test_no_network_names_the_place_in_the_cache(self, empty_cache: Path) -> None:
        with pytest.raises(FetchError, match="cannot fetch") as caught:
            fetch_rule("disco103", url=NOWHERE, patience=QUICK)
        assert str(empty_cache / "disco_103.npz") in str(caught.value)

    def test_from_the_hub(
        self,
        tmp_path: Path,
        tiny_entry: tuple[Path, StoredRule],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path, _ = tiny_entry
        hub = SimpleNamespace(hf_hub_download=lambda *_: str(path))
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        assert fetch_rule("tiny", source="hub") == tmp_path / "cache" / "tiny.npz"
        assert load_rule("tiny").name == "tiny"

    def test_nothing_to_fetch(self) -> None:
        with pytest.raises(DiscorlError, match="'actor_critic' comes with discorl"):
            fetch_rule("actor_critic")
        with pytest.raises(UnknownNameError, match="Did you mean disco103"):
            fetch_rule("disco13")


class TestStatuses:
    def test_nothing_in_the_cache(self) -> None:
        statuses = {status.name: status for status in rule_statuses()}
        assert statuses["actor_critic"].where == "in the package"
        assert statuses["actor_critic"].parameters == 0
        assert statuses["disco103"].where is None
        assert "discorl rules fetch disco103" in str(statuses["disco103"].problem)

    def test_altered_file_does_not_hide_the_others(self, empty_cache: Path) -> None:
        empty_cache.mkdir()
        (empty_cache / "disco_103.npz").write_bytes(b"altered")
        statuses = {status.name: status for status in rule_statuses()}
        assert statuses["disco103"].where == str(empty_cache / "disco_103.npz")
        assert statuses["disco103"].parameters is None
        assert "Delete it" in str(statuses["disco103"].problem)
        assert statuses["policy_gradient"].problem is None
