"""Meta-gradients: against the published implementation, one mode against the other, and against
finite differences."""

from dataclasses import dataclass, replace

import pytest
import torch
from goldens import DATA, LARGE

from discorl.agents.network import Network, NetworkConfig
from discorl.discovery.meta_gradient import REVERSE_UP_TO, meta_gradient
from discorl.discovery.meta_loss import MetaLossConfig
from discorl.discovery.value_function import ValueConfig, ValueFunction
from discorl.envs.registry import make_environment
from discorl.learner import Learner
from discorl.life.acting import act
from discorl.optim import ClippedAdam, Schedule
from discorl.outputs import AgentOutputs
from discorl.rules.actor_critic import ActorCritic
from discorl.tree import flatten
from discorl.verify import verify_files

TINY = [DATA / "meta_inner1.npz", DATA / "meta_inner3.npz"]
FULL = sorted((LARGE / "meta").glob("*.npz"))


@pytest.mark.parametrize("path", TINY, ids=lambda p: p.stem)
def test_tiny_goldens(path):
    check_golden(path, None)


@pytest.mark.parametrize("path", FULL, ids=lambda p: p.stem)
def test_goldens(path, disco103_path):
    check_golden(path, disco103_path)


def check_golden(path, weights):
    """`discorl verify` runs both modes and reports the larger error of each quantity."""
    (report,) = verify_files([path], weights).files
    assert not report.problem
    assert report.kind == "meta"
    checks = report.precisions["float64"].checks
    kinds = {check.quantity.partition("/")[0] for check in checks}
    assert kinds == {"meta_grad", "log", "agent_after", "value_after"}
    assert all(check.error is not None and check.error < 1e-7 for check in checks)


@dataclass
class Setup:
    """Everything that `meta_gradient` takes, in float64 and small."""

    learner: Learner
    state: object
    value_function: ValueFunction
    value_state: object
    train: list
    valid: object
    config: MetaLossConfig | None = None

    def run(self, mode="auto"):
        return meta_gradient(
            self.learner,
            self.state,
            self.value_function,
            self.value_state,
            self.train,
            self.valid,
            self.config,
            mode,
        )


def make_setup(rule, updates, optimiser=None, spread=0.3):
    """An agent in mid-life on Catch: nothing of it is zero, fresh or nearly uniform."""
    rule = rule.to(torch.float64)
    generator = torch.Generator().manual_seed(1)
    env = make_environment("catch:rows=4,columns=3", 3)
    network = NetworkConfig(torso=(8, 7), model_size=5, head_hidden=6)
    agent = Network.mlp(env.observation_spec.shape, rule.heads(env.num_actions), network)
    learner = Learner(agent, rule, optimiser or ClippedAdam(Schedule(0.01)))
    state = learner.init(generator, torch.float64)

    def stir(tensors):
        return {
            name: t + spread * torch.randn(t.shape, generator=generator, dtype=t.dtype)
            for name, t in tensors.items()
        }

    target_params = stir(state.params)
    state = replace(state, params=stir(state.params), target_params=target_params)
    value_function = ValueFunction(env.observation_spec, ValueConfig(value_torso=(6, 5)))
    value_state = value_function.init(generator, torch.float64)
    step, rollouts = env.reset(2), []
    for length in [5] * updates + [9]:
        acted = act(agent, state.params, env, step, length, generator)
        step = acted.step
        # The actor was a little different from the learner: importance weights are not one.
        rollout = acted.rollout.to(torch.float64)
        rollouts.append(replace(rollout, logits=stir({"logits": rollout.logits})["logits"]))
    *train, valid = rollouts
    return Setup(learner, state, value_function, value_state, train, valid)


def assert_close(ours, expected, tolerance):
    """Each tensor relative to its largest magnitude."""
    assert list(ours) == list(expected)
    for name, tensor in expected.items():
        error = (ours[name] - tensor).abs().max()
        assert error <= tolerance * tensor.abs().max().clamp(min=1e-300), name


