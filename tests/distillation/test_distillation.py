"""Distillation: what a student is asked for, how a run goes, and what it leaves behind."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import discorl
from discorl.cli.__main__ import main
from discorl.distillation import run as run_module
from discorl.distillation.config import DistilConfig
from discorl.distillation.merging import Groups, cluster, find_merging
from discorl.distillation.run import initial_student, make_distiller, start_distillation
from discorl.errors import DiscorlError
from discorl.outputs import AgentOutputs
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.runs.checkpoint import list_checkpoints
from discorl.runs.metrics import read_metrics
from discorl.runs.session import Interrupted, Observer
from discorl.settings import change

ENVS = ("catch:rows=4,columns=3", "family:bandit")
SMALL = {
    "envs": ENVS,
    "agents": 2,
    "inner_steps": 2,
    "num_envs": 4,
    "rollout_length": 5,
    "batch_size": 4,
    "replay_capacity": 8,
    "lifetimes": (4, 8),
    "student_rise": 2,
    "torso": (8,),
    "model_size": 5,
    "head_hidden": 6,
    "meta_steps": 4,
    "log_every": 1,
    "eval_steps": 3,
    "eval_every": 2,
    "checkpoint_every": 2,
}


def sizes_of(teacher, **changes):
    return {"sizes": replace(teacher.config.sizes, **changes)}


def config(**settings):
    return change(DistilConfig(), SMALL | settings)


def losses(distiller, steps):
    found = []
    for _ in range(steps):
        agents = distiller.meta_step().agents
        found.append([agent.metrics["loss"] for agent in agents])
    return found


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Drawing is slow; one test asks for it."""
    monkeypatch.setattr(run_module, "plot_distillation", lambda *_: None)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(tiny_rule, share):
    settings = config(float64=True, student_share=share, student_rise=0, **sizes_of(tiny_rule))
    student = initial_student(settings, tiny_rule)
    for name, tensor in tiny_rule.params.items():
        assert torch.equal(student.params[name], tensor)
    for row in losses(make_distiller(settings, tiny_rule, student), 3):
        assert row == pytest.approx([0.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("init", ["teacher", "random"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_smaller_student_comes_nearer_to_its_teacher(tiny_rule, share, init):
    # A random rule asks for next to nothing: its gate is closed.
    opened = {"gate.b": torch.ones(16), "y_target.b": torch.linspace(-2, 2, 12)}
    teacher = tiny_rule.with_params(tiny_rule.params | opened)
    settings = config(
        float64=True,
        init=init,
        student_share=share,
        student_rise=0,
        meta_learning_rate=1e-2,
        lifetimes=(),
        **sizes_of(teacher, hidden=8, meta_hidden=4, predictions=6),
    )
    found = losses(make_distiller(settings, teacher, initial_student(settings, teacher)), 12)
    before, after = sum(found[0]), sum(found[-1])
    assert 0 < after < 0.7 * before


def test_gradients_reach_back_through_the_students_memory(tiny_rule):
    """The gate reads a memory that is empty at birth: without the step before, it gets none."""
    wanted = sizes_of(tiny_rule, hidden=8)
    norms = {}
    for steps in (1, 2):
        settings = config(inner_steps=steps, agents=1, envs=ENVS[:1], **wanted)
        student = initial_student(settings, tiny_rule)
        member = make_distiller(settings, tiny_rule, student).members[0]
        grads = member.meta_step(student).grads
        norms[steps] = float(grads["meta.lstm.w"].abs().sum())
    assert norms[1] == 0
    assert norms[2] > 0


def test_bins_that_a_rule_reads_alike_can_be_one(tiny_rule):
    """If bins come in equal pairs, the teacher cannot tell the merged from the original."""
    pairs = torch.arange(12) // 2
    params = dict(tiny_rule.params)
    for name in ("y_net.0.w", "z_net.0.w", "meta.y_net.0.w", "meta.z_net.0.w"):
        params[name] = params[name][::2][pairs]
    teacher = tiny_rule.with_params(params).to(torch.float64)
    merging = find_merging(teacher, 6)
    for groups in (merging.y, merging.z):
        assert groups.sizes.tolist() == [2] * 6
        assert all(len(set(groups.of_bin[2 * i : 2 * i + 2].tolist())) == 1 for i in range(6))
    generator = torch.Generator().manual_seed(0)
    outputs = AgentOutputs(
        {"y": torch.randn(3, 2, 12, generator=generator, dtype=torch.float64)},
        {"z": torch.randn(3, 2, 4, 12, generator=generator, dtype=torch.float64)},
    )
    again = merging.spread(merging.merge(outputs))
    for old, new, net in [
        (outputs.state["y"], again.state["y"], "y_net"),
        (outputs.action["z"], again.action["z"], "z_net"),
    ]:
        for prefix in ("", "meta."):
            weights = params[f"{prefix}{net}.0.w"].double()
            read = [torch.softmax(x, dim=-1) @ weights for x in (old, new)]
            torch.testing.assert_close(read[0], read[1])
    # And a student that reads the groups' mean rows reads the same.
    student = initial_student(config(**sizes_of(teacher, predictions=6)), teacher)
    merged = torch.softmax(merging.merge(outputs).state["y"], dim=-1)
    found = merged @ student.params["y_net.0.w"].double()
    expected = torch.softmax(outputs.state["y"], dim=-1) @ params["y_net.0.w"].double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_merged_bins_are_summed_and_spread_evenly():
    groups = Groups.of(torch.tensor([0, 1, 0, 2]))
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    merged = groups.merge(logits)
    torch.testing.assert_close(merged.exp(), torch.tensor([0.4, 0.2, 0.4]))
    spread = torch.softmax(groups.spread(merged), dim=-1)
    torch.testing.assert_close(spread, torch.tensor([0.2, 0.2, 0.2, 0.4]))


@pytest.mark.parametrize("points", [torch.zeros(7, 2), torch.randn(40, 3)])
def test_no_cluster_is_empty(points):
    for count in (1, 2, 5, 7):
        assert len(cluster(points.double(), count).unique()) == count


def last_tensors(folder):
    return load_file(list_checkpoints(folder / "checkpoints")[-1] / "state.safetensors")


def timeless(folder):
    return [
        {k: v for k, v in record.items() if not k.startswith("time/")}
        for record in read_metrics(folder)
    ]


def assert_same_end(one, other):
    """Bit for bit: checkpoints, rules, evaluations and, but for the clocks, metrics."""
    first, second = last_tensors(one), last_tensors(other)
    assert list(first) == list(second)
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert timeless(one) == timeless(other)
    for name in ("rule.safetensors", "best_rule.safetensors"):
        rules = [discorl.load_rule(folder / name).params for folder in (one, other)]
        assert all(torch.equal(tensor, rules[1][key]) for key, tensor in rules[0].items())
    for name in ("evaluations.json", "teacher_evaluation.json"):
        assert (one / name).read_text() == (other / name).read_text()


class StopAt(Observer):
    """An observer that sends a signal when a step is logged."""

    def __init__(self, step):
        self.step = step

    def progress(self, progress):
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def wanted(tiny_rule):
    return {**SMALL, **sizes_of(tiny_rule, hidden=8, meta_hidden=4, predictions=6)}


@pytest.fixture(scope="module")
def whole(tiny_rule, wanted, tmp_path_factory):
    """An uninterrupted run."""
    return discorl.distil(tiny_rule, tmp_path_factory.mktemp("distil") / "run", **wanted)


def test_a_run_folder_has_everything(whole, tiny_rule):
    assert whole["meta_steps"] == 4
    assert whole["parameters"] < whole["teacher_parameters"]
    assert (whole.folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert whole.config.sizes.hidden == 8
    for name, tensor in whole.teacher.params.items():
        assert torch.equal(tensor, tiny_rule.params[name])
    records = read_metrics(whole.folder)
    steps = [r for r in records if "distil/loss" in r]
    assert [r["step"] for r in steps] == [1, 2, 3, 4]
    for record in steps:
        parts = [record[f"distil/{name}_kl"] for name in ("policy", "y", "z")]
        assert record["distil/loss"] == pytest.approx(sum(parts))
    assert {r["step"] for r in records if "eval/fresh_agents" in r} == {0, 2, 4}
    assert isinstance(discorl.load_run(whole.folder), discorl.Distillation)


def test_every_metric_is_explained(whole):
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    names = {name for record in whole.metrics for name in record} | set(whole)
    for env in ENVS:
        names = {name.replace(env, "ENV") for name in names}
    names = {
        re.sub("(teacher|student)_led$", "LEADER", n) if n.count("/") > 1 else n for n in names
    }
    assert names <= set(re.findall(r"`([^`\n]+)`", page))


def test_the_student_says_where_it_comes_from(whole, tiny_rule):
    provenance = whole.best_rule.provenance
    assert "distilled from random by discorl" in provenance["origin"]
    assert provenance["teacher_origin"] == tiny_rule.provenance["origin"]
    assert DistilConfig.from_json(json.loads(provenance["config"])) == whole.config
    assert whole.best_rule.config.sizes == whole.config.sizes


def test_what_is_said_of_a_published_teacher(whole, tiny_rule, wanted, tmp_path):
    known = {"origin": "Elsewhere", "licence": "CC BY 4.0", "paper": "A. Author", "sha256": "00"}
    teacher = replace(tiny_rule, name="theirs", provenance=known)
    run = discorl.distil(teacher, tmp_path / "run", **wanted | {"meta_steps": 1, "eval_every": 0})
    for steps in (1, 2):  # Also when it is resumed, with a copy of the teacher.
        run.resume(steps)
        provenance = run.rule.provenance
        assert provenance["meta_steps"] == str(steps)
        assert provenance["teacher"] == "theirs"
        for name, text in known.items():
            assert provenance[f"teacher_{name}"] == text


@pytest.mark.parametrize("step", [1, 3])
def test_a_stopped_run_resumes_exactly(whole, tiny_rule, tmp_path, step):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        start_distillation(whole.config, folder, StopAt(step), teacher=tiny_rule)
    discorl.load_run(folder).resume()
    assert_same_end(whole.folder, folder)


def test_what_cannot_be_distilled_is_said(tiny_rule, tmp_path):
    for teacher, settings, message in [
        ("actor_critic", {}, "not a discovered rule"),
        ("disco13", {}, "Did you mean"),
        (tiny_rule, {"predictions": 13}, "--predictions 13: the teacher has 12"),
        (tiny_rule, {"predictions": 6, "init": "sprout"}, "--init sprout"),
        (tiny_rule, {"student_share": 2}, "--student-share"),
        (tiny_rule, {"policy_weight": 0, "y_weight": 0, "z_weight": 0}, "above zero"),
        (tiny_rule, {"value_torso": (4,)}, "value_torso"),
    ]:
        with pytest.raises(DiscorlError, match=message):
            discorl.distil(teacher, tmp_path / "run", **SMALL | settings)
        assert not (tmp_path / "run").exists()


def test_the_command(tiny_rule, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    teacher, folder = tmp_path / "teacher.safetensors", tmp_path / "run"
    discorl.save_rule(tiny_rule, teacher)
    names = [n for n in SMALL if n not in ("envs", "meta_steps")]
    flags = ["--envs", *ENVS, "--predictions", "6", "--hidden", "8", "--meta-hidden", "4"]
    for name in names:
        value = SMALL[name]
        values = value if isinstance(value, tuple) else (value,)
        flags += [f"--{name.replace('_', '-')}", *map(str, values)]
    code = main(["distil", str(teacher), *flags, "--meta-steps", "1", "--out", str(folder)])
    out = capsys.readouterr().out
    assert code == 0
    assert f"distilling {teacher}, seed 0" in out
    assert f"discorl train catch --rule {folder}/best_rule.safetensors" in out
    teacher.unlink()  # The run keeps a copy.
    assert main(["resume", str(folder), "--steps", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["meta_steps"] == 2
    assert main(["plot", str(folder), "--out", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").exists()
    assert main(["distil", "--resume", str(folder), "--hidden", "4"]) == 2
    assert "drop --hidden" in capsys.readouterr().err


def test_the_defaults_fit_disco103():
    sizes = DistilConfig().sizes
    most = MetaNetworkSizes()
    assert sizes.predictions < most.predictions
    assert sizes.hidden <= most.hidden
