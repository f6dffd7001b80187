"""A stacked population is the same population, computed as one."""

from dataclasses import replace

import pytest
import torch

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.discoverer import Discoverer
from discorl.discovery.evaluation import evaluate_agents
from discorl.discovery.member import Member
from discorl.discovery.meta_gradient import meta_gradient
from discorl.discovery.stack import meta_step_together, stacks
from discorl.envs.registry import make_game, name_game
from discorl.envs.seats import Seat
from discorl.errors import DiscorlError
from discorl.life.together import act_together, learn_together
from discorl.replay import concatenate
from discorl.settings import change
from discorl.stacking import Each
from discorl.tree import flatten, stack

BOARD = "catch:rows=5,columns=4"
CUT_OFF = "CartPole-v1"
FAMILIES = ("family:catch@2", "family:grid", "family:bandit", "family:cartpole")
REPLAY = {"batch_size": 4, "replay_fraction": 0.5, "replay_capacity": 8}
KINDS = [
    {"envs": (BOARD,)},
    {"envs": (CUT_OFF,)},
    {"envs": (BOARD,), "memory": "gru"},
    {"envs": (BOARD,), "body": "conv"},
    {"envs": (CUT_OFF,), **REPLAY},
    {"envs": (CUT_OFF,), "layer_norm": True, "weight_decay": 0.1, "warmup_updates": 3},
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind)))


def config(**settings):
    small = {
        "envs": (BOARD,),
        "agents": 3,
        "num_envs": 4,
        "rollout_length": 5,
        "torso": (8, 8),
        "model_size": 5,
        "head_hidden": 6,
        "value_torso": (6, 5),
        "learning_rate": 0.01,
        "float64": True,
    }
    return change(DiscoverConfig(), small | settings)


def assert_close(one, other, atol=1e-10):
    one, other = flatten(one), flatten(other)
    assert set(one) == set(other)
    for name, tensor in one.items():
        assert tensor.shape == other[name].shape, name
        # Also where both are not finite.
        torch.testing.assert_close(tensor, other[name], rtol=0, atol=atol, equal_nan=True)


def population(rule, **settings):
    settings = config(**settings)
    env = settings.envs[0]
    return [Member(settings, index, env, rule.to(torch.float64)) for index in range(3)]


@each_kind
def test_lives_act_and_learn_together_as_they_would_alone(tiny_rule, kind):
    alone, together = population(tiny_rule, **kind), population(tiny_rule, **kind)
    lives = [member.life for member in together]
    for _ in range(4):
        apart = [member.life.act() for member in alone]
        joint = act_together(lives)
        for one, other in zip(apart, joint, strict=True):
            assert_close(one, other)
        batches = [member.life.batch(r) for member, r in zip(alone, apart, strict=True)]
        same = [life.batch(r) for life, r in zip(lives, joint, strict=True)]
        metrics = [m.life.learn(b) for m, b in zip(alone, batches, strict=True)]
        for one, other in zip(metrics, learn_together(lives, same), strict=True):
            assert_close(one, other)
        for member, life in zip(alone, lives, strict=True):
            assert_close(member.life.state, life.state)
            assert member.life.episodes.recent == life.episodes.recent


