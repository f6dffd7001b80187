"""The curriculum: what is recorded of a death, what newborns get, and how a run carries it on."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.curriculum import Curriculum, Level, chances
from discorl.discovery.member import Death
from discorl.discovery.start import make_discoverer
from discorl.envs.families import resolve_environment
from discorl.errors import DiscorlError
from discorl.group import Group
from discorl.life.episodes import LearningCurve
from discorl.rules.actor_critic import ActorCritic
from discorl.runs.checkpoint import load_latest, save_checkpoint
from discorl.settings import change

FAMILY = "family:early_bandit"


def config(**settings):
    small = {
        "curriculum": "learnability",
        "envs": (FAMILY,),
        "agents": 2,
        "num_envs": 4,
        "rollout_length": 8,
        "lifetimes": (2, 4),
        "widths": (8,),
        "model_size": 5,
        "head_hidden": 6,
        "value_torso": (6, 5),
        "learning_rate": 0.01,
    }
    return change(DiscoverConfig(), small | settings)


def curve(mean, peak=1.0):
    return LearningCurve(10 * mean, 10, peak)


def died(mean, level=5, index=0, updates=3, peak=1.0):
    return SimpleNamespace(
        index=index, env_name=FAMILY, death=Death(level, curve(mean, peak), updates)
    )


@pytest.fixture
def against(monkeypatch):
    """A curriculum whose actor-critic agents come to a given mean return."""

    def make(mean, peak=1.0, **settings):
        monkeypatch.setattr(Curriculum, "_live", lambda *_: curve(mean, peak))
        return Curriculum(config(**settings))

    return make


def only(curriculum):
    (levels,) = curriculum.levels.values()
    (level,) = levels.values()
    return level


class TestRecords:
    def test_a_death_is_compared_with_actor_critic(self, against):
        curriculum = against(0.5)
        member = died(0.2)
        curriculum.take_note([member], [FAMILY], Group())
        assert list(curriculum.levels[FAMILY]) == [resolve_environment(FAMILY, 5)]
        assert only(curriculum) == Level(5, pytest.approx(-0.3))
        assert member.death is None

    def test_returns_of_any_size_count_alike(self, against):
        curriculum = against(50.0, peak=80.0)
        curriculum.take_note([died(20.0, peak=100.0)], [FAMILY], Group())
        assert only(curriculum).lead == pytest.approx(-0.3)

    def test_the_newest_death_counts_half(self, against):
        curriculum = against(0.0)
        for mean in (0.4, 0.8, 0.0):
            curriculum.take_note([died(mean)], [FAMILY], Group())
        assert only(curriculum).lead == pytest.approx(0.3)

    def test_a_life_without_an_episode_says_nothing(self, against):
        curriculum = against(0.5)
        silent = died(0.0)
        silent.death = Death(5, LearningCurve(), 3)
        curriculum.take_note([silent], [FAMILY], Group())
        assert not curriculum.levels

    def test_metrics_say_how_the_rule_stands(self, against):
        curriculum = against(0.5)
        assert curriculum.metrics() == {}
        curriculum.take_note([died(0.1, level=5), died(0.7, 6, 1)], [FAMILY] * 2, Group())
        expected = {"members": 2, "lead": -0.1, "difference": 0.3}
        assert curriculum.metrics() == pytest.approx(
            {f"curriculum/{name}": value for name, value in expected.items()}
        )

    def test_actor_critic_lives_once_in_a_member_with_as_many_updates(self, monkeypatch):
        seen = []
        plain = ActorCritic.loss
        monkeypatch.setattr(ActorCritic, "loss", lambda *args: seen.append(args) or plain(*args))
        curriculum = Curriculum(config())
        for level, updates in ((5, 3), (5, 3), (6, 3), (5, 2)):
            member = died(0.2, level, updates=updates)
            curriculum.take_note([member], [FAMILY], Group())
        assert len(seen) == 3 + 3 + 2
        assert all(math.isfinite(level.lead) for level in curriculum.levels[FAMILY].values())


class TestChoice:
    def test_a_large_difference_is_drawn_more_often_and_none_is_dropped(self):
        found = chances([-0.6, 0.2, 0.0, 0.0])
        assert found == pytest.approx([0.65, 0.25, 0.05, 0.05])
        assert chances([0.0, 0.0]) == [0.5, 0.5]

    def test_newborns_are_given_known_members_by_their_differences(self):
        curriculum = Curriculum(config(fresh_members=0.25))
        curriculum.levels[FAMILY] = {"a": Level(-1, 0.3), "b": Level(-2, -0.9)}
        draws = Counter(curriculum.choose(FAMILY, seed) for seed in range(2000))
        # Shares of 0.75 x (0.3, 0.7); the standard deviations are below 25.
        assert abs(draws[-1] - 450) < 100
        assert abs(draws[-2] - 1050) < 100
        assert len(draws) > 400  # The others got members of their own.

    def test_before_the_first_death_members_are_any(self):
        assert Curriculum(config(fresh_members=0.05)).choose(FAMILY, 17) == 17

    def test_agents_live_in_the_members_that_were_chosen(self, tiny_rule):
        discoverer = make_discoverer(config(fresh_members=0.05), tiny_rule)
        name = resolve_environment(FAMILY, 12345)
        discoverer.curriculum.levels[FAMILY] = {name: Level(12345, 1.0)}
        for member in discoverer.members:
            names = []
            for _ in range(5):
                member.be_born()
                names.append(member.life.source.name)
            assert name in names

    @pytest.mark.parametrize("kind", ["meta-gradients", "stacked", "es"])
    def test_a_resumed_run_goes_on_to_the_bit(self, tiny_rule, tmp_path, kind):
        others = {
            "meta-gradients": {},
            "stacked": {"stacked": True},
            "es": {"meta_optimiser": "es", "lifetimes": (), "es_pairs": 1, "es_lifetime": 2},
        }
        settings = config(fresh_members=0.3, inner_steps=1, **others[kind])
        whole = make_discoverer(settings, tiny_rule)
        for _ in range(5):
            whole.meta_step()
        assert whole.curriculum.levels
        save_checkpoint(tmp_path, whole.checkpoint(), 1)
        resumed = make_discoverer(settings, tiny_rule)
        resumed.restore(load_latest(tmp_path))
        for _ in range(5):
            whole.meta_step()
            resumed.meta_step()
        one, other = whole.checkpoint(), resumed.checkpoint()
        assert one.values == other.values
        assert list(one.tensors) == list(other.tensors)
        assert all(torch.equal(t, other.tensors[name]) for name, t in one.tensors.items())
        levels = [member.level for member in whole.members]
        assert levels == [member.level for member in resumed.members]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"envs": ("catch", "family:grid,seed=3@2")}, "--envs has no family"),
        ({"lifetimes": ()}, "without --lifetimes"),
        ({"fresh_members": 0}, "--fresh-members"),
    ],
)
def test_what_does_not_fit_is_said(settings, said):
    with pytest.raises(DiscorlError, match=said):
        config(**settings)


def test_a_family_with_a_weight_has_members():
    assert config(envs=("catch", "family:grid@2")).curriculum == "learnability"
