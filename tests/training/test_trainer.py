"""The trainer's step: reproducible, restorable, and careful with what it is fed."""

import math
import time
from typing import ClassVar

import pytest
import torch

from discorl.envs import TimeStep, optimal_return
from discorl.envs.sources import EnvironmentSource
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec
from discorl.rules.actor_critic import ActorCritic
from discorl.training.config import TrainConfig
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer

ACTOR_CRITIC = ActorCritic(num_bins=21, max_abs_value=10.0)


def config(**settings):
    small = {
        "env": "catch:rows=5,columns=5",
        "torso": (16, 16),
        "model_size": 8,
        "head_hidden": 8,
        "batch_size": 8,
        "num_envs": 2,
        "rollout_length": 9,
        "replay_capacity": 16,
        "learning_rate": 1e-3,
    }
    return TrainConfig.from_json(small | settings)


@pytest.fixture(params=["disco", "actor_critic"])
def rule(request, tiny_rule):
    return ACTOR_CRITIC if request.param == "actor_critic" else tiny_rule


def run(trainer, steps):
    """Metrics of every step as numbers."""
    records = []
    for _ in range(steps):
        metrics = trainer.train_step()
        records.append(metrics and {name: value.item() for name, value in metrics.items()})
    return records


def same_tensors(one, other):
    return list(one) == list(other) and all(torch.equal(t, other[n]) for n, t in one.items())


def assert_same_episodes(one, other):
    ours, theirs = one.life.episodes, other.life.episodes
    assert ours.recent
    assert (ours.count, list(ours.recent)) == (theirs.count, list(theirs.recent))


def watch(monkeypatch, mind):
    """The batches that a mind learns from, as they come."""
    batches, learn = [], mind.learn
    monkeypatch.setattr(mind, "learn", lambda b, *rest: batches.append(b) or learn(b, *rest))
    return batches


def test_a_seed_fixes_a_run(rule):
    first, again = Trainer(config(), rule), Trainer(config(), rule)
    assert run(first, 12) == run(again, 12)
    assert same_tensors(first.checkpoint().tensors, again.checkpoint().tensors)


def test_other_seeds_differ_from_the_start(rule):
    first, other = Trainer(config(), rule), Trainer(config(seed=1), rule)
    name = "head.logits.weight"
    assert not torch.equal(first.life.state.params[name], other.life.state.params[name])
    assert run(first, 8) != run(other, 8)


def test_the_global_generator_is_neither_used_nor_changed(rule):
    torch.manual_seed(1)
    first = Trainer(config(), rule)
    records = run(first, 6)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    other = Trainer(config(), rule)
    # MLP layers may draw before they are overwritten; results must not depend on it.
    assert run(other, 6) == records
    assert state.shape == before.shape


@pytest.mark.parametrize("cut", [0, 2, 5, 11])
def test_a_restored_trainer_goes_on_bit_for_bit(rule, cut):
    whole = Trainer(config(), rule)
    run(whole, cut)
    saved = whole.checkpoint()
    tensors = {name: t.clone() for name, t in saved.tensors.items()}
    rest = run(whole, 9)
    other = Trainer(config(), rule)
    run(other, 1)  # What it did before must not matter.
    fresh = Trainer(config(), rule)
    fresh.restore(type(saved)(saved.step, tensors, saved.values))
    assert fresh.step == cut
    assert run(fresh, 9) == rest
    assert same_tensors(fresh.checkpoint().tensors, whole.checkpoint().tensors)
    assert_same_episodes(fresh, whole)


def test_restoring_forgets_what_came_before():
    one, other = Trainer(config(), ACTOR_CRITIC), Trainer(config(seed=5), ACTOR_CRITIC)
    run(one, 6)
    run(other, 6)
    saved = one.checkpoint()
    other.restore(saved)
    assert_same_episodes(other, one)


def test_a_checkpoint_is_not_changed_by_training_on():
    trainer = Trainer(config(), ACTOR_CRITIC)
    run(trainer, 20)  # The replay is full: its tensors could be handed out as they are.
    saved = trainer.checkpoint()
    before = {name: t.clone() for name, t in saved.tensors.items()}
    seconds = dict(saved.values["seconds"])
    run(trainer, 2)
    assert same_tensors(saved.tensors, before)
    assert saved.values["seconds"] == seconds


@pytest.mark.parametrize(
    "other", [{"torso": (8, 16)}, {"num_envs": 4}, {"rollout_length": 5}, {"env": "catch"}]
)
def test_a_checkpoint_of_another_run_is_refused(other):
    saved = Trainer(config(), ACTOR_CRITIC)
    run(saved, 3)
    with pytest.raises(DiscorlError, match="does not fit this run"):
        Trainer(config(**other), ACTOR_CRITIC).restore(saved.checkpoint())