@each_kind
@pytest.mark.parametrize("mode", ["reverse", "mixed"])
def test_meta_gradients_of_a_stack_are_those_of_its_agents(tiny_rule, kind, mode):
    members = population(tiny_rule, **kind)
    train = [[m.life.act() for _ in range(2)] for m in members]
    valid = [m.life.act(9) for m in members]
    learner, judge = members[0].life.mind.learner, members[0].value_function
    one_by_one = [
        meta_gradient(learner, m.life.state, judge, m.value_state, rollouts, last, mode=mode)
        for m, rollouts, last in zip(members, train, valid, strict=True)
    ]
    problem = (
        replace(learner, each=Each(3)),
        stack([m.life.state for m in members]),
        judge,
        stack([m.value_state for m in members]),
        [concatenate([rollouts[n] for rollouts in train]) for n in range(2)],
        concatenate(valid),
    )
    expected = stack(one_by_one)
    assert_close(expected, meta_gradient(*problem, mode=mode))
    # If they need not be told apart, their mean stands for each of them.
    means = {name: grad.mean(dim=0).expand_as(grad) for name, grad in expected.grads.items()}
    shared = meta_gradient(*problem, mode=mode, apart=False)
    assert_close(replace(expected, grads=means), shared)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"meta_optimiser": "per_agent", "meta_clip": 0.01},
        {"meta_clip": 0.01},
        {"lifetimes": (2, 4), "inner_steps": 1},
        {**REPLAY, "mode": "mixed"},
        {"widths": (8, 6)},
    ],
    ids=["plain", "per-agent", "clipped", "lifetimes", "replay", "two-stacks"],
)
def test_a_stacked_population_is_the_loop(tiny_rule, settings):
    # External environments have random streams of their own, stacked or not.
    loop, stacked = (
        Discoverer(config(envs=(CUT_OFF,), stacked=stacked, **settings), tiny_rule)
        for stacked in (False, True)
    )
    for _ in range(4):
        one, other = loop.meta_step(), stacked.meta_step()
        largest = max(row.metrics["grad_norm"] for row in one.agents)
        for row, same in zip(one.agents, other.agents, strict=True):
            if not {"meta_clip", "meta_optimiser"} & settings.keys():
                # Not told apart: agents of a stack report the norm of their mean.
                assert 0 < same.metrics["grad_norm"] <= largest
                row.metrics["grad_norm"] = same.metrics["grad_norm"]
            assert row.metrics == pytest.approx(same.metrics, abs=1e-10)
        assert one.update_norm == pytest.approx(other.update_norm, abs=1e-10)
        assert_close(loop.rule.params, stacked.rule.params)
    assert_close(
        loop.checkpoint().tensors | {"skipped": torch.zeros(())},
        stacked.checkpoint().tensors | {"skipped": torch.zeros(())},
    )


def test_who_breaks_is_left_out_and_born_again(tiny_rule):
    discoverer = Discoverer(config(stacked=True), tiny_rule)
    discoverer.meta_step()
    broken = discoverer.members[1]
    state = broken.life.state
    bad = {name: torch.full_like(p, torch.nan) for name, p in state.params.items()}
    broken.life.mind.state = replace(state, params=bad)
    report = discoverer.meta_step()
    assert report.skipped == 1
    assert [member.lives for member in discoverer.members] == [1, 2, 1]
    assert all(torch.isfinite(p).all() for p in discoverer.rule.params.values())
    assert discoverer.meta_step().skipped == 0


