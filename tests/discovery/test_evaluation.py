"""Fresh agents are what the population's are; both leave no environment open; any body resumes."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from discorl.discovery import evaluation as evaluation_module
from discorl.discovery import member as member_module
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.discoverer import Discoverer
from discorl.discovery.evaluation import evaluate_rule
from discorl.discovery.member import Member
from discorl.discovery.start import start_discovery
from discorl.envs.tensor import TensorEnvironment
from discorl.errors import DiscorlError
from discorl.library.catalogue import save_rule
from discorl.life.life import Life
from discorl.runs.checkpoint import load_latest, save_checkpoint
from discorl.settings import change

BOARD = "catch:rows=10,columns=10"
REPLAY = {"batch_size": 6, "replay_fraction": 0.5, "replay_capacity": 12}
KINDS = [{}, {"body": "conv"}, {"memory": "gru"}, REPLAY, {"widths": (8, 6)}]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "plain")


class Parts(gymnasium.Env):
    """A dictionary to see: what the last action was, and how long ago the episode began."""

    observation_space = spaces.Dict(
        {"action": spaces.Discrete(3), "clock": spaces.Box(0, 1, (2,), np.float32)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.time, self.action = int(self.np_random.integers(2, 6)), 0, 0
        return self.observe(), {}

    def step(self, action):
        self.time, self.action = self.time + 1, int(action)
        done, cut = self.time == self.length, self.length == 3
        return self.observe(), float(action == 1), done and not cut, done and cut, {}

    def observe(self):
        clock = np.array([self.time / 8, self.length / 8], dtype=np.float32)
        return {"action": self.action, "clock": clock}


def config(**settings):
    small = {
        "envs": (BOARD,),
        "meta_steps": 2,
        "num_envs": 4,
        "rollout_length": 5,
        "torso": (8, 7),
        "memory_size": 8,
        "model_size": 5,
        "head_hidden": 6,
        "value_torso": (6, 5),
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "max_step": 0.5,
        "learn_first_steps": True,
        "clip_rewards": True,
        "eval_steps": 3,
    }
    return change(DiscoverConfig(), small | settings)


def assert_same(one, other):
    assert list(one) == list(other)
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.fixture
def fresh(monkeypatch):
    """The lives that evaluations begin."""
    lives = []

    def begin_life(*args):
        lives.append(member_module.begin_life(*args))
        return lives[-1]

    monkeypatch.setattr(evaluation_module, "begin_life", begin_life)
    return lives


@pytest.fixture
def learned(monkeypatch):
    """The batches that fresh agents, and those of the population, learn from."""
    batches = {"fresh": [], "population": []}
    learn, meta_gradient = Life.learn, member_module.meta_gradient

    def watch_learn(self, batch, measured):
        batches["fresh"].append(batch)
        return learn(self, batch, measured)

    def watch_meta_gradient(*args):
        batches["population"] += args[4]
        return meta_gradient(*args)

    monkeypatch.setattr(Life, "learn", watch_learn)
    monkeypatch.setattr(member_module, "meta_gradient", watch_meta_gradient)
    return batches


def network(life):
    return {name: tuple(p.shape) for name, p in life.state.params.items()}


def assert_alike(life, other):
    """Two agents that differ in what they drew and lived through, and in nothing else."""
    assert network(life) == network(other)
    assert life.config == other.config
    ours, theirs = life.mind, other.mind
    assert ours.learner.optimiser == theirs.learner.optimiser
    assert ours.learner.learn_first_steps == theirs.learner.learn_first_steps
    assert ours.config.shares(4) == theirs.config.shares(4)
    assert ours.burn_in == theirs.burn_in == 0
    assert [m.replay and m.replay.capacity for m in (ours, theirs)] in ([None] * 2, [12] * 2)
    assert life.episodes.recent.maxlen == other.episodes.recent.maxlen


def test_a_fresh_agent_makes_every_update_even_if_replay_must_fill_first(tiny_rule, learned):
    settings = config(batch_size=10, replay_fraction=1.0, replay_capacity=12, eval_steps=3)
    assert evaluate_rule(tiny_rule, settings, BOARD).curve[-1][0] == 3
    assert len(learned["fresh"]) == 3


@each_kind
@pytest.mark.parametrize("index", [0, 1])
def test_fresh_agents_are_the_populations(tiny_rule, fresh, learned, kind, index):
    settings = config(**kind)
    discoverer = Discoverer(settings, tiny_rule)
    evaluate_rule(tiny_rule, settings, BOARD, index=index)
    discoverer.meta_step()
    assert_alike(fresh[0], discoverer.members[index].life)
    shapes = {who: {b.actions.shape for b in batches} for who, batches in learned.items()}
    batch = sum(settings.life.experience.shares)
    assert shapes["fresh"] == shapes["population"] == {(5, batch)}
    remembers = {b.memory is not None for batches in learned.values() for b in batches}
    assert remembers == {"memory" in kind}


def test_the_kinds_differ_in_what_they_say(tiny_rule):
    plain, conv, memory, replay, widths = (
        Member(config(**kind), 1, BOARD, tiny_rule).life for kind in KINDS
    )
    # An MLP unless something else is asked for, also where training would take convolutions.
    assert network(plain)["torso.layers.0.weight"] == (8, 100)
    assert any(len(shape) == 4 for shape in network(conv).values())
    assert memory.memory is not None
    assert replay.mind.config.shares(4) == (3, 3)
    assert network(widths)["torso.layers.0.weight"] == (6, 100)
    assert (plain.mind.learner.optimiser.max_step, plain.mind.learner.learn_first_steps) == (
        0.5,
        True,
    )


def test_a_runs_evaluations_take_the_place_of_agents_on_that_environment(
    tiny_rule, fresh, tmp_path
):
    save_rule(tiny_rule, tmp_path / "rule.safetensors")
    envs = (BOARD, "catch:rows=10,columns=9")
    settings = config(envs=envs, widths=(8, 6), init=str(tmp_path / "rule.safetensors"), **REPLAY)
    start_discovery(settings, tmp_path / "run")
    members = Discoverer(settings, tiny_rule).members
    assert [life.source.name for life in fresh] == [*envs, *envs]
    for life, member in zip(fresh, [*members, *members], strict=True):
        assert_alike(life, member.life)


def resumed(settings, rule, folder):
    """A discovery from its newest checkpoint."""
    discoverer = Discoverer(settings, rule)
    discoverer.restore(load_latest(folder))
    return discoverer


def discovered(settings, rule, folder):
    """A discovery of two meta-steps, with its checkpoint."""
    discoverer = Discoverer(settings, rule)
    for _ in range(2):
        assert discoverer.meta_step().skipped == 0
    save_checkpoint(folder, discoverer.checkpoint(), keep=1)
    return discoverer


def assert_same_future(one, other):
    for _ in range(2):
        assert one.meta_step() == other.meta_step()
    assert_same(one.checkpoint().tensors, other.checkpoint().tensors)


@pytest.mark.parametrize("float64", [False, True])
@pytest.mark.parametrize(
    "kind",
    [{"body": "conv"}, {"memory": "lstm"}, {"memory": "gru", **REPLAY}, {"memory": "transformer"}],
    ids=lambda kind: "-".join(kind.values() if len(kind) == 1 else ("gru", "replay")),
)
def test_any_body_and_memory_resumes_to_the_same_bits(tiny_rule, tmp_path, kind, float64):
    settings = config(agents=2, lifetimes=(6,), float64=float64, **kind)
    whole = discovered(settings, tiny_rule, tmp_path)
    again = resumed(settings, tiny_rule, tmp_path)
    assert_same(again.checkpoint().tensors, whole.checkpoint().tensors)
    assert not torch.equal(whole.rule.params["gate.w"], tiny_rule.params["gate.w"])
    assert_same_future(again, whole)


@pytest.mark.parametrize("kind", [{}, {"memory": "gru", **REPLAY}], ids=["plain", "gru"])
def test_dictionary_observations(tiny_rule, tmp_path, kind):
    """Episodes begin anew where a simulator cannot be put back; all else is as it was."""
    settings = config(envs=(f"{__name__}:Parts",), **kind)
    whole = discovered(settings, tiny_rule, tmp_path)
    one, two = (resumed(settings, tiny_rule, tmp_path) for _ in range(2))
    anew = ("/time_step/", "/env/", "/episodes/", "/memory/")
    stored, found = (
        {k: t for k, t in d.checkpoint().tensors.items() if not any(part in k for part in anew)}
        for d in (whole, one)
    )
    assert_same(found, stored)
    assert_same_future(one, two)


@pytest.fixture
def opened(monkeypatch):
    """Every environment that is made, and whether it is open."""
    is_open = {}
    init, close = TensorEnvironment.__init__, TensorEnvironment.close

    def watch_init(self, *args, **kwargs):
        init(self, *args, **kwargs)
        is_open[self] = True

    def watch_close(self):
        is_open[self] = False
        close(self)

    monkeypatch.setattr(TensorEnvironment, "__init__", watch_init)
    monkeypatch.setattr(TensorEnvironment, "close", watch_close)
    return is_open


@pytest.mark.parametrize("env", [BOARD, "family:catch"])
def test_members_close_their_environments(tiny_rule, opened, env):
    member = Member(config(lifetimes=(2,)), 0, env, tiny_rule)
    for _ in range(3):
        member.meta_step(tiny_rule)
        assert [e for e, is_open in opened.items() if is_open] == [member.life.env]
    assert len(opened) == (3 if env.startswith("family") else 1)
    member.close()
    assert not any(opened.values())


@pytest.mark.parametrize("env", [BOARD, "family:catch"])
@pytest.mark.parametrize("lives", [1, 2])
def test_restored_members_close_what_they_leave(tiny_rule, opened, env, lives):
    settings = config(envs=(env,), agents=1, lifetimes=(2,))
    discoverer, other = (Discoverer(settings, tiny_rule) for _ in range(2))
    for _ in range(lives):
        discoverer.meta_step()
    other.restore(discoverer.checkpoint())
    held = [d.members[0].life.env for d in (discoverer, other)]
    assert [e for e, is_open in opened.items() if is_open] == sorted(held, key=list(opened).index)
    discoverer.close()
    other.close()
    assert not any(opened.values())


@pytest.mark.parametrize("env", [BOARD, "family:catch"])
def test_evaluations_close_their_environments(tiny_rule, opened, env):
    evaluate_rule(tiny_rule, config(), env)
    assert list(opened.values()) == [False]


def test_an_evaluation_that_fails_closes_its_environment(tiny_rule, opened, monkeypatch):
    def fail(self, batch, measured):
        raise DiscorlError("broken")

    monkeypatch.setattr(Life, "learn", fail)
    with pytest.raises(DiscorlError, match="broken"):
        evaluate_rule(tiny_rule, config(), BOARD)
    assert list(opened.values()) == [False]


def test_a_run_closes_all_environments(tiny_rule, opened, tmp_path):
    save_rule(tiny_rule, tmp_path / "rule.safetensors")
    settings = config(
        envs=("family:catch", BOARD), lifetimes=(2,), init=str(tmp_path / "rule.safetensors")
    )
    start_discovery(settings, tmp_path / "run")
    assert len(opened) == 2 + 1 + 4  # The population, one rebirth, and two evaluations of two.
    assert not any(opened.values())
