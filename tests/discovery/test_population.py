"""The population: who plays what, births, replay, seeds, and how the rule hears all of them."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from discorl.discovery import member as member_module
from discorl.discovery.config import DiscoverConfig, deal_environments
from discorl.discovery.discoverer import Discoverer
from discorl.discovery.member import Member, next_batch
from discorl.discovery.meta_loss import MetaLossConfig
from discorl.errors import DiscorlError
from discorl.learner import rule_targets
from discorl.life.episodes import Episode
from discorl.optim import ClippedAdam, Schedule, global_norm
from discorl.replay import concatenate, first_trajectories
from discorl.rules.disco import DiscoRule
from discorl.settings import change
from discorl.tree import flatten

ENV = "catch:rows=4,columns=3"
REPLAY = {"batch_size": 4, "replay_fraction": 0.5, "replay_capacity": 8}


def config(**settings):
    small = {
        "envs": (ENV,),
        "agents": 2,
        "num_envs": 4,
        "rollout_length": 5,
        "widths": (8,),
        "model_size": 5,
        "head_hidden": 6,
        "value_torso": (6, 5),
        "learning_rate": 0.01,
    }
    return change(DiscoverConfig(), small | settings)


def make_member(rule, index=0, **settings):
    return Member(config(**settings), index, ENV, rule)


def assert_same(one, other):
    assert list(one) == list(other)
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


class TestDealing:
    def test_one_environment_is_everybodys(self):
        assert deal_environments(("a",), 3) == ["a"] * 3

    def test_equal_weights_take_turns(self):
        assert deal_environments(("a", "b", "c"), 7) == list("abcabca")

    @pytest.mark.parametrize("agents", [1, 2, 3, 4, 7, 12, 40])
    def test_any_first_agents_are_within_one_of_the_weights(self, agents):
        weights = {"a": 1.0, "b": 3.0, "c:rows=2": 0.5}
        envs = tuple(f"{env}@{weight}" for env, weight in weights.items())
        found = Counter(deal_environments(envs, agents))
        for env, weight in weights.items():
            assert abs(found[env] - agents * weight / 4.5) < 1

    def test_no_weight_is_one(self):
        assert Counter(deal_environments(("a", "b@3"), 8)) == {"a": 2, "b": 6}

    @pytest.mark.parametrize("entry", ["catch@", "catch@many", "catch@2@x"])
    def test_what_is_no_weight_is_said(self, entry):
        with pytest.raises(DiscorlError, match=rf"--envs {entry}: '.*' is not a weight"):
            deal_environments((entry,), 2)

    @pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf"])
    def test_weights_are_positive_numbers(self, weight):
        with pytest.raises(DiscorlError, match="weights must be positive"):
            deal_environments(("a", f"b@{weight}"), 2)


class TestLifetimes:
    def test_agents_are_reborn(self, tiny_rule):
        member = make_member(tiny_rule, lifetimes=(4,), **REPLAY)
        assert (member.age, member.lifetime, member.lives) == (0, 4, 1)
        for _ in range(2):
            member.meta_step(tiny_rule)
        assert (member.age, member.lives) == (4, 1)
        assert member.life.episodes.recent
        assert member.life.mind.replay.size == 8
        old = flatten(member.life.state.params)
        # When its time is up, then a new agent takes its place.
        position = member.life.time_step.observation.clone()
        member.be_born()
        assert (member.age, member.lives) == (0, 2)
        assert not torch.equal(
            member.life.state.params["head.logits.weight"], old["head.logits.weight"]
        )
        assert_same(member.life.state.target_params, member.life.state.params)
        assert int(member.life.state.optimiser.count) == 0
        assert not any(t.any() for t in member.life.state.optimiser.first.values())
        assert not any(t.any() for t in member.life.state.optimiser.second.values())
        assert_same(
            flatten(member.life.state.rule),
            flatten(tiny_rule.initial_state(torch.float32, "cpu")),
        )
        assert int(member.value_state.optimiser.count) == 0
        assert float(member.value_state.advantage.decay_product) == 1
        assert not member.life.episodes.recent
        assert member.life.mind.replay.size == 0
        # The environment knows nothing of it.
        assert torch.equal(member.life.time_step.observation, position)

    def test_a_meta_step_starts_the_next_life(self, tiny_rule):
        member = make_member(tiny_rule, lifetimes=(4,))
        ages = []
        for _ in range(5):
            member.meta_step(tiny_rule)
            ages.append((member.lives, member.age))
        assert ages == [(1, 2), (1, 4), (2, 2), (2, 4), (3, 2)]
        assert int(member.life.state.optimiser.count) == 2

    def test_a_life_never_exceeds_its_time(self, tiny_rule):
        member = make_member(tiny_rule, lifetimes=(5,), inner_steps=2)
        for _ in range(6):
            member.meta_step(tiny_rule)
            assert member.age <= 5

    def test_without_lifetimes_agents_live_on(self, tiny_rule):
        member = make_member(tiny_rule)
        for _ in range(4):
            member.meta_step(tiny_rule)
        assert (member.age, member.lives, member.lifetime) == (8, 1, 0)

    def test_short_lives_are_drawn_more_often(self, tiny_rule):
        """By their inverse: 10 updates four times as often as 40, an equal share of updates."""
        member = make_member(tiny_rule, lifetimes=(10, 40))
        draws = Counter(member._draw_lifetime() for _ in range(4000))
        # The standard deviation is sqrt(4000 x 0.8 x 0.2) = 25.
        assert abs(draws[10] - 3200) < 100
        assert draws[10] + draws[40] == 4000

    def test_a_newborn_learns_from_its_own_experience_only(self, tiny_rule):
        """Replay is empty at birth, wherever the ring stood when the old agent died."""
        settings = {"replay_capacity": 10, "replay_fraction": 1.0}
        member = make_member(tiny_rule, **REPLAY | settings)
        rollout = member.life.act()
        next_batch(member.life, replace(rollout, rewards=torch.full_like(rollout.rewards, 7.0)))
        member.be_born()
        own = replace(rollout, rewards=torch.full_like(rollout.rewards, 1.0))
        for _ in range(3):
            assert (next_batch(member.life, own).rewards == 1).all()


class TestFamilies:
    def test_every_newborn_gets_another_member(self, tiny_rule):
        member = Member(config(lifetimes=(2,)), 0, "family:grid", tiny_rule)
        games = []
        for _ in range(4):
            member.meta_step(tiny_rule)
            games.append(member.life.env.game)
        assert len(set(games)) == 4
        other = Member(config(lifetimes=(2,)), 1, "family:grid", tiny_rule)
        assert other.life.env.game not in games

    def test_without_lifetimes_the_environment_stays(self, tiny_rule):
        member = Member(config(), 0, "family:bandit", tiny_rule)
        game = member.life.env.game
        for _ in range(3):
            member.meta_step(tiny_rule)
        assert member.life.env.game is game

    def test_a_restored_member_goes_on_exactly(self, tiny_rule):
        """Into whatever environment its life was in, shapes and all."""
        settings = config(lifetimes=(2, 4), **REPLAY)
        member = Member(settings, 0, "family:catch", tiny_rule)
        for _ in range(5):
            saved = {name: t.clone() for name, t in flatten(member.state_dict()).items()}
            twin = Member(settings, 0, "family:catch", tiny_rule)
            twin.load_state_dict(saved)
            assert_same(flatten(twin.state_dict()), saved)
            member.meta_step(tiny_rule)
            twin.meta_step(tiny_rule)
            assert_same(flatten(twin.state_dict()), flatten(member.state_dict()))


class TestReplay:
    def test_without_replay_rollouts_are_fresh(self, tiny_rule):
        member = make_member(tiny_rule)
        rollout = member.life.act()
        assert_same(flatten(next_batch(member.life, rollout)), flatten(rollout))
        assert member.life.mind.replay is None

    @pytest.mark.parametrize(("fraction", "fresh"), [(0.0, 4), (0.5, 2), (0.75, 1), (1.0, 0)])
    def test_part_of_a_rollout_is_replayed(self, tiny_rule, fraction, fresh):
        settings = {"replay_capacity": 16, "replay_fraction": fraction}
        member = make_member(tiny_rule, **REPLAY | settings)
        rollouts = [member.life.act() for _ in range(4)]
        tagged = [
            replace(r, rewards=torch.full_like(r.rewards, float(i))) for i, r in enumerate(rollouts)
        ]
        mixed = [next_batch(member.life, r) for r in tagged]
        if fraction:
            assert member.life.mind.replay.size == 16
        else:
            assert member.life.mind.replay is None
        last = mixed[-1]
        assert last.actions.shape == (5, 4)
        newest = first_trajectories(last, fresh)
        if fresh:
            assert_same(flatten(newest), flatten(first_trajectories(tagged[-1], fresh)))
        stored = flatten(concatenate(tagged))
        for index in range(fresh, 4):
            trajectory = last.logits[:, index]
            assert any(torch.equal(trajectory, stored["logits"][:, i]) for i in range(16))

    def test_old_trajectories_come_back(self, tiny_rule):
        member = make_member(tiny_rule, batch_size=4, replay_capacity=16, replay_fraction=1.0)
        seen = set()
        for i in range(8):
            rollout = member.life.act()
            tagged = replace(rollout, rewards=torch.full_like(rollout.rewards, float(i)))
            seen |= {(i, int(r)) for r in next_batch(member.life, tagged).rewards[0]}
        assert any(stored < now for now, stored in seen)
        assert all(now - 4 < stored <= now for now, stored in seen)


class TestMembers:
    def test_two_members_differ(self, tiny_rule):
        one, two = make_member(tiny_rule, 0), make_member(tiny_rule, 1)
        name = "head.logits.weight"
        assert not torch.equal(one.life.state.params[name], two.life.state.params[name])
        first, second = one.life.act(20), two.life.act(20)
        assert not torch.equal(first.actions, second.actions)
        assert not torch.equal(first.observations, second.observations)

    def test_a_member_is_its_seed_and_index(self, tiny_rule):
        for settings in ({}, {"seed": 3}):
            one, two = (make_member(tiny_rule, 1, **settings) for _ in range(2))
            assert_same(flatten(one.state_dict()), flatten(two.state_dict()))
        assert not torch.equal(
            make_member(tiny_rule, 1).life.state.params["head.logits.weight"],
            make_member(tiny_rule, 1, seed=1).life.state.params["head.logits.weight"],
        )

    def test_widths_are_taken_in_turn(self, tiny_rule):
        members = [make_member(tiny_rule, i, widths=(8, 6)) for i in range(3)]
        widths = [m.life.state.params["head.logits.weight"].shape[1] for m in members]
        assert widths == [8, 6, 8]

    def test_the_validation_rollout_is_twice_as_long(self, tiny_rule, monkeypatch):
        lengths = []

        def watch(_learner, _state, _function, _value_state, train, valid, weights, mode):
            lengths.append(([len(r.actions) for r in train], len(valid.actions), mode))
            assert weights == MetaLossConfig(entropy_cost=0.5)
            raise KeyboardInterrupt

        monkeypatch.setattr(member_module, "meta_gradient", watch)
        member = make_member(tiny_rule, inner_steps=3, mode="mixed", entropy_cost=0.5)
        with pytest.raises(KeyboardInterrupt):
            member.meta_step(tiny_rule)
        assert lengths == [([5, 5, 5], 10, "mixed")]

    @pytest.mark.parametrize("replay", [{}, REPLAY | {"replay_capacity": 12}])
    def test_a_restored_member_goes_on_exactly(self, tiny_rule, replay):
        settings = {"lifetimes": (4, 6), "float64": True} | replay
        rule = tiny_rule.to(torch.float64)
        member = make_member(rule, **settings)
        for steps in range(5):  # Through births, too.
            saved = {name: t.clone() for name, t in flatten(member.state_dict()).items()}
            expected = member.meta_step(rule)
            other = make_member(rule, index=1, **settings)
            other.meta_step(rule)
            other.load_state_dict(saved)
            found = other.meta_step(rule)
            assert_same(flatten(found), flatten(expected))
            assert_same(flatten(other.state_dict()), flatten(member.state_dict()))
            assert other.life.episodes.recent == member.life.episodes.recent, steps

    def test_an_environment_that_cannot_be_put_back_begins_new_episodes(self, tiny_rule):
        member = Member(config(), 0, "CartPole-v1", tiny_rule)
        member.meta_step(tiny_rule)
        twin = Member(config(), 0, "CartPole-v1", tiny_rule)
        twin.load_state_dict(flatten(member.state_dict()))
        # The new poles stand nearly upright and still, and nothing was received yet.
        assert not torch.equal(twin.life.time_step.observation, member.life.time_step.observation)
        assert twin.life.time_step.observation.abs().max() <= 0.05
        assert not twin.life.time_step.reward.any()
        assert not twin.life.episodes.state_dict()["lengths"].any()

    def test_returns_are_restored_to_the_last_digit(self, tiny_rule):
        member = make_member(tiny_rule)
        member.life.episodes.recent.extend([Episode(0.1, 3), Episode(1 / 3, 4)])
        other = make_member(tiny_rule, 1)
        other.load_state_dict(flatten(member.state_dict()))
        assert other.life.episodes.recent == member.life.episodes.recent


def poison(monkeypatch, *, indices=(1,), value=float("nan")):
    """Let the meta-gradients of some members break."""
    plain = Member.meta_step

    def meta_step(self, rule):
        result = plain(self, rule)
        if self.index not in indices:
            return result
        grads = {name: torch.full_like(g, value) for name, g in result.grads.items()}
        return replace(result, grads=grads)

    monkeypatch.setattr(Member, "meta_step", meta_step)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimiser", ["shared", "per_agent"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_meta_gradients_that_are_not_finite_do_not_count(
    tiny_rule, monkeypatch, optimiser, clip, value
):
    settings = config(agents=3, meta_optimiser=optimiser, meta_clip=clip)
    discoverer = Discoverer(settings, tiny_rule)
    # Given what the two sound agents say alone
    alone = Discoverer(settings, tiny_rule)
    alone.members = [m for m in alone.members if m.index != 1]
    if optimiser == "per_agent":
        del alone.adam_of[1]
    alone.meta_step()
    # When the third breaks
    with monkeypatch.context() as broken:
        poison(broken, value=value)
        report = discoverer.meta_step()
    # Then the mean is over the two, and nothing keeps a trace.
    assert (report.skipped, discoverer.skipped) == (1, 1)
    assert [a.metrics["finite"] for a in report.agents] == [1, 0, 1]
    assert_same(discoverer.rule.params, alone.rule.params)
    states = discoverer.adam_of or {None: discoverer.adam}
    tensors = {i: flatten(state) for i, state in states.items()}
    assert all(torch.isfinite(t).all() for state in tensors.values() for t in state.values())
    if optimiser == "per_agent":
        assert [int(discoverer.adam_of[i].count) for i in range(3)] == [1, 0, 1]
        assert not any(t.any() for t in tensors[1].values())
    # And once it is sound again it counts again.
    report = discoverer.meta_step()
    assert (report.skipped, discoverer.skipped) == (0, 1)
    assert all(torch.isfinite(p).all() for p in discoverer.rule.params.values())


def test_the_meta_gradient_itself_may_break(tiny_rule, monkeypatch):
    """As above, at the function: NaN in one tensor of one agent is enough."""
    plain, calls = member_module.meta_gradient, []

    def meta_gradient(*args, **kwargs):
        result = plain(*args, **kwargs)
        calls.append(result)
        if len(calls) == 1:
            result.grads["gate.b"][0] = torch.nan
        return result

    monkeypatch.setattr(member_module, "meta_gradient", meta_gradient)
    discoverer = Discoverer(config(), tiny_rule)
    assert discoverer.meta_step().skipped == 1
    assert all(torch.isfinite(p).all() for p in discoverer.rule.params.values())
    assert not torch.equal(discoverer.rule.params["gate.b"], tiny_rule.params["gate.b"])


@pytest.mark.parametrize("optimiser", ["shared", "per_agent"])
def test_when_nobody_counts_a_fresh_rule_stays(tiny_rule, monkeypatch, optimiser):
    poison(monkeypatch, indices=(0, 1))
    discoverer = Discoverer(config(meta_optimiser=optimiser), tiny_rule)
    report = discoverer.meta_step()
    assert report.skipped == 2
    assert report.update_norm == 0
    assert_same(discoverer.rule.params, tiny_rule.params)


def meta_grads(rule, settings):
    """What each agent says in its first meta-step."""
    env_of = deal_environments(settings.envs, settings.agents)
    members = [Member(settings, i, env, rule) for i, env in enumerate(env_of)]
    return [m.meta_step(rule).grads for m in members]


def test_the_clip_bounds_each_agents_meta_gradient(tiny_rule, monkeypatch):
    grads = meta_grads(tiny_rule, config())
    norms = [float(global_norm(g)) for g in grads]
    clip = sum(norms) / 2  # Between the two: one is shortened, one is not.
    scales = [min(1.0, clip / norm) for norm in norms]
    assert sorted(scales)[0] < 1
    assert sorted(scales)[1] == 1
    discoverer = Discoverer(config(meta_clip=clip), tiny_rule)
    given = []
    contribution = discoverer._contribution

    def watch(member, result):
        found = contribution(member, result)
        given.append(found[0])
        return found

    monkeypatch.setattr(discoverer, "_contribution", watch)
    report = discoverer.meta_step()
    for found, grad, scale in zip(given, grads, scales, strict=True):
        assert float(global_norm(found)) <= clip * (1 + 1e-6)
        for name, tensor in grad.items():
            torch.testing.assert_close(found[name][0], tensor * scale)
    # The norm that is reported is the one before.
    assert [a.metrics["grad_norm"] for a in report.agents] == pytest.approx(norms)


ADAM = ClippedAdam(Schedule(5e-4), max_step=float("inf"))


def test_shared_is_adam_of_the_mean(tiny_rule):
    one, two = meta_grads(tiny_rule, config())
    mean = {name: (one[name] + two[name]) / 2 for name in one}
    updates, state = ADAM.update(mean, ADAM.init(tiny_rule.params), tiny_rule.params)
    discoverer = Discoverer(config(), tiny_rule)
    report = discoverer.meta_step()
    assert not discoverer.adam_of
    for name, update in updates.items():
        torch.testing.assert_close(
            discoverer.rule.params[name], tiny_rule.params[name] + update, rtol=0, atol=1e-8
        )
        torch.testing.assert_close(discoverer.adam.first[name], state.first[name])
    assert report.update_norm == pytest.approx(float(global_norm(updates)), rel=1e-5)


def test_per_agent_is_the_mean_of_adams(tiny_rule):
    grads = meta_grads(tiny_rule, config())
    updates = [ADAM.update(g, ADAM.init(tiny_rule.params), tiny_rule.params)[0] for g in grads]
    discoverer = Discoverer(config(meta_optimiser="per_agent"), tiny_rule)
    discoverer.meta_step()
    assert list(discoverer.adam_of) == [0, 1]
    for name, param in tiny_rule.params.items():
        mean = (updates[0][name] + updates[1][name]) / 2
        torch.testing.assert_close(discoverer.rule.params[name], param + mean, rtol=0, atol=1e-8)


def test_for_one_agent_both_optimisers_are_the_same(tiny_rule):
    shared = Discoverer(config(agents=1), tiny_rule)
    own = Discoverer(config(agents=1, meta_optimiser="per_agent"), tiny_rule)
    for _ in range(3):
        assert shared.meta_step().agents == own.meta_step().agents
        assert_same(shared.rule.params, own.rule.params)
    assert_same(flatten(shared.adam), flatten(own.adam_of[0]))


def test_the_cosine_schedule_ends_at_zero(tiny_rule):
    settings = config(agents=1, meta_steps=3, meta_learning_rate_schedule="cosine")
    discoverer = Discoverer(settings, tiny_rule)
    norms = [discoverer.meta_step().update_norm for _ in range(4)]
    assert norms[0] > 0
    assert norms[3] == 0


def test_a_report_has_a_row_for_each_agent(tiny_rule):
    envs = (ENV, "catch:rows=3,columns=5")
    discoverer = Discoverer(config(envs=envs, agents=3), tiny_rule)
    report = discoverer.meta_step()
    assert [a.env for a in report.agents] == [*envs, ENV]
    for agent, member in zip(report.agents, discoverer.members, strict=True):
        assert agent.metrics["return"] == member.life.episodes.mean_return()
        assert (agent.metrics["age"], agent.metrics["lives"]) == (2, 1)
    # Too short for an episode to end: no return, rather than a made-up one.
    short = Discoverer(config(envs=("catch:rows=40",), rollout_length=2), tiny_rule)
    assert all("return" not in a.metrics for a in short.meta_step().agents)


@pytest.mark.parametrize("optimiser", ["shared", "per_agent"])
def test_a_restored_discoverer_goes_on_exactly(tiny_rule, optimiser):
    settings = config(meta_optimiser=optimiser, lifetimes=(4,), **REPLAY)
    discoverer, other = (Discoverer(settings, tiny_rule) for _ in range(2))
    for _ in range(3):
        discoverer.meta_step()
    other.restore(discoverer.checkpoint())
    assert other.step == 3
    for _ in range(2):
        assert discoverer.meta_step() == other.meta_step()
    assert_same(discoverer.checkpoint().tensors, other.checkpoint().tensors)


def test_a_checkpoint_of_another_run_is_refused(tiny_rule):
    discoverer = Discoverer(config(agents=1), tiny_rule)
    for other in (config(agents=2), config(agents=1, widths=(9,))):
        with pytest.raises(DiscorlError, match="does not fit this run"):
            Discoverer(other, tiny_rule).restore(discoverer.checkpoint())


@pytest.mark.parametrize("seed", range(10))
def test_a_random_rule_tells_a_newborns_actions_apart(seed):
    """Or it would never learn to: all that it knows of an action goes through a few ReLUs."""
    rule = DiscoRule.random(seed=seed)
    life = make_member(rule).life
    agent, rollout = life.mind.learner.agent, life.act()
    outputs = agent.outputs(life.state.params, rollout.observations)
    targets, _ = rule_targets(life.state, rollout, outputs, rule, agent, differentiable=False)
    assert targets.policy.std(dim=-1).max() > 1e-6


@pytest.mark.parametrize("first_steps", [False, True])
def test_members_learn_from_first_steps_if_asked_for(tiny_rule, first_steps):
    member = make_member(tiny_rule, learn_first_steps=first_steps)
    assert member.life.mind.learner.learn_first_steps is first_steps
