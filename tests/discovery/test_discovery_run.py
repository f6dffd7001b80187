"""Discovery folders: what is in them, how a run resumes, and what a mishap leaves behind."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from discorl.discovery import run as run_module
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.discoverer import AgentReport, Discoverer, MetaStepReport
from discorl.discovery.evaluation import RuleEvaluation, evaluate_rule
from discorl.discovery.records import check_finite, summarise
from discorl.discovery.start import (
    initial_rule,
    read_discovery_config,
    resume_discovery,
    start_discovery,
)
from discorl.errors import DiscorlError, UnknownNameError
from discorl.files import read_json
from discorl.library.catalogue import load_rule, save_rule
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.runs.checkpoint import list_checkpoints, load_latest
from discorl.runs.metrics import read_metrics
from discorl.runs.session import Interrupted, Observer
from discorl.settings import change

ENVS = ("catch:rows=4,columns=3@1.5", "catch:rows=5,columns=5")
SPECS = ["catch:rows=4,columns=3", "catch:rows=5,columns=5"]
PER_AGENT = {"meta_optimiser": "per_agent", "replay_fraction": 0.5, "replay_capacity": 12}


def config(**settings):
    small = {
        "envs": ENVS,
        "meta_steps": 6,
        "agents": 2,
        "num_envs": 4,
        "rollout_length": 5,
        "lifetimes": (4, 8),
        "widths": (8,),
        "model_size": 5,
        "head_hidden": 6,
        "value_torso": (6, 5),
        "sizes": MetaNetworkSizes(predictions=12, hidden=16, meta_hidden=8),
        "log_every": 1,
        "eval_every": 3,
        "eval_steps": 4,
        "checkpoint_every": 2,
    }
    return change(DiscoverConfig(), small | settings)


def last_tensors(folder):
    return load_file(list_checkpoints(folder / "checkpoints")[-1] / "state.safetensors")


def timeless(folder):
    return [
        {k: v for k, v in record.items() if not k.startswith("time/")}
        for record in read_metrics(folder)
    ]


def assert_same_tensors(one, other):
    assert list(one) == list(other)
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def assert_same_end(one, other):
    """Bit-identical last checkpoints, rules and evaluations and, but for the clocks, metrics."""
    assert_same_tensors(last_tensors(one), last_tensors(other))
    assert timeless(one) == timeless(other)
    for name in ("rule.safetensors", "best_rule.safetensors"):
        assert_same_tensors(load_rule(one / name).params, load_rule(other / name).params)
    first, second = (json.loads((f / "evaluations.json").read_text()) for f in (one, other))
    assert first == second


class StopAt(Observer):
    """An observer that sends a signal when a step is logged."""

    def __init__(self, step=None, signum=signal.SIGTERM):
        self.step, self.signum, self.notes = step, signum, []

    def start(self, _title, _steps, notes):
        self.notes += notes

    def progress(self, progress):
        if progress.step == self.step:
            os.kill(os.getpid(), self.signum)

    def message(self, text):
        pass


class Crash(Exception):
    pass


class CrashAt(StopAt):
    """An observer that breaks the run off without a word."""

    def progress(self, progress):
        if progress.step == self.step:
            raise Crash


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Drawing is slow; the run of `whole`, which is made before, has one."""
    monkeypatch.setattr(run_module, "plot_discovery", lambda *_: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, start_discovery(config(), folder)


def test_a_run_folder_has_everything(whole):
    folder, result = whole
    assert DiscoverConfig.from_json(json.loads((folder / "config.json").read_text())) == config()
    assert json.loads((folder / "result.json").read_text()) == result
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert list((folder / "tensorboard").glob("events.out.tfevents.*"))
    names = [p.name for p in list_checkpoints(folder / "checkpoints")]
    assert names == ["step_00000004", "step_00000006"]
    assert [p.name for p in folder.rglob(".*")] == [".lock"]


def test_the_result_says_what_happened(whole):
    folder, result = whole
    assert (result["meta_steps"], result["skipped"], result["processes"]) == (6, 0, 1)
    assert (result["envs"], result["init"], result["seed"]) == (list(ENVS), "random", 0)
    evaluations = json.loads((folder / "evaluations.json").read_text())
    scores = {e["meta_step"]: e["score"] for e in evaluations}
    assert list(scores) == [3, 6]
    assert result["fresh_agents_return"] == scores[6]
    assert result["best_fresh_agents_return"] == max(scores.values())
    assert scores[result["best_meta_step"]] == max(scores.values())


def test_metrics_are_recorded(whole):
    records = read_metrics(whole[0])
    steps = [r for r in records if "meta/meta_loss" in r]
    evaluations = [r for r in records if "eval/fresh_agents" in r]
    assert [r["step"] for r in steps] == [1, 2, 3, 4, 5, 6]
    assert [r["step"] for r in evaluations] == [3, 6]
    for record in steps:
        for env in SPECS:
            assert -1 <= record[f"population/return/{env}"] <= 1
        total = record["meta/pg_loss"] + record["meta/reg_loss"]
        assert record["meta/meta_loss"] == pytest.approx(total, abs=1e-6)
        assert record["meta/skipped"] == 0
    for record in evaluations:
        returns = [record[f"eval/{env}"] for env in SPECS]
        assert record["eval/fresh_agents"] == pytest.approx(sum(returns) / 2)


def test_records_are_means_over_agents():
    rows = [
        {"return": 1.0, "age": 2.0, "finite": 1.0},
        {"return": 0.0, "age": 4.0, "finite": 1.0},
        {"age": 0.0, "finite": 1.0},
    ]
    names = {name.partition("/")[2] for name in summarise_names()}
    filled = [dict.fromkeys(names, 0.5) | row for row in rows]
    filled[2].pop("return", None)
    agents = [AgentReport(e, m) for e, m in zip(["a", "b", "b"], filled, strict=True)]
    record = summarise(MetaStepReport(agents, update_norm=3.0, skipped=0))
    assert record["population/age"] == 2
    # An agent whose episodes have not ended yet says nothing about returns.
    assert record["population/return"] == 0.5
    assert (record["population/return/a"], record["population/return/b"]) == (1, 0)
    assert record["meta/update_norm"] == 3


def summarise_names():
    class Anything(dict):
        def __missing__(self, name):
            return 0.5

    report = MetaStepReport([AgentReport("x", Anything({"return": 1.0}))], 0.0, 0)
    return [name for name in summarise(report) if "x" not in name.split("/")]


def test_the_best_rule_is_kept_with_its_provenance(whole, tmp_path):
    folder, result = whole
    rule = load_rule(folder / "best_rule.safetensors")
    assert rule.name == "run"
    assert "discovered from random by discorl" in rule.provenance["origin"]
    assert int(rule.provenance["meta_steps"]) == result["best_meta_step"]
    assert DiscoverConfig.from_json(json.loads(rule.provenance["config"])) == config()
    evaluation = json.loads(rule.provenance["evaluation"])
    assert evaluation["score"] == result["best_fresh_agents_return"]
    assert sorted(a["env"] for a in evaluation["agents"]) == SPECS
    # The newest rule is the checkpoint's.
    newest = load_rule(folder / "rule.safetensors")
    tensors = last_tensors(folder)
    for name, param in newest.params.items():
        assert torch.equal(param, tensors[f"rule/{name}"])
    assert newest.provenance["meta_steps"] == "6"
    # In the published format, too.
    save_rule(newest, tmp_path / "mine.npz")
    assert_same_tensors(load_rule(tmp_path / "mine.npz").params, newest.params)


def test_a_later_and_worse_rule_is_not_the_best(tmp_path, monkeypatch):
    scores = iter([0.25, 0.75, 0.5])

    def evaluate(_rule, _config, env, seeds, index, watch):
        return [
            RuleEvaluation(env, seed, 1, final_return=next(scores), mean_return=0.0, curve=[])
            for seed in seeds
        ]

    monkeypatch.setattr(run_module, "evaluate_agents", evaluate)
    settings = config(envs=SPECS[:1], meta_steps=3, eval_every=1, agents=1)
    result = start_discovery(settings, tmp_path / "run")
    assert (result["best_meta_step"], result["best_fresh_agents_return"]) == (2, 0.75)
    assert result["fresh_agents_return"] == 0.5
    assert load_rule(tmp_path / "run" / "best_rule.safetensors").provenance["meta_steps"] == "2"
    assert load_rule(tmp_path / "run" / "rule.safetensors").provenance["meta_steps"] == "3"


def test_evaluation_is_on_fresh_agents(whole):
    """From birth, with the rule held fixed, and again the same for the same rule."""
    rule = load_rule(whole[0] / "best_rule.safetensors")
    before = {name: p.clone() for name, p in rule.params.items()}
    found = [evaluate_rule(rule, config(), SPECS[0]) for _ in range(2)]
    assert found[0] == found[1]
    assert [step for step, _ in found[0].curve] == [1, 2, 3, 4]
    assert found[0].final_return == found[0].curve[-1][1]
    assert_same_tensors(rule.params, before)
    saved = json.loads(rule.provenance["evaluation"])
    (own,) = [a for a in saved["agents"] if a["env"] == SPECS[0]]
    assert own == {"env": SPECS[0], "steps": 4, "final_return": found[0].final_return}
    # Others learn from other experience.
    assert evaluate_rule(rule, config(), SPECS[0], seed=1).curve != found[0].curve
    # A long life is not written down step by step.
    long = evaluate_rule(rule, config(eval_steps=30), SPECS[0], points=4)
    assert [step for step, _ in long.curve] == [7, 14, 21, 28, 30]


def test_evaluations_do_not_change_the_run(whole, tmp_path):
    start_discovery(config(eval_every=0), tmp_path / "run")
    assert_same_tensors(last_tensors(whole[0]), last_tensors(tmp_path / "run"))
    records = [r for r in read_metrics(tmp_path / "run") if "eval/fresh_agents" in r]
    assert [r["step"] for r in records] == [6]


def test_the_config_reproduces_the_run(whole, tmp_path):
    start_discovery(read_discovery_config(whole[0]), tmp_path / "again")
    assert_same_end(whole[0], tmp_path / "again")


def test_another_seed_is_another_run(whole, tmp_path):
    start_discovery(config(seed=1), tmp_path / "run")
    assert timeless(tmp_path / "run") != timeless(whole[0])


class StopInEvaluation(StopAt):
    """An observer that sends a signal when an evaluation begins."""

    def message(self, text):
        if text.startswith("evaluating"):
            os.kill(os.getpid(), self.signum)


def test_a_signal_during_the_last_evaluation_is_not_lost(tmp_path):
    with pytest.raises(Interrupted):
        start_discovery(config(eval_every=0), tmp_path / "run", StopInEvaluation())
    result = resume_discovery(tmp_path / "run")
    assert result["meta_steps"] == config().meta_steps


@pytest.mark.parametrize(("signum", "step"), [(signal.SIGINT, 3), (signal.SIGTERM, 6)])
def test_a_signal_stops_with_a_checkpoint_and_the_run_resumes_exactly(
    whole, tmp_path, signum, step
):
    before = signal.getsignal(signal.SIGINT)
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        start_discovery(config(), folder, StopAt(step, signum))
    newest = list_checkpoints(folder / "checkpoints")[-1].name
    assert newest == f"step_{step:08d}"
    observer = StopAt()
    resume_discovery(folder, observer=observer)
    assert any("resuming from meta-step" in note for note in observer.notes)
    assert_same_end(whole[0], folder)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("settings", "step"),
    [({}, 1), ({}, 5), (PER_AGENT, 3)],
)
def test_a_broken_off_run_resumes_exactly(whole, tmp_path, settings, step):
    folder, expected = tmp_path / "run", whole[0]
    if settings:
        expected = tmp_path / "whole"
        start_discovery(config(**settings), expected)
    with pytest.raises(Crash):
        start_discovery(config(**settings), folder, CrashAt(step))
    assert read_metrics(folder)[-1]["step"] == step
    found = load_latest(folder / "checkpoints")
    assert (found.step if found else 0) == step - step % 2
    resume_discovery(folder)
    assert_same_end(expected, folder)