def test_learning_waits_for_a_batch():
    records = run(Trainer(config(), ACTOR_CRITIC), 6)
    # Two trajectories a step, eight wanted.
    assert [r is None for r in records] == [True, True, True, False, False, False]


@pytest.mark.parametrize(("fraction", "envs", "fresh"), [(1.0, 2, 0), (0.75, 2, 2), (0.5, 5, 4)])
def test_fresh_trajectories_are_in_the_batch(fraction, envs, fresh, monkeypatch):
    trainer = Trainer(config(replay_fraction=fraction, num_envs=envs), ACTOR_CRITIC)
    replay, rollouts = trainer.life.mind.replay, []
    batches, add = watch(monkeypatch, trainer.life.mind), replay.add
    monkeypatch.setattr(replay, "add", lambda r: rollouts.append(r) or add(r))
    for _ in range(8):
        seen = len(batches)
        trainer.train_step()
        if len(batches) == seen:
            continue
        batch, newest = batches[-1], rollouts[-1]
        assert batch.actions.shape == (9, 8)
        for name in ("observations", "actions", "rewards", "discounts", "logits"):
            assert torch.equal(getattr(batch, name)[:, :fresh], getattr(newest, name)[:, :fresh])
        stored = torch.cat([r.logits for r in rollouts], dim=1)
        for b in range(fresh, 8):
            matches = (stored == batch.logits[:, b : b + 1]).all(dim=2).all(dim=0)
            assert matches.any()
    assert len(batches) >= 5


def test_without_replay_the_batch_is_the_newest_rollout(monkeypatch):
    trainer = Trainer(config(replay_fraction=0.0, num_envs=5, batch_size=None), ACTOR_CRITIC)
    assert trainer.life.mind.replay is None
    batches = watch(monkeypatch, trainer.life.mind)
    assert all(metrics is not None for metrics in run(trainer, 3))
    assert [batch.actions.shape for batch in batches] == [(9, 5)] * 3
    assert not any(name.startswith("replay") for name in trainer.checkpoint().tensors)


def test_a_batch_of_no_size_is_all_new_trajectories_and_their_share_of_old_ones():
    both = config(replay_fraction=0.75, num_envs=2, batch_size=None)
    assert both.life.experience.shares == (2, 6)
    with pytest.raises(DiscorlError, match="--batch-size: say how many"):
        config(replay_fraction=1.0, batch_size=None)


def test_the_batch_must_be_possible():
    with pytest.raises(DiscorlError, match="wants 4 new trajectories a step, but 2"):
        config(replay_fraction=0.5)
    with pytest.raises(DiscorlError, match="--replay-capacity 4: expected room for a batch"):
        config(replay_capacity=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("num_envs", 0),
        ("rollout_length", 1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("replay_fraction", 1.5),
        ("torso", ()),
        ("checkpoint_every", 0),
        ("keep_checkpoints", 0),
    ],
)
def test_senseless_settings_name_their_flag(name, value):
    with pytest.raises(DiscorlError, match="--" + name.replace("_", "-")):
        config(**{name: value})


def test_a_config_comes_back_from_json():
    before = config(seed=7, action_head_std=0.5)
    assert TrainConfig.from_json(before.to_json()) == before
    with pytest.raises(DiscorlError, match=r"unknown training setting 'stpes'.*steps"):
        TrainConfig.from_json({"stpes": 3})


def test_presets_depend_on_the_rule():
    assert make_config(rule="actor_critic").torso == (64, 32, 32)
    assert make_config(rule="actor_critic", torso=(4,)).torso == (4,)
    assert make_config(env="catch:rows=5", steps=3).steps == 3


class Faulty:
    """An environment whose reward is broken from one step on."""

    num_actions, observation_spec = 3, ArraySpec((2,))

    def __init__(self, num_envs, bad_call, value):
        self.num_envs, self.bad_call, self.value, self.calls = num_envs, bad_call, value, 0

    def reset(self, seed):
        return self._give(0.0)

    def step(self, actions):
        self.calls += 1
        return self._give(self.value if self.calls >= self.bad_call else 0.0)

    def state_dict(self):
        return {"calls": torch.tensor(self.calls)}

    def load_state_dict(self, state):
        self.calls = int(state["calls"])

    def close(self):
        pass

    def _give(self, reward):
        rewards = torch.zeros(self.num_envs)
        rewards[-1] = reward
        return TimeStep(torch.zeros(self.num_envs, 2), rewards, torch.zeros(self.num_envs).bool())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_names_environment_and_step(value):
    # Nine calls a step: the fifth call of the third one.
    source = EnvironmentSource("faulty:x=1", lambda n: Faulty(n, 23, value))
    trainer = Trainer(config(env=source.name), ACTOR_CRITIC, source)
    run(trainer, 2)
    with pytest.raises(DiscorlError, match=r"'faulty:x=1' gave a reward .*not finite at step 3"):
        trainer.train_step()
    # Nothing of it was stored.
    assert trainer.life.mind.replay.size == 4


