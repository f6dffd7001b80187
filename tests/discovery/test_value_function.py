"""The value network that judges agents: V-trace by hand, its update, its moving averages."""

import math
from dataclasses import replace

import pytest
import torch

from discorl.discovery.value_function import ValueConfig, ValueFunction
from discorl.envs.sources import find_environment
from discorl.observations import ArraySpec
from discorl.rollout import Rollout
from discorl.tree import flatten
from discorl.values import MovingAverage
from discorl.values.transforms import signed_hyperbolic, signed_parabolic

GAMMA, LAMBDA = 0.9, 0.5


def column(*values):
    """[L, 1] in float64."""
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def rollout_of(observations, rewards, discounts, logits=None, actions=None):
    length = len(rewards)
    return Rollout(
        observations=torch.tensor(observations, dtype=torch.float64).reshape(length, 1, 1),
        actions=torch.zeros(length, 1, dtype=torch.int64) if actions is None else actions,
        rewards=column(*rewards),
        discounts=column(*discounts),
        logits=torch.zeros(length, 1, 2, dtype=torch.float64) if logits is None else logits,
    )


@pytest.fixture
def identity():
    return identity_network("published")


@pytest.fixture
def aligned():
    return identity_network("aligned")


def identity_network(credit):
    """A network that gives its one observed number back, so that values are chosen by hand."""
    config = ValueConfig(value_torso=(1,), value_discount=GAMMA, value_lambda=LAMBDA, credit=credit)
    function = ValueFunction(ArraySpec((1,)), config)
    names = ("torso.layers.0.weight", "torso.layers.0.bias", "head.weight", "head.bias")
    shapes = ((1, 1), (1,), (1, 1), (1,))
    params = {
        name: torch.full(shape, float(name.endswith("weight")), dtype=torch.float64)
        for name, shape in zip(names, shapes, strict=True)
    }
    return function, function.init_from(params)


def observing(*values):
    """Observations at which the network's values are these."""
    return signed_hyperbolic(torch.tensor(values, dtype=torch.float64)).tolist()


def test_vtrace_over_the_actors_own_indexing(identity):
    """Rewards and discounts are read where they are stored, not one step later.

    Values 1, 2, 3; rewards 10, 20 (and 99, unread); discounts 1, 0 (and 1, unread); on policy.
    delta_0 = 10 + 0.9 x 2 - 1 = 10.8; delta_1 = 20 + 0 x 3 - 2 = 18
    error_1 = 18; error_0 = 10.8 + 0.9 x 0.5 x 18 = 18.9
    targets 19.9, 20; bootstrap of step 0: 0.5 x 20 + 0.5 x 2 = 11, of step 1: 3
    advantages 10 + 0.9 x 11 - 1 = 18.9; 20 + 0 - 2 = 18
    """
    function, state = identity
    rollout = rollout_of(observing(1.0, 2.0, 3.0), [10, 20, 99], [1, 0, 1])
    judgement = function.judge(state, rollout, rollout.logits)
    assert judgement.values.flatten().tolist() == pytest.approx([1, 2, 3], rel=1e-12)
    assert judgement.rho.flatten().tolist() == [1, 1]
    assert judgement.returns.value_target.flatten().tolist() == pytest.approx([19.9, 20])
    assert judgement.returns.td.flatten().tolist() == pytest.approx([18.9, 18])
    assert judgement.returns.advantage.flatten().tolist() == pytest.approx([18.9, 18])