def test_a_cut_last_line_of_metrics_is_dropped(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_discovery(config(), folder, CrashAt(3))
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 4, "meta/me')
    resume_discovery(folder)
    assert_same_end(whole[0], folder)


def test_a_checkpoint_whose_values_are_damaged_is_said(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    for path in folder.glob("checkpoints/*/meta.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"values": {"skipped": None}}))
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(DiscorlError, match="does not fit this run"):
        resume_discovery(folder)
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", ["flip", "meta"])
def test_a_damaged_newest_checkpoint_is_passed_over(whole, tmp_path, damage):
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_discovery(config(), folder, CrashAt(5))
    newest = list_checkpoints(folder / "checkpoints")[-1]
    path = newest / "state.safetensors"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        (newest / "meta.json").unlink()
    with pytest.warns(UserWarning, match=r"step_00000004.*trying the checkpoint before"):
        resume_discovery(folder)
    assert_same_end(whole[0], folder)


def test_more_meta_steps_can_be_asked_for(whole, tmp_path):
    folder = tmp_path / "run"
    start_discovery(config(meta_steps=3), folder)
    assert resume_discovery(folder, meta_steps=6)["meta_steps"] == 6
    assert read_discovery_config(folder).meta_steps == 6
    assert_same_tensors(last_tensors(whole[0]), last_tensors(folder))


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path):
    folder = tmp_path / "run"
    result = start_discovery(config(), folder)
    assert resume_discovery(folder) == result
    assert_same_end(whole[0], folder)


def test_a_run_may_end_where_it_was_stopped(tmp_path):
    """Told to end at a step that had no evaluation, it makes up for it."""
    folder = tmp_path / "run"
    with pytest.raises(Crash):
        start_discovery(config(eval_every=0), folder, CrashAt(5))
    result = resume_discovery(folder, meta_steps=4)
    assert (result["meta_steps"], result["best_meta_step"]) == (4, 4)
    assert read_metrics(folder)[-1]["eval/fresh_agents"] == result["fresh_agents_return"]


def test_a_schedule_fixes_the_number_of_meta_steps(tmp_path):
    start_discovery(
        config(meta_steps=2, agents=1, meta_learning_rate_schedule="cosine"), tmp_path / "run"
    )
    with pytest.raises(DiscorlError, match="cannot be extended"):
        resume_discovery(tmp_path / "run", meta_steps=4)
    assert read_discovery_config(tmp_path / "run").meta_steps == 2


def test_fine_tuning_begins_exactly_with_the_rule(tiny_rule, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_rule(tiny_rule, path)
    settings = config(init=str(path), meta_steps=4, meta_learning_rate=1e-30)
    rule = initial_rule(settings)
    assert rule.config == tiny_rule.config
    assert_same_tensors(Discoverer(settings, rule).rule.params, tiny_rule.params)
    # At a learning rate that moves nothing it stays that rule.
    start_discovery(settings, tmp_path / "still")
    still = load_rule(tmp_path / "still" / "rule.safetensors")
    for name, param in tiny_rule.params.items():
        torch.testing.assert_close(still.params[name], param, rtol=0, atol=1e-25)
    assert still.config == tiny_rule.config
    assert f"discovered from {path}" in still.provenance["origin"]


def test_fine_tuning_knows_what_it_began_with(tiny_rule, tmp_path):
    save_rule(tiny_rule, tmp_path / "rule.safetensors")
    settings = config(init=str(tmp_path / "rule.safetensors"), meta_steps=2)
    start_discovery(settings, tmp_path / "run")
    steps = [e["meta_step"] for e in read_json(tmp_path / "run" / "evaluations.json")]
    assert steps == [0, 2]


def test_fine_tuning_resumes_without_the_file_it_began_with(tiny_rule, tmp_path):
    path = tmp_path / "mine.safetensors"
    save_rule(tiny_rule, path)
    settings = config(init=str(path), meta_steps=4)
    start_discovery(settings, tmp_path / "whole")
    with pytest.raises(Crash):
        start_discovery(settings, tmp_path / "run", CrashAt(3))
    path.unlink()
    resume_discovery(tmp_path / "run")
    assert_same_end(tmp_path / "whole", tmp_path / "run")


def test_only_discovered_rules_can_be_tuned(tmp_path):
    with pytest.raises(DiscorlError, match="rule 'actor_critic' has no parameters: it is code"):
        start_discovery(config(init="actor_critic"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_environment_or_rule_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean catch"):
        start_discovery(config(envs=("catsh",)), tmp_path / "run")
    with pytest.raises(DiscorlError):
        start_discovery(config(init="no_such_rule"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_not_overwritten(whole):
    before = (whole[0] / "config.json").read_bytes()
    with pytest.raises(DiscorlError, match=r"already holds a discovery.*discorl resume"):
        start_discovery(config(seed=1), whole[0])
    assert (whole[0] / "config.json").read_bytes() == before


def test_a_folder_without_a_run_is_said(tmp_path):
    with pytest.raises(DiscorlError, match=r"holds no run: there is no config\.json"):
        resume_discovery(tmp_path)
    for text, message in (("{", "cannot be read"), ("[]", "expected an object of settings")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DiscorlError, match=message):
            resume_discovery(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"meta_steps": 0}, "--meta-steps: expected at least 1"),
        ({"agents": 0}, "--agents: expected at least 1"),
        ({"inner_steps": 0}, "--inner-steps: expected at least 1"),
        ({"rollout_length": 1}, "--rollout-length: expected at least 2"),
        ({"envs": ()}, "--envs: expected one or more"),
        ({"lifetimes": (1, 8)}, "--lifetimes: expected at least --inner-steps"),
        ({"replay_fraction": 1.5}, "--replay-fraction: expected a number from 0 to 1"),
        (
            {"replay_capacity": 3, "replay_fraction": 0.5},
            r"--replay-capacity 3: expected room for a batch \(4\) and for one rollout \(4\)",
        ),
        ({"torso": ()}, "--torso: expected one or more positive sizes"),
        ({"widths": (8, 0)}, "--widths: expected at least 1"),
        ({"memory": "gru", "burn_in": 2}, "--burn-in: agents of a population have none"),
        ({"replay_ratio": 2}, "--replay-ratio: agents of a population update once"),
        ({"value_torso": ()}, "--value-torso: expected one or more positive sizes"),
        ({"learning_rate": 0.0}, "--learning-rate: expected a positive number"),
        ({"meta_learning_rate": math.nan}, "--meta-learning-rate: expected a number"),
        ({"meta_clip": 0.0}, "--meta-clip: expected a positive number"),
        ({"keep_checkpoints": 0}, "--keep-checkpoints: expected at least 1"),
    ],
)
def test_settings_out_of_range_are_said(settings, message):
    with pytest.raises(DiscorlError, match=message):
        config(**settings)


def test_a_config_survives_json():
    settings = config(lifetimes=(5, 50), widths=(8, 16), meta_clip=1.0, value_width=2.0)
    assert DiscoverConfig.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_damaged_settings_are_said():
    values = config().to_json()
    with pytest.raises(UnknownNameError, match="unknown discovery setting 'agent'"):
        DiscoverConfig.from_json(values | {"agent": 3})
    for damage, message in (
        ({"agents": "many"}, "--agents: expected a whole number, got 'many'"),
        ({"widths": 3}, "--widths: expected several values, got 3"),
        ({"prediction_embedding": [16]}, "--prediction-embedding: expected 2 values"),
        ({"sizes": {"bins": 1}}, "unknown discovery setting 'bins'"),
        ({"sizes": 4}, "--sizes: expected several settings, got 4"),
    ):
        with pytest.raises(DiscorlError, match=message):
            DiscoverConfig.from_json(values | damage)


def test_a_metric_that_is_not_finite_stops_the_run_before_a_checkpoint(tmp_path, monkeypatch):
    plain = Discoverer.meta_step

    def meta_step(self):
        report = plain(self)
        if self.step == 4:
            report.agents[0].metrics["inner_loss"] = math.nan
        return report

    monkeypatch.setattr(Discoverer, "meta_step", meta_step)
    with pytest.raises(DiscorlError, match="losses/inner_loss is not finite at meta-step 4"):
        start_discovery(config(log_every=6), tmp_path / "run")
    assert load_latest(tmp_path / "run" / "checkpoints").step == 2


def test_the_metrics_of_a_skipped_agent_do_not_stop_the_run(tmp_path, monkeypatch):
    plain = Discoverer.meta_step

    def meta_step(self):
        report = plain(self)
        if self.step == 2:
            report.agents[0].metrics["grad_norm"] = math.nan
            self.skipped += 1
            report = replace(report, skipped=1)
        return report

    monkeypatch.setattr(Discoverer, "meta_step", meta_step)
    result = start_discovery(config(meta_steps=4), tmp_path / "run")
    assert result["skipped"] == 1
    records = [r for r in read_metrics(tmp_path / "run") if "meta/meta_loss" in r]
    assert [r["meta/skipped"] for r in records] == [0, 1, 1, 1]
    assert ["meta/grad_norm" in r for r in records] == [True, False, True, True]
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_check_finite_is_silent_on_sound_reports(tiny_rule):
    settings = config(agents=1)
    check_finite(summarise(Discoverer(settings, tiny_rule).meta_step()), 0, 1)


def test_a_run_in_which_no_episode_ends_ends_well(tmp_path):
    """The population has no return; the evaluation plays long enough to have one."""
    settings = config(envs=("catch:rows=31,columns=3",), meta_steps=1, agents=1, eval_steps=8)
    result = start_discovery(settings, tmp_path / "run")
    assert -1 <= result["fresh_agents_return"] <= 1


def test_the_default_settings_are_the_notebooks():
    settings = DiscoverConfig()
    assert settings.envs == ("catch:rows=5,columns=5",)
    assert (settings.agents, settings.inner_steps, settings.meta_steps) == (2, 2, 800)
    assert (settings.num_envs, settings.rollout_length) == (32, 16)
    assert (settings.torso, settings.widths) == ((512, 512), ())
    assert settings.life.experience.shares == (32, 0)
    assert (settings.model_size, settings.head_hidden) == (256, 256)
    assert (settings.learning_rate, settings.meta_learning_rate) == (5e-4, 5e-4)
    assert settings.value.value_torso == (256, 256)
