"""Evolution strategies: the estimate, its pairs of lives, and the runs that learn by it."""

import json
import math
from contextlib import ExitStack

import pytest
import torch

from discorl.discovery import evolution
from discorl.discovery import run as run_module
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.evolution import (
    EVOLUTION_METRICS,
    Place,
    antithetic_gradient,
    on_own_scale,
)
from discorl.discovery.records import summarise
from discorl.discovery.start import make_discoverer, resume_discovery, start_discovery
from discorl.distillation.config import DistilConfig
from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule, save_rule
from discorl.runs.checkpoint import load_latest
from discorl.runs.metrics import read_metrics
from discorl.settings import change
from discorl.tree import flatten

ENV = "catch:rows=3,columns=3"


def config(**settings):
    small = {
        "meta_optimiser": "es",
        "envs": (ENV,),
        "agents": 1,
        "num_envs": 4,
        "rollout_length": 4,
        "widths": (8,),
        "model_size": 5,
        "head_hidden": 6,
        "learning_rate": 0.1,
        "es_pairs": 2,
        "es_lifetime": 4,
        "es_sigma": 0.5,
    }
    return change(DiscoverConfig(), small | settings)


def begun(place, rule):
    """The lives of a meta-step in which no perturbation changes anything."""
    with ExitStack() as open_lives:
        return place._begin_lives([rule] * 4, open_lives)


def assert_same(one, other):
    assert list(one) == list(other)
    assert [name for name, tensor in one.items() if not torch.equal(tensor, other[name])] == []


class TestEstimate:
    def test_it_is_the_gradient_of_a_quadratic(self):
        """Of f(x) = b x - x A x / 2 at x = 0 the gradient is b, and every pair measures its part
        along the noise exactly: only the sampling of directions errs."""
        pairs, sigma = 20_000, 0.3
        generator = torch.Generator().manual_seed(0)
        slope = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, -0.25], dtype=torch.float64)
        half = torch.randn(6, 6, generator=generator, dtype=torch.float64)
        drawn = torch.randn(pairs, 6, generator=generator, dtype=torch.float64)
        points = sigma * torch.stack([drawn, -drawn])
        fitness = points @ slope - ((points @ half) ** 2).sum(dim=-1) / 2
        noise = {"a": drawn[:, :4].reshape(pairs, 2, 2), "b": drawn[:, 4:]}
        found = antithetic_gradient(noise, fitness, sigma)
        assert found["a"].shape == (2, 2)
        error = torch.cat([found["a"].flatten(), found["b"]]) - slope
        deviation = ((slope.square().sum() + slope.square()) / pairs).sqrt()
        assert (error.abs() < 4 * deviation).all()

    def test_every_environment_counts_alike(self):
        fitness = torch.tensor([[1.0, 3.0, 2.0], [0.0, 5.0, 2.5]], dtype=torch.float64)
        torch.testing.assert_close(on_own_scale(100 * fitness), on_own_scale(fitness))
        assert float(on_own_scale(fitness).std(correction=0)) == pytest.approx(1)

    def test_where_all_lives_go_alike_there_is_nothing_to_learn(self):
        assert not on_own_scale(torch.full((2, 3), 0.1)).any()

    def test_a_life_without_a_fitness_makes_the_estimate_no_number(self):
        fitness = on_own_scale(torch.tensor([[0.1, torch.nan], [0.2, 0.3]]))
        assert antithetic_gradient({"a": torch.ones(2, 1)}, fitness, 0.1)["a"].isnan().all()


class TestPairs:
    def test_a_pair_is_born_alike_and_pairs_differ(self, tiny_rule):
        place = Place(config(), 0, ENV, tiny_rule)
        plus, other, minus, _ = lives = begun(place, tiny_rule)
        assert_same(flatten(plus.state_dict()), flatten(minus.state_dict()))
        assert not torch.equal(plus.mind.generator.get_state(), other.mind.generator.get_state())
        rollouts = [life.act(30) for life in lives]
        assert_same(flatten(rollouts[0]), flatten(rollouts[2]))
        assert not torch.equal(rollouts[0].observations, rollouts[1].observations)

    def test_without_a_perturbation_both_live_the_same_life(self, tiny_rule):
        place = Place(config(es_sigma=1e-30), 0, ENV, tiny_rule)
        verdict = place.meta_step(tiny_rule)
        assert float(verdict.metrics["pair_difference"]) == 0
        assert float(verdict.metrics["fitness_spread"]) > 0
        assert not any(grad.any() for grad in verdict.grads.values())

    def test_with_one_they_do_not(self, tiny_rule):
        verdict = Place(config(), 0, ENV, tiny_rule).meta_step(tiny_rule)
        assert float(verdict.metrics["pair_difference"]) > 0
        assert any(grad.any() for grad in verdict.grads.values())

    def test_in_a_family_all_lives_of_a_meta_step_have_the_same_member(self, tiny_rule):
        place = Place(config(), 0, "family:grid", tiny_rule)
        members = []
        for _ in range(3):
            (name,) = {life.source.name for life in begun(place, tiny_rule)}
            members.append(name)
            place.be_born()
        assert len(set(members)) == 3

    def test_a_life_is_judged_by_its_whole_learning_curve(self, tiny_rule, monkeypatch):
        """The mean over updates, from the first ended episode on: learning sooner counts."""
        place = Place(config(es_lifetime=3), 0, ENV, tiny_rule)
        returns = iter([float("nan"), -1, -1, 1, -1, 1, 1, 1, -1, 1, 0, 1])

        class Told:
            def mean_return(self):
                return next(returns)

        lives = begun(place, tiny_rule)
        for life in lives:
            life.episodes = Told()
        monkeypatch.setattr(place, "_learn", lambda *_: [{"total_loss": torch.ones(())}])
        monkeypatch.setattr(place, "_begin_lives", lambda *_: lives)
        heard = []
        monkeypatch.setattr(evolution, "on_own_scale", lambda f: heard.append(f) or f)
        place.meta_step(tiny_rule)
        torch.testing.assert_close(heard, [torch.tensor([[-1, 1 / 3], [0, 1]]).double()])

    def test_lives_that_end_no_episode_have_no_fitness(self, tiny_rule):
        place = Place(config(rollout_length=2, es_lifetime=1), 0, "catch", tiny_rule)
        with pytest.raises(DiscorlError, match="--es-lifetime 1: no episode ended in 'catch'"):
            place.meta_step(tiny_rule)

    def test_a_perturbation_that_breaks_an_agent_does_not_end_the_run(self, tiny_rule):
        discoverer = make_discoverer(config(es_sigma=1e30), tiny_rule)
        record = summarise(discoverer.meta_step(), EVOLUTION_METRICS)
        assert math.isfinite(record["meta/fitness"])
        assert all(torch.isfinite(p).all() for p in discoverer.rule.params.values())

    def test_stacked_they_are_who_they_are_alone(self, tiny_rule):
        loop, stacked = (
            make_discoverer(config(float64=True, stacked=stacked, envs=("family:bandit",)), rule)
            for stacked, rule in ((False, tiny_rule), (True, tiny_rule))
        )
        one, other = loop.meta_step(), stacked.meta_step()
        assert one.agents[0].metrics["pair_difference"] > 0
        assert one.agents[0].metrics == pytest.approx(other.agents[0].metrics, abs=1e-10)
        torch.testing.assert_close(loop.rule.params, stacked.rule.params, rtol=0, atol=1e-10)