def test_evaluation_does_not_touch_training(rule):
    watched, plain = Trainer(config(), rule), Trainer(config(), rule)
    for _ in range(6):
        run(watched, 1)
        run(plain, 1)
        watched.evaluate(greedy=True, episodes=3)
        watched.evaluate(greedy=False, episodes=3)
    assert same_tensors(watched.checkpoint().tensors, plain.checkpoint().tensors)
    assert watched.evaluate(greedy=True, episodes=7).episodes == 7


def test_environment_steps_are_counted():
    trainer = Trainer(config(), ACTOR_CRITIC)
    run(trainer, 5)
    assert trainer.env_steps == 5 * 9 * 2
    # 45 stored steps, of which the first is a start: 44 outcomes of episodes of four.
    assert trainer.life.episodes.count == 2 * 11
    assert len(trainer.life.episodes.recent) == 22


def test_an_unknown_device_is_said():
    with pytest.raises(DiscorlError, match="--device gpu9 cannot be used here"):
        Trainer(config(device="gpu9"), ACTOR_CRITIC)


def test_a_cosine_schedule_ends_with_the_run():
    trainer = Trainer(config(learning_rate_schedule="cosine", steps=40), ACTOR_CRITIC)
    schedule = trainer.life.mind.learner.optimiser.schedule
    assert float(schedule(torch.tensor(0))) == pytest.approx(1e-3)
    assert float(schedule(torch.tensor(40))) == pytest.approx(0, abs=1e-9)


# --- episodes of one step


def one_step_bandit(**settings):
    return config(
        env="bandit:noise=0",
        replay_fraction=0.0,
        batch_size=None,
        num_envs=8,
        learning_rate=3e-3,
        value_width=0.3,
        **settings,
    )


def test_first_steps_are_learned_from_if_asked_for():
    trainer = Trainer(one_step_bandit(learn_first_steps=True), ACTOR_CRITIC)
    run(trainer, 150)
    assert trainer.evaluate(greedy=True, episodes=20).mean_return == pytest.approx(
        optimal_return("bandit:noise=0")
    )
    assert trainer.life.episodes.mean_return() > 0.5


def test_by_default_there_is_nothing_to_learn_from_episodes_of_one_step():
    trainer = Trainer(one_step_bandit(), ACTOR_CRITIC)
    records = run(trainer, 5)
    # Only the very first step of all follows no end.
    assert records[0]["total_loss"] != 0
    assert [r["total_loss"] for r in records[1:]] == [0.0] * 4
    assert [r["global_gradient_norm"] for r in records[1:]] == [0.0] * 4


# --- environments that cut episodes off or cannot be put back


class Truncating:
    """Episodes of four steps, cut off; the next one begins in the same step."""

    num_actions, observation_spec = 3, ArraySpec((2,))

    def __init__(self, num_envs, forgetful=False):
        self.num_envs, self.forgetful, self.clock = num_envs, forgetful, 0

    def reset(self, seed):
        self.clock = 0
        return self._give(False)

    def step(self, actions):
        self.clock = (self.clock + 1) % 4
        return self._give(self.clock == 0)

    def state_dict(self):
        return {"clock": torch.tensor(self.clock)}

    def load_state_dict(self, state):
        if self.forgetful:
            return self.reset(0)
        self.clock = int(state["clock"])
        return None

    def close(self):
        pass

    def _see(self, clock):
        return torch.tensor([[clock, 1.0]]).expand(self.num_envs, 2)

    def _give(self, cut):
        terminated, truncated = (torch.full((self.num_envs,), flag) for flag in (False, cut))
        last = self._see(4.0) if cut else None
        seen, ones = self._see(float(self.clock)), torch.ones(self.num_envs)
        return TimeStep(seen, ones, terminated, truncated, last=last)