class TestAlignedCredit:
    def test_an_action_gets_what_it_brought(self, aligned):
        """Values 1, 2, 3; rewards (99, unread) 10, 20; discounts (1, unread) 1, 0; on policy.

        delta_0 = 10 + 0.9 x 2 - 1 = 10.8; delta_1 = 20 + 0 x 3 - 2 = 18: the episode ended.
        The rest as above, where the same numbers were stored one step earlier.
        """
        function, state = aligned
        rollout = rollout_of(observing(1.0, 2.0, 3.0), [99, 10, 20], [1, 1, 0])
        judgement = function.judge(state, rollout, rollout.logits)
        assert judgement.returns.value_target.flatten().tolist() == pytest.approx([19.9, 20])
        assert judgement.returns.td.flatten().tolist() == pytest.approx([18.9, 18])
        assert judgement.returns.advantage.flatten().tolist() == pytest.approx([18.9, 18])

    def test_nothing_passes_from_one_episode_to_the_next(self, aligned):
        """Step 1 begins an episode: what comes after is no business of action 0."""
        function, state = aligned
        observations = observing(1.0, 2.0, 3.0)
        calm = rollout_of(observations, [0, 5, 0], [1, 0, 1])
        wild = rollout_of(observing(1.0, 7.0, 8.0), [0, 5, 50], [1, 0, 1])
        for rollout in (calm, wild):
            advantage = function.judge(state, rollout, rollout.logits).returns.advantage
            assert float(advantage[0]) == pytest.approx(5 - 1)

    def test_a_cut_off_episode_is_bootstrapped_and_its_gap_does_not_count(self, aligned):
        """The episode is cut off at observation 1, shown with value 2; observation 2 begins the
        next one, and 3 follows it.

        advantage_0 = 10 + 0.9 x 2 - 1 = 10.8, with nothing from beyond the cut.
        advantage_1 = 0: there is no transition from one episode to the next.
        advantage_2 = 30 + 0.9 x 4 - 3 = 30.6
        """
        function, state = aligned
        rollout = rollout_of(observing(1.0, 2.0, 3.0, 4.0), [0, 10, 77, 30], [1, 1, 1, 1])
        final = torch.tensor([[False], [True], [False], [False]])
        rollout = replace(rollout, final=final)
        returns = function.judge(state, rollout, rollout.logits).returns
        assert returns.advantage.flatten().tolist() == pytest.approx([10.8, 0, 30.6])
        assert returns.td.flatten().tolist() == pytest.approx([10.8, 0, 30.6])

    @pytest.mark.parametrize("credit", ["published", "aligned"])
    def test_a_bandit_of_one_step_is_judged_by_the_arm_only_if_aligned(self, credit):
        """Arms pay 0.06 and 0.49, at once; every step is an episode."""
        game = "bandit:arms=2,noise=0,seed=1"
        env = find_environment(game).make(256)
        means = torch.tensor(env.game.means[0])
        function = ValueFunction(env.observation_spec, ValueConfig(credit=credit))
        state = function.init(torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(1)
        step, steps, actions = env.reset(0), [], []
        for _ in range(8):
            action = torch.randint(2, (256,), generator=generator)
            steps.append(step)
            actions.append(action)
            step = env.step(action)
        rollout = Rollout.from_steps(steps, actions, [torch.zeros(256, 2)] * 8)
        advantage = function.judge(state, rollout, rollout.logits).returns.advantage[1:]
        taken = rollout.actions[1:-1]
        difference = advantage[taken == 0].mean() - advantage[taken == 1].mean()
        expected = float(means[0] - means[1]) if credit == "aligned" else 0.0
        assert float(difference) == pytest.approx(expected, abs=0.01)


def test_importance_weights_are_clipped_at_one(identity):
    """Policy (3/4, 1/4) against behaviour (1/2, 1/2); actions 0, then 1: weights 3/2 and 1/2.

    delta_0 = 1 + 0.9 x 0 - 0 = 1; delta_1 = 0.5 (2 + 0.9 x 4 - 0) = 2.8
    error_0 = 1 + 0.9 x 0.5 x 1 x 2.8 = 2.26
    advantages: 1 + 0.9 (0.5 x 2.8 + 0) = 2.26; 0.5 (2 + 0.9 x 4) = 2.8
    """
    function, state = identity
    actions = torch.tensor([[0], [1], [0]])
    rollout = rollout_of(observing(0.0, 0.0, 4.0), [1, 2, 99], [1, 1, 1], actions=actions)
    logits = torch.tensor([math.log(3.0), 0.0], dtype=torch.float64).expand(3, 1, 2)
    judgement = function.judge(state, rollout, logits)
    assert judgement.rho.flatten().tolist() == pytest.approx([1.5, 0.5])
    assert judgement.returns.td.flatten().tolist() == pytest.approx([2.26, 2.8])
    assert judgement.returns.advantage.flatten().tolist() == pytest.approx([2.26, 2.8])


def test_moving_averages_normalise(identity):
    """The averages take in this rollout first; after one, mean and deviation are its own."""
    function, state = identity
    rollout = rollout_of(observing(1.0, 2.0, 3.0), [10, 20, 99], [1, 0, 1])
    judgement = function.judge(state, rollout, rollout.logits)
    mean, deviation = (18.9 + 18) / 2, (18.9 - 18) / 2
    normalized = judgement.normalized_advantage.flatten().tolist()
    assert normalized == pytest.approx([1, -1], rel=1e-5)
    # TD errors are scaled, their mean is kept.
    scaled = judgement.normalized_td.flatten().tolist()
    assert scaled == pytest.approx([18.9 / deviation, 18 / deviation], rel=1e-5)
    assert float(judgement.advantage.first) == pytest.approx(0.01 * mean)
    assert float(judgement.advantage.second) == pytest.approx(0.01 * (18.9**2 + 18**2) / 2)
    assert float(judgement.advantage.decay_product) == pytest.approx(0.99)
    # A second rollout finds the first one's moments.
    later = function.judge(
        replace(state, advantage=judgement.advantage, td=judgement.td), rollout, rollout.logits
    )
    assert float(later.advantage.first) == pytest.approx((0.99 + 1) * 0.01 * mean)
    assert float(later.advantage.decay_product) == pytest.approx(0.99**2)


def test_judging_changes_nothing_and_carries_no_gradient(identity):
    function, state = identity
    rollout = rollout_of(observing(1.0, 2.0, 3.0), [10, 20, 99], [1, 0, 1])
    before = {name: t.clone() for name, t in flatten(state).items()}
    logits = rollout.logits.clone().requires_grad_()
    judgement = function.judge(state, rollout, logits)
    for tensor in (judgement.values, judgement.rho, judgement.normalized_advantage):
        assert not tensor.requires_grad
    assert all(torch.equal(t, before[name]) for name, t in flatten(state).items())


def test_the_update_is_adams_on_the_raw_output(identity):
    """Gradient of 0.5 (out - stop(out + td))^2: minus the scaled TD error, by the output.

    Both steps' errors are positive, so is every input; Adam's first step is the learning rate up.
    """
    function, state = identity
    rollout = rollout_of(observing(1.0, 2.0, 3.0), [10, 20, 99], [1, 0, 1])
    new = function.update(state, rollout, rollout.logits)
    for name, param in state.params.items():
        assert (new.params[name] - param).flatten().tolist() == pytest.approx([1e-3], rel=1e-6)
    judgement = function.judge(state, rollout, rollout.logits)
    assert float(new.optimiser.first["head.bias"]) == pytest.approx(
        -0.1 * float(judgement.normalized_td.mean())
    )
    assert int(new.optimiser.count) == 1
    assert new.advantage == judgement.advantage
    assert new.td == judgement.td
    assert not any(t.requires_grad for t in flatten(new).values())


def test_updates_move_values_towards_their_targets():
    """A reward of one at every step of endless episodes: the value is 1 / (1 - 0.9) = 10."""
    config = ValueConfig(value_torso=(8, 8), value_learning_rate=0.01, value_discount=0.9)
    function = ValueFunction(ArraySpec((1,)), config)
    state = function.init(torch.Generator().manual_seed(0), torch.float64)
    rollout = rollout_of([1.0] * 20, [1.0] * 20, [1.0] * 20)
    errors = []
    for _ in range(300):
        values = function.judge(state, rollout, rollout.logits).values
        errors.append(float((values - 10).abs().max()))
        state = function.update(state, rollout, rollout.logits)
    assert errors[0] > 9
    assert errors[100] < errors[0]
    assert min(errors) < 1
    assert errors[-1] < 2


def test_a_fresh_network_has_seen_nothing():
    function = ValueFunction(ArraySpec((3, 2)), ValueConfig(value_torso=(5, 4)))
    state = function.init(torch.Generator().manual_seed(0))
    assert {n: tuple(p.shape) for n, p in state.params.items()} == {
        "torso.layers.0.weight": (5, 6),
        "torso.layers.0.bias": (5,),
        "torso.layers.1.weight": (4, 5),
        "torso.layers.1.bias": (4,),
        "head.weight": (1, 4),
        "head.bias": (1,),
    }
    assert float(state.params["head.weight"].abs().max()) < 0.05
    assert int(state.optimiser.count) == 0
    assert not any(t.any() for t in state.optimiser.first.values())
    for average in (state.advantage, state.td):
        assert flatten(average) == flatten(MovingAverage.initial())
    again = function.init(torch.Generator().manual_seed(0))
    other = function.init(torch.Generator().manual_seed(1))
    for name, param in state.params.items():
        assert torch.equal(param, again.params[name])
    assert not torch.equal(state.params["head.weight"], other.params["head.weight"])


def test_values_are_read_through_the_inverse_of_the_squashing(identity):
    function, state = identity
    rollout = rollout_of([0.0, 1.0, -2.0], [0, 0, 0], [1, 1, 1])
    judgement = function.judge(state, rollout, rollout.logits)
    assert judgement.net_out.flatten().tolist() == [0, 1, -2]
    expected = signed_parabolic(torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64))
    assert torch.equal(judgement.values.flatten(), expected)
