"""Settings of rules, given with their names: `actor_critic:entropy_cost=0.01`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
import torch

from discorl.errors import DiscorlError, UnknownNameError
from discorl.library import catalogue
from discorl.library.catalogue import (
    as_rule,
    is_discovered,
    load_rule,
    require_discovered,
    rule_heads,
    rule_settings,
    save_rule,
)
from discorl.library.formats import RuleFileError
from discorl.outputs import HeadSpec
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import HandWritten
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.policy_gradient import PolicyGradient
from discorl.settings import split_spec
from discorl.training.presets import make_config


@pytest.fixture
def tiny_path(tmp_path: Path, tiny_rule: DiscoRule) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_rule(tiny_rule, path)
    return path


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("actor_critic:entropy_cost=0.01", ActorCritic(entropy_cost=0.01)),
        ("actor_critic:num_bins=1e2,discount=1", ActorCritic(num_bins=100, discount=1.0)),
        (
            "actor_critic:categorical_value=false,normalize_td=True",
            ActorCritic(categorical_value=False, normalize_td=True),
        ),
        ("policy_gradient:entropy_cost=0,pg_cost=2", PolicyGradient(pg_cost=2, entropy_cost=0)),
    ],
)
def test_rules_that_are_code(spec: str, rule: HandWritten) -> None:
    loaded = load_rule(spec)
    assert loaded == rule
    assert loaded.name == spec.partition(":")[0]
    assert isinstance(getattr(loaded, "num_bins", 0), int)


def test_a_rule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Mine(PolicyGradient):
        strength: float = 1.0

        name = "mine"

    monkeypatch.setitem(catalogue.RULES, "mine", Mine)
    assert load_rule("mine:strength=3") == Mine(strength=3.0)
    with pytest.raises(UnknownNameError, match=r"rule mine: 'strenght'. Did you mean strength"):
        load_rule("mine:strenght=3")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_discovered_rule_from_a_file(
    tiny_path: Path, tiny_rule: DiscoRule, kind: type[str] | type[Path]
) -> None:
    rule = load_rule(kind(f"{tiny_path}:discount=0.9,target_params_decay=0.5"))
    assert isinstance(rule, DiscoRule)
    assert rule.config == replace(tiny_rule.config, discount=0.9, target_params_decay=0.5)
    assert rule.target_params_decay == 0.5
    assert rule.params.keys() == tiny_rule.params.keys()
    assert all(torch.equal(rule.params[name], p) for name, p in tiny_rule.params.items())
    # It tells where it came from and that it is not quite that.
    assert rule.name == "random"
    assert rule.provenance["path"] == str(tiny_path)
    assert rule.provenance["changed_settings"] == "discount=0.9, target_params_decay=0.5"
    assert "changed_settings" not in load_rule(tiny_path).provenance


def test_a_discovered_rule_by_its_name() -> None:
    plain, changed = load_rule("sprout"), load_rule("sprout:value_cost=0.5")
    assert isinstance(plain, DiscoRule)
    assert isinstance(changed, DiscoRule)
    assert changed.name == "sprout"
    assert changed.config == replace(plain.config, value_cost=0.5)


def test_the_heads_follow_the_settings(tiny_path: Path) -> None:
    assert load_rule(tiny_path).heads(3).action["q"] == (21,)
    assert rule_heads(f"{tiny_path}:num_bins=31,max_abs_value=5", 3).action["q"] == (31,)
    assert rule_heads("actor_critic:num_bins=31", 3).state["v"] == (31,)
    assert rule_heads("actor_critic:categorical_value=false", 3) == HeadSpec(
        {"logits": (3,), "v": (1,)}
    )


def test_a_saved_rule_keeps_its_settings(tmp_path: Path, tiny_path: Path) -> None:
    rule = load_rule(f"{tiny_path}:discount=0.9")
    save_rule(rule, tmp_path / "changed.safetensors")
    again = load_rule(tmp_path / "changed.safetensors")
    assert isinstance(again, DiscoRule)
    assert again.config == rule.config
    assert again.provenance["changed_settings"] == "discount=0.9"
    with pytest.warns(UserWarning, match=r"discount=0.9 will be the default"):
        save_rule(rule, tmp_path / "changed.npz")
    again = load_rule(tmp_path / "changed.npz:discount=0.9,num_bins=21,max_abs_value=10")
    assert again.config == rule.config


def test_other_rules_are_not_touched(tiny_rule: DiscoRule) -> None:
    before = tiny_rule.config
    changed = tiny_rule.configured(discount=0.5)
    assert changed.config.discount == 0.5
    assert tiny_rule.config == before
    assert ActorCritic().configured(discount=0.5) == ActorCritic(discount=0.5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "actor_critic:entropy=0.1",
            r"unknown setting of rule actor_critic: 'entropy'\. Did you mean .*entropy_cost.*\?",
        ),
        ("actor_critic:retrace_lambda=1", "rule actor_critic: 'retrace_lambda'.*vtrace_lambda"),
        ("actor_critic:name=x", "unknown setting of rule actor_critic: 'name'"),
        ("sprout:entropy_cost=0.1", "unknown setting of rule sprout: 'entropy_cost'"),
        ("sprout:sizes=64", "unknown setting of rule sprout: 'sizes'"),
        ("sprout:hidden=64", "unknown setting of rule sprout: 'hidden'"),
    ],
)
def test_unknown_settings(spec: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        load_rule(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("actor_critic:entropy_cost=x", "rule actor_critic: entropy_cost=x: expected a number"),
        ("actor_critic:entropy_cost=", r"rule actor_critic: entropy_cost=\?: expected a number"),
        ("actor_critic:entropy_cost=-1", "entropy_cost=-1: expected at least 0"),
        ("actor_critic:entropy_cost=nan", "entropy_cost=nan: expected a number"),
        ("actor_critic:num_bins=2.5", "num_bins=2.5: expected a whole number"),
        ("actor_critic:num_bins=1", "num_bins=1: expected at least 2"),
        ("actor_critic:normalize_td=1", "normalize_td=1: expected true or false"),
        ("actor_critic:discount=1.5", "discount=1.5: expected a number from 0 to 1"),
        ("actor_critic:pg_cost=1,2", "pg_cost=1,2: expected a number"),
        ("actor_critic:pg_cost,discount=1", "write name=value, got 'pg_cost'"),
        (
            "actor_critic:normalize_td=true",
            r"^rule 'actor_critic:normalize_td=true': normalize_td: only with",
        ),
        ("sprout:discount=high", "rule sprout: discount=high: expected a number"),
        ("sprout:max_abs_value=0", "max_abs_value=0: expected a positive number"),
    ],
)
def test_settings_that_cannot_be(spec: str, message: str) -> None:
    with pytest.raises(DiscorlError, match=message):
        load_rule(spec)


def test_a_files_settings_are_checked_too(tiny_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"tiny.safetensors: 'discont'. Did you mean disc"):
        load_rule(f"{tiny_path}:discont=0.9")
    with pytest.raises(DiscorlError, match=r"tiny.safetensors: discount=2: expected a number from"):
        load_rule(f"{tiny_path}:discount=2")


def test_rules_that_are_not_there_are_named_without_settings(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown rule 'actor_crtic'. Did you mean actor_c"):
        load_rule("actor_crtic:entropy_cost=0.1")
    with pytest.raises(RuleFileError, match=r"gone.npz: no such file"):
        load_rule(f"{tmp_path / 'gone.npz'}:discount=0.9")


@pytest.mark.parametrize("folder", ["lr=0.1", "catch:rows=5", "a:b", "sprout:discount=0.9,x"])
def test_a_folder_may_look_like_settings(folder: str, tiny_path: Path) -> None:
    place = tiny_path.parent / folder / "rule.safetensors"
    place.parent.mkdir()
    tiny_path.rename(place)
    for path in (place, str(place)):
        assert load_rule(path).config == load_rule(f"{place}:discount=0.997").config
        assert is_discovered(path)
    assert load_rule(f"{place}:discount=0.9").config.discount == 0.9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sprout", True),
        ("sprout:discount=0.9", True),
        ("disco103:discount=0.9,y_cost=0", True),
        ("nowhere/rule.npz", True),
        (Path("nowhere/rule.npz"), True),
        ("nowhere/rule.npz:discount=0.9", True),
        ("actor_critic", False),
        ("actor_critic:entropy_cost=0.01", False),
        ("policy_gradient:pg_cost=2,entropy_cost=0", False),
    ],
)
def test_whether_it_is_discovered_is_told_by_the_name(name: str | Path, expected: bool) -> None:
    assert is_discovered(name) is expected


def test_what_can_be_set_is_what_a_rule_declares() -> None:
    assert rule_settings(ActorCritic()).keys() == asdict(ActorCritic()).keys()
    assert rule_settings(PolicyGradient()).keys() == {"pg_cost", "entropy_cost"}
    sprout = load_rule("sprout")
    assert rule_settings(sprout).keys() == asdict(DiscoConfig()).keys() - {"sizes"}


def test_a_rule_may_be_given_in_any_way(tiny_rule: DiscoRule, tiny_path: Path) -> None:
    assert as_rule(tiny_rule) is tiny_rule
    assert as_rule("actor_critic:pg_cost=2") == ActorCritic(pg_cost=2)
    assert require_discovered(as_rule(tiny_path)).config == tiny_rule.config
    with pytest.raises(DiscorlError, match=r"^rule 'actor_critic' has no parameters: it is code"):
        require_discovered(ActorCritic())


@pytest.mark.parametrize("preset", ["default", "published"])
@pytest.mark.parametrize("env", ["catch", "CartPole-v1", "minatar/breakout", "ALE/Pong-v5"])
@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        ("sprout", "discount=0.9"),
        ("disco103", "y_cost=0,z_cost=0"),
        ("actor_critic", "entropy_cost=0.01"),
        ("some/rule.npz", "discount=0.9"),
    ],
)
def test_presets_are_those_of_the_rule(rule: str, settings: str, env: str, preset: str) -> None:
    plain, changed = (make_config(env, r, preset) for r in (rule, f"{rule}:{settings}"))
    name, given = split_spec(changed.rule)
    assert name == rule
    assert split_spec(f"{rule}:{settings}")[1].items() <= given.items()
    assert replace(changed, rule=plain.rule) == plain