def test_the_rule_climbs(tiny_rule, monkeypatch):
    """Where lives go the better the nearer their rule is to another, the rule goes there."""
    goal = {name: p + 0.1 for name, p in tiny_rule.params.items()}

    def distance(params):
        return sum((params[n] - p).square().flatten(-p.dim()).sum(-1) for n, p in goal.items())

    def live(_place, _lives, params):
        return -distance(params)[None].double(), {"total_loss": torch.zeros(())}

    monkeypatch.setattr(Place, "_begin_lives", lambda *_: [])
    monkeypatch.setattr(Place, "_live", live)
    settings = config(agents=2, es_pairs=64, es_sigma=0.01, meta_learning_rate=0.01)
    discoverer = make_discoverer(settings, tiny_rule)
    for _ in range(12):
        discoverer.meta_step()
    assert float(distance(discoverer.rule.params)) < 0.9 * float(distance(tiny_rule.params))


class TestRuns:
    @pytest.fixture(autouse=True)
    def no_pictures(self, monkeypatch):
        monkeypatch.setattr(run_module, "plot_discovery", lambda *_: None)

    @staticmethod
    def settings(**others):
        own = {"envs": ("family:bandit", ENV), "agents": 2, "stacked": True, "es_pairs": 1}
        times = {"meta_steps": 3, "log_every": 1, "eval_every": 2, "eval_steps": 2}
        return config(**own | times | others)

    def test_a_run_tells_and_resumes_to_the_bit(self, tiny_rule, tmp_path):
        origin, whole, halves = (tmp_path / n for n in ("rule.safetensors", "whole", "halves"))
        save_rule(tiny_rule, origin)
        result = start_discovery(self.settings(init=str(origin)), whole)
        start_discovery(self.settings(init=str(origin)), halves, callbacks=[self._at_two])
        resume_discovery(halves)
        # To the bit, whatever is kept.
        one, other = (load_latest(folder / "checkpoints") for folder in (whole, halves))
        assert one.step == other.step == 3
        assert_same(one.tensors, other.tensors)
        texts = [(folder / "evaluations.json").read_text() for folder in (whole, halves)]
        first, second = map(json.loads, texts)
        assert [e for e in second if e in first] == first
        # From the given rule, which is scored first, to another.
        assert [e["meta_step"] for e in first] == [0, 2, 3]
        assert result["best_meta_step"] in (0, 2, 3)
        begun, ended = load_rule(origin).params, load_rule(whole / "rule.safetensors").params
        assert any(not torch.equal(p, ended[name]) for name, p in begun.items())
        # With its own metrics in place of the meta-loss.
        records = [r for r in read_metrics(whole) if "meta/fitness" in r]
        assert [r["step"] for r in records] == [1, 2, 3]
        for record in records:
            assert {"meta/fitness_spread", "meta/pair_difference", "meta/grad_norm"} <= set(record)
            assert f"population/return/{ENV}" in record
            assert "meta/meta_loss" not in record

    @staticmethod
    def _at_two(progress):
        return progress.step == 2

    def test_what_does_not_fit_is_said(self):
        with pytest.raises(DiscorlError, match=r"--lifetimes: .* --es-lifetime"):
            config(lifetimes=(4,))
        with pytest.raises(DiscorlError, match="--padded: not with --meta-optimiser es"):
            config(stacked=True, padded=True)
        with pytest.raises(DiscorlError, match="--meta-optimiser es: only in discovery"):
            change(DistilConfig(), {"meta_optimiser": "es"})
        with pytest.raises(DiscorlError, match="--es-sigma"):
            config(es_sigma=0)

    def test_an_environment_that_cannot_be_is_an_error_before_the_run_begins(self, tmp_path):
        with pytest.raises(DiscorlError, match="nowhere"):
            start_discovery(self.settings(envs=("nowhere",)), tmp_path / "run")
        assert not (tmp_path / "run").exists()
