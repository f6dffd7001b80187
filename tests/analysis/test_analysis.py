"""Looking inside rules: what is known of hand-written ones is found again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import discorl
from discorl.analysis import robustness as robustness_module
from discorl.analysis.config import AnalyseConfig
from discorl.analysis.evidence import (
    Evidence,
    meta_inputs,
    meta_outputs,
    pushes_at_advantages,
    state_values,
    with_probability,
    with_value,
)
from discorl.analysis.probes import future
from discorl.analysis.regression import cross_validated_r2, slope
from discorl.analysis.reliance import ShortSighted, blind
from discorl.analysis.robustness import OWN, SWEEPS, variants
from discorl.analysis.subjects import Subject, find_candidates, make_subject
from discorl.analysis.traces import steps_to_the_end
from discorl.cli.__main__ import main
from discorl.cli.commands import parse_arguments
from discorl.comparison.run import read_summary
from discorl.errors import DiscorlError
from discorl.outputs import AgentOutputs
from discorl.rollout import Transitions
from discorl.rules.disco import DiscoRule
from discorl.settings import flat_settings

AC = "actor_critic:entropy_cost=0,vtrace_lambda=0.5,num_bins=21,max_abs_value=10"
DECAY = 0.997 * 0.5
FIGURES = ("responses", "credit", "sensitivity", "closest", "traces", "probes", "reliance")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_rule: DiscoRule) -> Path:
    """All analyses of a small rule and of actor-critic."""
    place = tmp_path_factory.mktemp("analysis") / "out"
    discorl.analyse([tiny_rule, AC], place, steps=6, seeds=2)
    return place


@pytest.fixture(scope="module")
def result(folder: Path) -> dict:
    return json.loads((folder / "analysis.json").read_text())


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


# --- actor-critic: the answers are known


def test_the_push_of_actor_critic_is_its_advantage(result: dict, folder: Path) -> None:
    advantage = result["rules"][AC]["closest"]["advantage"]
    assert advantage["slope"] == pytest.approx(1, abs=1e-6)
    assert advantage["r2"] == pytest.approx(1, abs=1e-6)
    # Alone it explains more than what it is made of, or clipped
    others = result["rules"][AC]["closest"]
    assert others["one-step TD error"]["r2"] < 0.99
    assert others["sign of advantage"]["r2"] < 0.9999
    swept = [r for r in table(folder, "responses") if (r["rule"], r["input"]) == (AC, "advantage")]
    assert [float(r["push"]) for r in swept] == pytest.approx([float(r["x"]) for r in swept])


def test_credit_of_actor_critic_decays_with_discount_and_lambda(result: dict) -> None:
    credit = result["rules"][AC]["credit_by_lag"]
    assert list(credit) == ["policy target, by reward"]
    assert credit["policy target, by reward"] == pytest.approx([DECAY**k for k in range(17)])


def test_an_entropy_bonus_is_found_beside_the_advantage(tmp_path: Path) -> None:
    # Given actor-critic with a bonus for entropy, whose advantages count twice
    rule = discorl.ActorCritic(entropy_cost=1.0, pg_cost=2.0, num_bins=21, max_abs_value=10.0)
    # When it is analysed, then both together explain it, and the advantage alone does not
    found = discorl.analyse(rule, tmp_path / "out", steps=10, only=["closest"])
    closest = found["rules"]["actor_critic"]["closest"]
    assert closest["all together"]["r2"] == pytest.approx(1, abs=1e-6)
    assert closest["advantage"]["r2"] < 1 - 1e-5
    assert closest["advantage"]["slope"] == pytest.approx(2, abs=0.1)


# --- what is written


def test_every_analysis_has_a_figure_and_a_table_with_a_random_rule(
    folder: Path, tiny_rule: DiscoRule
) -> None:
    names = {f"{name}.{kind}" for name in FIGURES for kind in ("csv", "png")}
    assert {path.name for path in folder.iterdir()} == {*names, "README.md", "analysis.json"}
    for name in FIGURES:
        rules = {row["rule"] for row in table(folder, name)}
        hand_written = set() if name in ("sensitivity", "reliance") else {AC}
        # The small rule is called random itself: the one beside it has a number.
        assert rules == {tiny_rule.name, "random #2"} | hand_written
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_page_shows_every_figure_and_the_command(folder: Path, result: dict) -> None:
    page = (folder / "README.md").read_text()
    assert all(f"({name}.png)" in page for name in FIGURES)
    assert result["command"] in page
    words = result["command"].split()
    command = parse_arguments("analyse", words[2:])
    assert command.config == AnalyseConfig(steps=6, seeds=2)


def test_reliance_has_a_curve_for_each_variant_and_seed(folder: Path) -> None:
    rows = table(folder, "reliance")
    curves = {(r["rule"], r["variant"], r["seed"]) for r in rows}
    variants = {variant for rule, variant, _ in curves if rule == "random"}
    assert len(variants) == 5
    assert len(curves) == 2 * 5 + 2
    assert max(int(r["step"]) for r in rows) == 6


def test_a_seed_fixes_everything(folder: Path, tiny_rule: DiscoRule, tmp_path: Path) -> None:
    again = tmp_path / "again"
    discorl.analyse([tiny_rule, AC], again, steps=6, only=["closest", "traces"])
    for name in ("closest.csv", "traces.csv"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


# --- the parts


@pytest.fixture(scope="module")
def subject(tiny_rule: DiscoRule) -> Subject:
    config = AnalyseConfig(steps=3)
    return make_subject(find_candidates([tiny_rule], config)[0], lambda *_: None)


@pytest.fixture(scope="module")
def evidence(subject: Subject) -> Evidence:
    return subject.grown.evidence(steps=12, copies=4)


def test_the_inputs_found_are_those_that_the_rule_read(
    subject: Subject, evidence: Evidence
) -> None:
    assert isinstance(subject.rule, DiscoRule)
    _, targets = evidence.push_and_targets(subject.rule)
    inputs = meta_inputs(subject.rule, evidence, targets)
    again = meta_outputs(subject.rule, inputs, evidence.state)
    for name in ("policy", "y", "z", "meta_input"):
        torch.testing.assert_close(getattr(again, name), getattr(targets, name))


def test_what_is_set_is_what_the_rule_reads(subject: Subject, evidence: Evidence) -> None:
    changed = with_value(subject.rule, evidence, 5, 1.5)
    values = state_values(subject.rule, changed)
    before = state_values(subject.rule, evidence)
    torch.testing.assert_close(values[5], torch.full_like(values[5], 1.5), atol=1e-3, rtol=0)
    torch.testing.assert_close(values[6], before[6])
    likely = with_probability(evidence, 5, 0.7)
    probs = torch.softmax(likely.outputs.logits[5], dim=-1)
    taken = probs.gather(-1, evidence.transitions.actions[5].unsqueeze(-1).long())
    torch.testing.assert_close(taken, torch.full_like(taken, 0.7))


def test_hiding_y_keeps_the_rule_from_reading_it(subject: Subject, evidence: Evidence) -> None:
    # Given what the agent predicted, and other predictions of y in its place
    rule, outputs = subject.rule, evidence.outputs
    assert isinstance(rule, DiscoRule)
    state = outputs.state | {"y": torch.randn_like(outputs.state["y"])}
    other = Evidence(
        AgentOutputs(state, outputs.action),
        evidence.target_outputs,
        evidence.transitions,
        evidence.state,
    )

    def targets(rule: DiscoRule, evidence: Evidence):
        return evidence.push_and_targets(rule)[1]

    # Then the rule tells them apart, but not if y is hidden from it
    assert not torch.allclose(targets(rule, evidence).z, targets(rule, other).z)
    hidden = blind(rule, "y")
    torch.testing.assert_close(targets(hidden, evidence).z, targets(hidden, other).z)
    torch.testing.assert_close(targets(hidden, evidence).policy, targets(hidden, other).policy)
    # and if it is hidden from the targets of y and z alone, the policy's is as it was
    part = ShortSighted(rule.config, rule.params, hidden="y")
    torch.testing.assert_close(targets(part, evidence).policy, targets(rule, evidence).policy)
    torch.testing.assert_close(targets(part, evidence).y, targets(hidden, evidence).y)
    torch.testing.assert_close(targets(part, evidence).z, targets(hidden, other).z)


def test_probes_ask_for_the_future_up_to_the_end_of_the_episode() -> None:
    # Given one trajectory: two steps, then an end; three more, and the window is over
    rewards = torch.tensor([1.0, 2, 4, 8, 16]).unsqueeze(1)
    ends = torch.tensor([0, 1, 0, 0, 0], dtype=torch.bool).unsqueeze(1)
    logits = torch.zeros(6, 1, 2)
    transitions = Transitions(torch.zeros(5, 1, dtype=torch.long), rewards, ends, logits[:-1])
    told = future(Evidence(AgentOutputs({"logits": logits}), None, transitions, None))
    known = {name: tensor[:2, 0].tolist() for name, tensor in told.items()}
    assert known["reward"] == [1, 2]
    assert known["return, 2 steps"] == known["return, 16 steps"] == [3, 2]
    assert known["steps to the end"] == [1, 0]
    assert bool(told["return, 4 steps"][2:].isnan().all())


def test_steps_to_the_end_are_counted_in_each_trajectory() -> None:
    ends = {0: [False, True, False], 1: [False, False, True]}
    rows = [{"trajectory": t, "ended": end} for t, own in ends.items() for end in own]
    assert steps_to_the_end(rows) == [1, 0, None, 2, 1, 0]


def test_probes_tell_what_is_linear_and_nothing_from_noise() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(200, 30))
    groups = np.repeat(np.arange(20), 10)
    linear = features @ generator.normal(size=30) + 3
    noise, constant = generator.normal(size=200), np.ones(200)
    scores = cross_validated_r2(features, np.stack([linear, noise, constant], axis=1), groups)
    assert scores[0] == pytest.approx(1, abs=1e-4)
    assert scores[1] < 0.1
    assert np.isnan(scores[2])
    assert slope(features[:, 0], 2 * features[:, 0] - 5) == pytest.approx(2)


def test_what_only_names_a_group_tells_nothing_of_others() -> None:
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 10)
    aims = generator.normal(size=20)[groups][:, None]
    assert cross_validated_r2(np.eye(20)[groups], aims, groups)[0] < 0.1


# --- a rule during its discovery


POPULATION = {
    "envs": ("catch:rows=3,columns=3",), "agents": 1, "meta_steps": 6, "num_envs": 2,
    "rollout_length": 5, "torso": (4,), "model_size": 4, "head_hidden": 4, "eval_every": 2,
    "eval_steps": 2, "checkpoint_every": 2, "keep_checkpoints": 2, "value_torso": (4,),
    "sizes": discorl.MetaNetworkSizes(predictions=12, hidden=8, meta_hidden=4),
}  # fmt: skip


def test_a_discovery_is_shown_as_its_rule_was_on_the_way(tmp_path: Path) -> None:
    # Given a discovery whose best rule is older than the checkpoints it kept
    folder = tmp_path / "found"
    discorl.discover(folder, **POPULATION)
    best = discorl.load_rule(folder / "best_rule.safetensors")
    old = best.provenance | {"meta_steps": "2"}
    discorl.save_rule(
        DiscoRule(best.config, best.params, "found", old), folder / "best_rule.safetensors"
    )
    # When its folder is named, then there is a rule for each, in order, and one random rule
    found = find_candidates([folder, "actor_critic"], AnalyseConfig(steps=2))
    labels = ["found at 2 (best)", "found at 4", "found at 6", "actor_critic", "random"]
    assert [candidate.label for candidate in found] == labels
    newest = discorl.load_rule(folder / "rule.safetensors").params
    assert all(torch.equal(found[2].rule.params[name], newest[name]) for name in newest)
    assert any(not torch.equal(found[1].rule.params[name], newest[name]) for name in newest)
    # and a checkpoint alone can be named too
    (one, _) = find_candidates([folder / "checkpoints" / "step_00000004"], AnalyseConfig(steps=2))
    assert one.label == "found at 4"
    out = tmp_path / "out"
    assert (
        main(["analyse", str(folder), "--steps", "2", "--only", "closest", "--out", str(out)]) == 0
    )
    rules = {row["rule"] for row in table(out, "closest")}
    assert rules == {*labels} - {"actor_critic"}
    assert f"discorl analyse {folder} " in (out / "README.md").read_text()


# --- robustness


def test_one_thing_at_a_time_is_changed() -> None:
    candidate = find_candidates(["sprout"], AnalyseConfig(steps=50))[0]
    found = variants(candidate.config)
    own = flat_settings(candidate.config)
    assert found[0].settings == {}
    for variant in found:
        assert all(own[name] != value for name, value in variant.settings.items())
    by = {sweep: [v for v in found if v.sweep == sweep] for sweep in SWEEPS}
    assert [v.value for v in by["learning rate"]] == [0.0005, 0.0015, 0.005, 0.015, 0.05]
    assert by["network size"][0].settings == {
        "torso": (16, 16),
        "model_size": 16,
        "head_hidden": 16,
    }
    assert [v.value for v in by["replay share"]] == [0.0, 0.25, 0.5, 0.75]
    # Its own settings are a point of each sweep over numbers
    for sweep in ("learning rate", "network size", "replay share"):
        assert [v for v in by[sweep] if not v.settings]


@pytest.mark.filterwarnings("error:constrained_layout not applied")
def test_robustness_is_a_comparison(
    tiny_rule: DiscoRule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given fewer ways to live, and a rule that has no name
    several = robustness_module.variants

    def few(life):
        return [v for v in several(life) if v.value in (OWN, 0.25, "weight decay 0.1")]

    monkeypatch.setattr(robustness_module, "variants", few)
    # When its robustness is looked at
    out = tmp_path / "out"
    found = discorl.analyse(tiny_rule, out, steps=4, seeds=2, only=["robustness"])
    # Then every way has a row for each seed, and the random rule lives its own way only
    rows = table(out, "robustness")
    ways = {(r["rule"], r["sweep"], r["value"]) for r in rows}
    assert len(rows) == 2 * len(ways)
    assert {(sweep, value) for rule, sweep, value in ways if rule == "random"} == {
        (OWN, OWN),
        ("network size", "0.25"),
        ("replay share", "0.25"),
        ("optimiser", "weight decay 0.1"),
    }
    assert {sweep for rule, sweep, _ in ways if rule == "random #2"} == {OWN}
    settings = {r["settings"] for r in rows if r["value"] == "weight decay 0.1"}
    assert settings == {"weight_decay=0.1"}
    # and the runs are those of `discorl compare`, with the life that agents have here
    summary = read_summary(out / "robustness" / "random")
    returns = [r["final_return"] for r in rows if (r["rule"], r["sweep"]) == ("random", OWN)]
    plain = summary.config.rules[0]
    assert (
        list(map(float, returns)) == summary.groups[plain, summary.config.envs[0]].returns.tolist()
    )
    life = find_candidates([tiny_rule], AnalyseConfig(steps=4))[0].config
    entrant = summary.config.entrants()[0]
    run = summary.config.train_config(entrant, life.env, life.seed)
    assert {**flat_settings(run), "rule": ""} == {**flat_settings(life), "rule": ""}
    sweeps = found["rules"]["random"]["robustness"]
    assert len(sweeps["network size"]["0.25"]["final_returns"]) == 2
    assert (out / "robustness.png").read_bytes()[:4] == b"\x89PNG"
    assert "(robustness.png)" in (out / "README.md").read_text()


# --- mistakes


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("policy_gradient", "'policy_gradient' is neither a discovered rule nor actor_critic"),
        ("actor_critic --only reliance", "--only reliance: these rules read no y and z"),
        ("sprot", "unknown rule 'sprot'. Did you mean sprout"),
        ("sprout --steps 0", "--steps: expected at least 1"),
        ("sprout --env nowhere", "nowhere"),
        ("sprout --only dreams", "dreams"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(
    args: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyse", *args.split(), "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(folder: Path) -> None:
    with pytest.raises(DiscorlError, match="is not empty, and nothing is overwritten"):
        discorl.analyse("actor_critic", folder)


def test_rules_must_be_named() -> None:
    with pytest.raises(DiscorlError, match="name one or more rules"):
        discorl.analyse([], "nowhere")


# --- Disco103


def test_disco103_pushes_an_action_up_by_its_advantage(disco103_path: Path) -> None:
    # Given Disco103 and a newborn agent
    candidate = find_candidates([disco103_path], AnalyseConfig(steps=1))[0]
    subject = make_subject(candidate, lambda *_: None)
    evidence = subject.grown.evidence(steps=8, copies=8)
    # When the advantage of one action is changed, then its push follows
    low, none, high = pushes_at_advantages(subject.rule, evidence, 4, [-1.0, 0.0, 1.0])
    assert low.mean() < none.mean() < high.mean()