@pytest.mark.parametrize("updates", [1, 2, 5])
def test_both_modes_agree(tiny_rule, updates):
    setup = make_setup(tiny_rule, updates)
    # Given an agent that has already learned, so that no memory of its state is empty
    state, value_state = setup.state, setup.value_state
    for rollout in setup.train:
        state, _ = setup.learner.step(state, rollout)
        value_state = setup.value_function.update(value_state, rollout, rollout.logits)
    setup = replace(setup, state=state, value_state=value_state)
    reverse, mixed = setup.run("reverse"), setup.run("mixed")
    assert_close(mixed.grads, reverse.grads, 1e-10)
    # The meta-RNN takes effect at the next update only.
    silent = {name for name, grad in reverse.grads.items() if not grad.any()}
    assert silent == ({n for n in reverse.grads if n.startswith("meta")} if updates == 1 else set())
    assert_close(flatten(mixed.state), flatten(reverse.state), 1e-10)
    assert_close(flatten(mixed.value_state), flatten(reverse.value_state), 1e-10)
    assert_close(mixed.metrics, reverse.metrics, 1e-10)
    assert_close(mixed.inner_metrics, reverse.inner_metrics, 1e-10)


@pytest.mark.parametrize("mode", ["reverse", "mixed"])
def test_the_agent_after_is_the_learners(tiny_rule, mode):
    """There is one learner step: what discovery leaves is what training would have made."""
    setup = make_setup(tiny_rule, 2)
    result = setup.run(mode)
    state = setup.state
    for rollout in setup.train:
        state, metrics = setup.learner.step(state, rollout)
    assert_close(flatten(result.state), flatten(state), 1e-12)
    assert_close(result.inner_metrics, metrics, 1e-12)
    assert not any(t.requires_grad for t in flatten(result).values())