def truncating(forgetful=False, **settings):
    """A trainer in an environment whose episodes are cut off."""
    source = EnvironmentSource("truncating", lambda n: Truncating(n, forgetful))
    return Trainer(config(env=source.name, **settings), ACTOR_CRITIC, source)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_cut_off_episodes_are_counted_and_replayed(memory):
    trainer = truncating(memory=memory, memory_size=4)
    records = run(trainer, 6)
    assert records[-1] is not None
    # 54 stored steps, of which the first is a start: 53 outcomes of episodes of four.
    assert trainer.life.episodes.count == 2 * 13
    assert {e.length for e in trainer.life.episodes.recent} == {4}
    batch = trainer.life.mind.replay.sample(8, torch.Generator())
    assert batch.final.any()
    assert (batch.memory is None) == (memory == "none")


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("cut", [1, 3, 4])
def test_a_restored_trainer_goes_on_where_episodes_are_cut_off(memory, cut):
    # Four rollouts of nine steps end with an episode: the next step is the one that tells of it.
    whole = truncating(memory=memory, memory_size=4)
    run(whole, cut)
    saved = whole.checkpoint()
    tensors = {name: t.clone() for name, t in saved.tensors.items()}
    rest = run(whole, 6)
    fresh = truncating(memory=memory, memory_size=4)
    fresh.restore(type(saved)(saved.step, tensors, saved.values))
    assert run(fresh, 6) == rest
    assert same_tensors(fresh.checkpoint().tensors, whole.checkpoint().tensors)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_an_environment_that_cannot_be_put_back_begins_new_episodes(memory):
    saved = truncating(True, memory=memory, memory_size=4)
    run(saved, 5)
    assert saved.life.time_step.observation[0, 0] != 0
    other = truncating(True, memory=memory, memory_size=4)
    run(other, 2)
    other.restore(saved.checkpoint())
    assert other.step == 5
    assert other.life.time_step.observation[:, 0].tolist() == [0, 0]
    if memory == "gru":
        assert not any(tensor.any() for tensor in other.life.memory.values())
    # What was under way is no episode.
    other.life.episodes.recent.clear()
    run(other, 3)
    assert {e.length for e in other.life.episodes.recent} == {4}


def test_acting_in_the_background_is_reproducible_and_one_step_behind(monkeypatch, rule):
    settings = config(overlap=True, replay_fraction=0.5, batch_size=4)
    first, second = (Trainer(settings, rule) for _ in range(2))
    batches = watch(monkeypatch, first.life.mind)
    acted, take_in = [], first.life.take_in
    monkeypatch.setattr(
        first.life, "take_in", lambda played: acted.append(take_in(played)) or acted[-1]
    )
    records = run(first, 12)
    assert records == run(second, 12)
    assert_same_episodes(first, second)
    # The first rollout is there before anything is learned; then each is learned from a step later
    assert records[0] is None
    assert first.updates == len(batches) == 11
    for rollout, batch in zip(acted, batches, strict=False):
        assert torch.equal(batch.rewards[:, :2], rollout.rewards)
    for trainer in (first, second):
        trainer.close()


def test_acting_in_the_background_resumes(rule):
    settings = config(overlap=True)
    stopped, resumed = (Trainer(settings, rule) for _ in range(2))
    run(stopped, 8)
    resumed.restore(stopped.checkpoint())
    # As at the very start, the first step has no rollout before it to learn from
    assert run(resumed, 1) == [None]
    assert resumed.step == stopped.step + 1
    assert all(record is not None for record in run(resumed, 3))
    for trainer in (stopped, resumed):
        trainer.close()


def test_an_environment_that_fails_in_the_background_is_reported():
    trainer = Trainer(config(overlap=True), ACTOR_CRITIC)
    run(trainer, 5)

    def fail(_actions):
        raise DiscorlError("out of order")

    trainer.life.env.step = fail
    with pytest.raises(DiscorlError, match="out of order"):
        run(trainer, 1)
    assert trainer.step == 5
    trainer.close()


class SlowTorso(torch.nn.Module):
    """Looks at its weights twice, and notes if somebody else has put others in their place."""

    swapped: ClassVar[list[bool]] = []

    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, 8)

    def forward(self, observations):
        before = self.linear.weight
        time.sleep(0.002)
        self.swapped.append(self.linear.weight is not before)
        return self.linear(observations.flatten(-3).float())


def test_acting_in_the_background_never_sees_what_learning_does_to_the_network():
    SlowTorso.swapped.clear()
    settings = config(overlap=True)
    size = math.prod(Trainer(config(), ACTOR_CRITIC).life.env.observation_spec.shape)
    trainer = Trainer(settings, ACTOR_CRITIC, network=SlowTorso(size))
    run(trainer, 6)
    trainer.close()
    assert len(SlowTorso.swapped) > 20
    assert not any(SlowTorso.swapped)