class TestFamilies:
    def test_members_of_a_family_are_one_stack(self, tiny_rule):
        settings = config(envs=FAMILIES, agents=10, stacked=True)
        discoverer = Discoverer(settings, tiny_rule)
        found = stacks(discoverer.members, settings)
        assert sorted(len(group) for group in found) == [2, 2, 2, 4]
        assert all(len({member.env_name for member in group}) == 1 for group in found)
        tables = {id(member.life.env.table) for member in discoverer.members}
        assert len(tables) == 4

    def test_padded_they_are_all_one(self, tiny_rule):
        settings = config(envs=FAMILIES, agents=10, stacked=True, padded=True)
        discoverer = Discoverer(settings, tiny_rule)
        assert len(stacks(discoverer.members, settings)) == 1
        for _ in range(2):
            assert discoverer.meta_step().skipped == 0

    @pytest.mark.parametrize("padded", [False, True])
    def test_agents_of_other_widths_sit_at_other_tables(self, tiny_rule, padded):
        settings = config(envs=FAMILIES, agents=8, stacked=True, padded=padded, widths=(8, 6))
        discoverer = Discoverer(settings, tiny_rule)
        for _ in range(2):
            assert discoverer.meta_step().skipped == 0

    def test_everybody_plays_its_own_member(self, tiny_rule):
        discoverer = Discoverer(config(envs=("family:catch",), stacked=True), tiny_rule)
        plain = Discoverer(config(envs=("family:catch",)), tiny_rule)
        table = discoverer.members[0].life.env.table
        games = [make_game(member.life.source.name) for member in plain.members]
        assert table.specs == [name_game(game) for game in games]

    def test_the_newborn_gets_another_member_and_the_others_play_on(self, tiny_rule):
        settings = config(envs=("family:catch",), stacked=True)
        one, other = (Discoverer(settings, tiny_rule) for _ in range(2))
        table = one.members[0].life.env.table
        before = table.specs
        one.members[1].be_born()
        after = table.specs
        assert after[1] != before[1]
        assert after[::2] == before[::2]
        for kept in (0, 2):
            assert_close(one.members[kept].life.time_step, other.members[kept].life.time_step)

    def test_a_seat_that_steps_alone_moves_nobody_else(self, tiny_rule):
        one, two, three = (m.life.env for m in Discoverer(config(stacked=True), tiny_rule).members)
        before = [seat.state_dict() for seat in (one, two, three)]
        two.step(torch.zeros(4, dtype=torch.int64))
        for seat, old in zip((one, two, three), before, strict=True):
            del old["generator"]
            same = all(torch.equal(t, seat.state_dict()[name]) for name, t in old.items())
            assert same == (seat is not two)

    def test_a_newborn_acts_until_there_is_enough_to_learn_from(self, tiny_rule):
        hungry = {"batch_size": 12, "replay_fraction": 1.0, "replay_capacity": 16}
        discoverer = Discoverer(config(stacked=True, lifetimes=(4,), **hungry), tiny_rule)
        for _ in range(4):
            assert discoverer.meta_step().skipped == 0

    @pytest.mark.parametrize("padded", [False, True])
    def test_a_resumed_population_goes_on_to_the_bit(self, tiny_rule, padded):
        settings = config(
            envs=FAMILIES, agents=5, stacked=True, padded=padded, lifetimes=(4, 8), **REPLAY
        )
        discoverer = Discoverer(settings, tiny_rule)
        for _ in range(3):
            discoverer.meta_step()
        checkpoint = discoverer.checkpoint()
        resumed = Discoverer(settings, tiny_rule)
        resumed.restore(checkpoint)
        for _ in range(3):
            discoverer.meta_step()
            resumed.meta_step()
        one, other = discoverer.checkpoint().tensors, resumed.checkpoint().tensors
        assert set(one) == set(other)
        assert [name for name, tensor in one.items() if not torch.equal(tensor, other[name])] == []


def test_normalised_observations_need_environments_of_their_own(tiny_rule):
    settings = config(envs=("cartpole",), stacked=True, normalize_observations=True)
    discoverer = Discoverer(settings, tiny_rule)
    assert not isinstance(discoverer.members[0].life.env, Seat)
    assert discoverer.meta_step().skipped == 0


def test_a_stack_reports_what_one_meta_step_of_it_says(tiny_rule):
    members = Discoverer(config(stacked=True), tiny_rule).members
    result = meta_step_together(members, tiny_rule.to(torch.float64))
    assert result.metrics["meta_loss"].shape == (3,)
    assert all(grad.shape[0] == 3 for grad in result.grads.values())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"padded": True}, "--padded: only with --stacked"),
        ({"padded": True, "stacked": True, "envs": (CUT_OFF,)}, "only built-in games"),
    ],
)
def test_what_cannot_be_padded_is_said(tiny_rule, settings, said):
    with pytest.raises(DiscorlError, match=said):
        Discoverer(config(**settings), tiny_rule)


@pytest.mark.parametrize("kind", [{}, {"padded": True}, REPLAY], ids=["plain", "padded", "replay"])
def test_fresh_agents_of_a_stack_learn_side_by_side(tiny_rule, kind):
    settings = config(envs=FAMILIES, stacked=True, eval_steps=6, float64=False, **kind)
    found = evaluate_agents(tiny_rule, settings, "family:catch", (0, 1, 2))
    again = evaluate_agents(tiny_rule, settings, "family:catch", (0, 1, 2))
    assert str(found) == str(again)  # Before its first episode an agent's return is not a number.
    assert [result.seed for result in found] == [0, 1, 2]
    assert len({tuple(result.curve) for result in found}) == 3


def test_in_an_external_environment_they_are_who_they_would_be_alone(tiny_rule):
    settings = config(envs=(CUT_OFF,), eval_steps=12, eval_agents=2)
    rule = tiny_rule.to(torch.float64)
    alone = [evaluate_agents(rule, settings, CUT_OFF, (seed,))[0] for seed in (0, 1)]
    stacked = change(settings, {"stacked": True})
    assert str(evaluate_agents(rule, stacked, CUT_OFF, (0, 1))) == str(alone)