def with_cuts(rollout):
    """The same rollout, in which one trajectory was cut off in the middle."""
    final = torch.zeros_like(rollout.actions, dtype=torch.bool)
    final[len(final) // 2, 1] = True
    return replace(rollout, final=final)


@pytest.mark.parametrize("cuts", [False, True])
def test_modes_agree_on_first_steps_and_cut_off_episodes(tiny_rule, cuts):
    setup = make_setup(tiny_rule, 2)
    if cuts:
        setup = replace(setup, train=[with_cuts(rollout) for rollout in setup.train])
    default = setup.run("reverse")
    setup = replace(setup, learner=replace(setup.learner, learn_first_steps=True))
    reverse, mixed = setup.run("reverse"), setup.run("mixed")
    assert_close(mixed.grads, reverse.grads, 1e-10)
    assert_close(flatten(mixed.state), flatten(reverse.state), 1e-10)
    assert any(
        not torch.allclose(p, default.state.params[n]) for n, p in reverse.state.params.items()
    )


def test_auto_takes_the_mode_by_the_number_of_updates(tiny_rule, monkeypatch):
    few, many = make_setup(tiny_rule, REVERSE_UP_TO), make_setup(tiny_rule, REVERSE_UP_TO + 1)
    expected = few.run("reverse").grads, many.run("mixed").grads
    for setup, grads in zip((few, many), expected, strict=True):
        found = setup.run().grads
        assert all(torch.equal(found[name], grad) for name, grad in grads.items())


class Replayed:
    """Plays back in later runs what the first run computed."""

    def __init__(self):
        self.recording, self.record, self.position = True, [], 0

    def rewind(self):
        self.recording, self.position = False, 0

    def __call__(self, value):
        if self.recording:
            self.record.append(value)
            return value
        self.position += 1
        return self.record[self.position - 1]


class FixedFeatures:
    """An agent whose policy and action values look to the *rule* as they did in the first run.

    `outputs`, and the first of what `learn` returns, feed the rule's targets alone.
    """

    def __init__(self, agent):
        self._agent, self.heads, self.num_actions = agent, agent.heads, agent.num_actions
        self.taken, self.replayed = agent.taken, Replayed()

    def outputs(self, params, observations, for_targets=False):
        return self._fixed(self._agent.outputs(params, observations, for_targets))

    def learn(self, params, observations, actions, differentiable=False):
        found, taken = self._agent.learn(params, observations, actions, differentiable)
        return self._fixed(found), taken

    def _fixed(self, found):
        logits, q = self.replayed((found.logits.detach(), found.action["q"].detach()))
        return AgentOutputs(found.state | {"logits": logits}, found.action | {"q": q})


class FixedJudge(ValueFunction):
    """A value function that judges the validation rollout as it did in the first run."""

    def __init__(self, plain, valid):
        self.__dict__.update(plain.__dict__)
        self._valid, self.replayed = valid, Replayed()

    def judge(self, state, rollout, logits):
        judgement = super().judge(state, rollout, logits)
        return self.replayed(judgement) if rollout is self._valid else judgement


def fixed(setup):
    """The same problem, with what the meta-gradient takes for constant held constant."""
    agent = FixedFeatures(setup.learner.agent)
    return replace(
        setup,
        learner=replace(setup.learner, agent=agent),
        value_function=FixedJudge(setup.value_function, setup.valid),
    )


def meta_loss(setup, params):
    for replayed in (setup.learner.agent.replayed, setup.value_function.replayed):
        replayed.rewind()
    learner = replace(setup.learner, rule=setup.learner.rule.with_params(params))
    return replace(setup, learner=learner).run("reverse").metrics["meta_loss"]


# The meta-gradient is not the derivative of the plain pipeline: by its definition some quantities
# count as constants. They are held where they were, each by what is simplest:
# - Adam's denominator: eps of 1e8, and a learning rate 1e8 as large, make it constant (to 1e-10)
#   and leave steps with momentum, far inside the clip;
# - policy and action values that the rule reads (and all that follows from them: values,
#   advantages, importance weights, moving averages, the target policy of the regulariser, the
#   value network's training): played back by `FixedFeatures`;
# - advantages and importance weights of the validation rollout: played back by `FixedJudge`;
# - targets inside the loss, of q and of the one-step policy prediction: they depend on the rule
#   only from the second update on, so there those two losses are left out.
# All else is differentiated: targets, the agent's gradient, momentum, parameters, target
# parameters, y and z as the rule reads them, the meta-RNN, the regularisers.
@pytest.mark.parametrize("updates", [1, 3])
def test_finite_differences(tiny_rule, updates):
    config = tiny_rule.config
    if updates > 1:
        config = replace(config, value_cost=0.0, aux_policy_cost=0.0)
    rule = replace(tiny_rule, config=config).to(torch.float64)
    generator = torch.Generator().manual_seed(3)
    # Biases of zero put dead units on the kink of the next ReLU, where nothing is differentiable.
    biases = {n: 0.1 * torch.randn(p.shape, generator=generator) for n, p in rule.params.items()}
    rule = rule.with_params(
        {n: p + biases[n].double() if n.endswith(".b") else p for n, p in rule.params.items()}
    )
    setup = make_setup(rule, updates, ClippedAdam(Schedule(0.5e8), eps=1e8))
    # Weights at which all parts of the meta-loss matter alike
    weights = MetaLossConfig(0.5, 0.5, target_mean_cost=0.01, target_kl_cost=0.01)
    setup = replace(setup, config=weights)
    result = setup.run("reverse")
    assert_close(setup.run("mixed").grads, result.grads, 1e-9)
    surrogate = fixed(setup)
    assert_close(surrogate.run("reverse").grads, result.grads, 1e-9)
    # Small, so that no unit's ReLU switches between the two ends: at 1e-5 one of z_net does.
    params, step = rule.params, 3e-6
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in params))
    for names in [*([f"{layer}.w", f"{layer}.b"] for layer in layers), list(params)]:
        direction = {
            n: torch.randn(params[n].shape, generator=generator, dtype=torch.float64) for n in names
        }
        moved = [
            meta_loss(surrogate, params | {n: params[n] + h * d for n, d in direction.items()})
            for h in (step, -step)
        ]
        expected = float(moved[0] - moved[1]) / (2 * step)
        found = sum(float((result.grads[n] * d).sum()) for n, d in direction.items())
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-9), names


def test_only_discovered_rules_have_meta_gradients(tiny_rule):
    setup = make_setup(tiny_rule, 1)
    learner = replace(setup.learner, rule=ActorCritic())
    with pytest.raises(TypeError, match="only discovered rules have parameters, got ActorCritic"):
        replace(setup, learner=learner).run()


def test_some_rollout_is_needed(tiny_rule):
    with pytest.raises(ValueError, match="train: expected one or more rollouts"):
        replace(make_setup(tiny_rule, 1), train=[]).run()
