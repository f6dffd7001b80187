"""Gymnasium environments: the same episodes as Gymnasium's own loop, and nothing across resets."""

import os
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import strange_envs
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from strange_envs import TRUNCATED, Diary, DictDiary, ending, reward_of

from discorl.agents.base import RecurrentAgent
from discorl.envs.base import EnvironmentConfig
from discorl.envs.external import find_maker, make_gymnasium
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.wrappers import NormalizedEnvironment, RunningMoments
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line
from discorl.life.acting import act
from discorl.life.episodes import EpisodeLog
from discorl.outputs import HeadSpec

MODES = list(AutoresetMode)
NEXT, SAME, DISABLED = MODES
ENVS = 3


class Scripted:
    """An agent that acts as a function of the observation says."""

    heads = HeadSpec({"logits": (2,)})

    def __init__(self, decide):
        self.decide = decide

    def policy(self, params, observations):
        actions = torch.as_tensor(self.decide(observations.numpy()))
        return 1e4 * torch.nn.functional.one_hot(actions.long(), 2).float()

    def policy_step(self, params, observations, firsts, memory):
        """Remembers how many observations of the episode it has seen."""
        seen = memory["seen"].masked_fill(firsts, 0) + 1
        return self.policy(params, observations), {"seen": seen}

    def initial_memory(self, batch, device):
        return {"seen": torch.zeros(batch)}

    def init(self, *args):
        raise NotImplementedError("it only acts")

    outputs = taken = learn = remember = init


def make_named(spec, num_envs, **config):
    return make_gymnasium(spec, find_maker(spec), num_envs, config=EnvironmentConfig(**config))


def by_angle(observations):
    return (observations[:, 2] > 0).astype(np.int64)


def short_cartpole():
    return gymnasium.make("CartPole-v1", max_episode_steps=38)


def play(env, decide, steps, remembers=False, length=7, seed=5):
    """Rollouts of `length` steps, and all finished episodes as (return, length)."""
    agent = Scripted(decide)
    memory = agent.initial_memory(env.num_envs, "cpu") if remembers else None
    step, log = env.reset(seed), EpisodeLog(env.num_envs)
    rollouts, episodes = [], []
    for _ in range(steps // length):
        acted = act(agent, {}, env, step, length, torch.Generator(), memory)
        step, memory = acted.step, acted.memory
        rollouts.append(acted.rollout)
        episodes += [(e.total_reward, e.length) for e in log.update(acted)]
    return rollouts, episodes


def plain_episodes(vector, mode, decide, steps, seed=5):
    """The same from Gymnasium's own interface, one number at a time."""
    totals, lengths = [0.0] * vector.num_envs, [0] * vector.num_envs
    resetting, episodes = [False] * vector.num_envs, []
    kinds = set()
    observations, _ = vector.reset(seed=seed)
    # What the last stored step brings is the last thing that is counted.
    for _ in range(steps - 1):
        observations, rewards, terminated, truncated, _ = vector.step(decide(observations))
        done = terminated | truncated
        for i in range(vector.num_envs):
            if resetting[i]:
                resetting[i] = False
                continue
            totals[i] += rewards[i]
            lengths[i] += 1
            if done[i]:
                kinds.add("terminated" if terminated[i] else "truncated")
                episodes.append((totals[i], lengths[i]))
                totals[i], lengths[i] = 0.0, 0
                resetting[i] = mode == NEXT
        if mode == DISABLED and done.any():
            observations, _ = vector.reset(options={"reset_mask": done})
    assert kinds == {"terminated", "truncated"}
    return episodes


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("make", "steps"), [(short_cartpole, 700), (Diary, 140)])
def test_episodes_are_those_of_a_plain_loop(make, steps, mode, remembers):
    vector, twin = (SyncVectorEnv([make] * ENVS, autoreset_mode=mode) for _ in range(2))
    _, episodes = play(GymnasiumEnvironment(vector, "e"), by_angle, steps, remembers)
    expected = plain_episodes(twin, mode, by_angle, steps)
    assert len(expected) > 20
    assert episodes == expected


@pytest.mark.parametrize("mode", MODES)
def test_worker_processes_give_the_same_episodes(mode):
    vector = AsyncVectorEnv([Diary] * 2, autoreset_mode=mode)
    twin = SyncVectorEnv([Diary] * 2, autoreset_mode=mode)
    env = GymnasiumEnvironment(vector, "e")
    rollouts, episodes = play(env, by_angle, 140)
    env.close()
    assert episodes == plain_episodes(twin, mode, by_angle, 140)
    check_transitions(rollouts, first_steps=True)


def test_a_native_vector_environment_and_a_wrapper_around_one():
    def vector():
        return gymnasium.make_vec("CartPole-v1", ENVS, "vector_entry_point", max_episode_steps=38)

    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector())
    _, episodes = play(GymnasiumEnvironment(wrapped, "e"), by_angle, 700)
    assert episodes == plain_episodes(vector(), NEXT, by_angle, 700)


@pytest.mark.parametrize("mode", MODES)
def test_single_environments_play_the_same_in_every_mode(mode):
    env, episodes = Diary(), []
    env.reset(seed=5)
    while len(episodes) < 20:
        total, length, done = 0.0, 0, False
        while not done:
            observation = env.observe()[None]
            _, reward, terminated, truncated, _ = env.step(int(by_angle(observation)[0]))
            total, length, done = total + reward, length + 1, terminated or truncated
        episodes.append((total, length))
        env.reset()
    vector = SyncVectorEnv([Diary], autoreset_mode=mode)
    assert play(GymnasiumEnvironment(vector, "e"), by_angle, 140)[1][:20] == episodes


def check_transitions(rollouts, first_steps):
    """Every transition that counts is one of the environment; returns (tag, episode, time)."""
    counted = set()
    for rollout in rollouts:
        transitions, mask = rollout.transitions(), rollout.loss_mask(first_steps)
        for t, b in mask.nonzero().tolist():
            tag, episode, time = (int(x) for x in rollout.observations[t, b])
            following = [int(x) for x in rollout.observations[t + 1, b]]
            length, kind = ending(tag, episode)
            action = int(transitions.actions[t, b])
            assert time < length, "nothing is done in a final state"
            assert transitions.rewards[t, b] == reward_of(episode, time + 1, action)
            last = time + 1 == length
            assert bool(transitions.terminals[t, b]) == (last and kind != TRUNCATED)
            if not transitions.terminals[t, b]:
                assert following == [tag, episode, time + 1]
            if last and kind == TRUNCATED:
                assert rollout.final[t + 1, b], "nothing is learned back over the cut"
            counted.add((tag, episode, time))
    return counted


def expected_transitions(mode, transitions, remembers, first_steps, seed=5):
    """Which transitions of the first ones of each copy can count: written down from the rules."""
    expected = set()
    for tag in range(seed, seed + ENVS):
        clock, episode, was_cut = 0, 0, False
        while clock < transitions:
            length, kind = ending(tag, episode)
            for time in range(length):
                first, last = time == 0 and episode > 0, time + 1 == length
                lost = first and not first_steps
                if mode != NEXT and remembers:
                    lost |= last and kind == TRUNCATED
                elif mode != NEXT:
                    lost |= first and was_cut
                if not lost and clock < transitions:
                    expected.add((tag, episode, time))
                clock += 1
            clock += mode == NEXT
            episode, was_cut = episode + 1, kind == TRUNCATED
    return expected


@pytest.mark.parametrize("first_steps", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [2, 7, 140])
def test_no_transition_goes_across_a_reset(mode, remembers, first_steps, length):
    vector = SyncVectorEnv([Diary] * ENVS, autoreset_mode=mode)
    env = GymnasiumEnvironment(vector, "e")
    rollouts, _ = play(env, by_angle, 140, remembers, length)
    counted = check_transitions(rollouts, first_steps)
    expected = expected_transitions(mode, 139, remembers, first_steps)
    cut = [x for x in counted if (x[2] + 1, TRUNCATED) == ending(*x[:2])]
    assert counted == expected if length == 140 else counted < expected
    assert bool(cut) == (mode == NEXT or not remembers)


@pytest.mark.parametrize("mode", MODES)
def test_memory_begins_anew_with_each_episode(mode):
    vector = SyncVectorEnv([Diary] * ENVS, autoreset_mode=mode)
    env, agent = GymnasiumEnvironment(vector, "e"), Scripted(by_angle)
    assert isinstance(agent, RecurrentAgent)
    step, memory = env.reset(5), agent.initial_memory(ENVS, "cpu")
    for _ in range(100):
        _, memory = agent.policy_step({}, step.observation, step.first, memory)
        assert torch.equal(memory["seen"], step.observation[:, 2] + 1)
        step = env.step(torch.zeros(ENVS, dtype=torch.int64))


def test_steps_that_only_reset():
    env = GymnasiumEnvironment(SyncVectorEnv([Diary]), "e")
    step = env.reset(5)
    assert not torch.stack([step.terminated, step.truncated, step.reset]).any()
    assert (step.reward.item(), step.discount.item(), step.reward.dtype) == (0, 1, torch.float32)
    for episode in range(20):
        length, kind = ending(5, episode)
        for time in range(1, length + 1):
            step = env.step(torch.tensor([1]))
            last = time == length
            assert step.observation.tolist() == [[5, episode, time]]
            assert step.reward.item() == reward_of(episode, time, 1)
            assert step.discount.item() == (0 if last and kind != TRUNCATED else 1)
            assert step.ended.item() == last
            assert step.terminated.item() == (last and kind != TRUNCATED)
            assert step.truncated.item() == (last and kind == TRUNCATED)
            assert not step.idle.item()
            assert not step.first.item()
        step = env.step(torch.tensor([1]))
        assert step.observation.tolist() == [[5, episode + 1, 0]]
        assert (step.reward.item(), step.discount.item()) == (0, 0)
        assert step.idle.item()
        assert step.first.item()
        assert not step.ended.item()
        assert step.last is None


class Infos(VectorWrapper):
    """Changes what a vector environment says about last observations."""

    def __init__(self, env, change):
        super().__init__(env)
        self.change = change

    def step(self, actions):
        *step, info = super().step(actions)
        return *step, self.change(info)


def stacked(info):
    """Last observations as one array; rows of copies that go on are garbage."""
    if "final_obs" not in info:
        return info
    rows = [np.full(3, np.nan, np.float32) if x is None else x for x in info["final_obs"]]
    return {**info, "final_obs": np.stack(rows)}


def without_mask(info):
    return {k: v for k, v in info.items() if k != "_final_obs"}


def same_step(make=Diary, change=dict):
    vector = SyncVectorEnv([make] * ENVS, autoreset_mode=SAME)
    return GymnasiumEnvironment(Infos(vector, change), "e")


@pytest.mark.parametrize("change", [dict, stacked, without_mask])
def test_instant_resets_store_the_last_observation_and_act_on_the_first(change):
    env, noted = same_step(change=change), 0
    episodes, times = [0] * ENVS, [0] * ENVS
    env.reset(5)
    for _ in range(100):
        step = env.step(torch.zeros(ENVS, dtype=torch.int64))
        any_cut = False
        for i in range(ENVS):
            length, kind = ending(5 + i, episodes[i])
            times[i] += 1
            ended, old = times[i] == length, [5 + i, episodes[i], times[i]]
            if ended:
                episodes[i], times[i] = episodes[i] + 1, 0
            cut = ended and kind == TRUNCATED
            any_cut |= cut
            shown = [5 + i, episodes[i], times[i]]
            assert step.observation[i].tolist() == shown
            assert step.ended[i] == ended
            assert step.first[i] == ended
            assert step.truncated[i] == cut
            assert step.terminated[i] == (ended and not cut)
            assert step.discount[i] == (0 if ended and not cut else 1)
            if step.last is not None:
                assert step.last[i].tolist() == (old if cut else shown)
        assert (step.last is not None) == any_cut
        assert step.reset is None
        assert not step.idle.any()
        noted += any_cut
    assert noted > 10


def nothing_said(info):
    return {}


def none_said(info):
    if "final_obs" in info:
        info["final_obs"][:] = None
    return info


@pytest.mark.parametrize("change", [nothing_said, none_said])
def test_a_cut_without_its_last_observation_counts_as_an_ending(change):
    env, twin = same_step(change=change), same_step()
    env.reset(5)
    twin.reset(5)
    cuts = 0
    for _ in range(60):
        actions = torch.ones(ENVS, dtype=torch.int64)
        step, full = env.step(actions), twin.step(actions)
        assert torch.equal(step.ended, full.ended)
        assert torch.equal(step.discount, 1 - full.ended.float())
        assert torch.equal(step.observation, full.observation)
        assert not step.truncated.any()
        assert step.last is None
        cuts += full.truncated.sum()
    assert cuts > 10


@pytest.mark.parametrize("mode", [SAME, DISABLED])
def test_last_observations_in_parts(mode):
    vector = SyncVectorEnv([DictDiary] * ENVS, autoreset_mode=mode)
    plain = SyncVectorEnv([Diary] * ENVS, autoreset_mode=mode)
    env, twin = GymnasiumEnvironment(vector, "e"), GymnasiumEnvironment(plain, "e")
    env.reset(5)
    twin.reset(5)
    cuts = 0
    for _ in range(60):
        actions = torch.ones(ENVS, dtype=torch.int64)
        step, expected = env.step(actions), twin.step(actions)
        pairs = [(step.observation, expected.observation)]
        if expected.last is not None:
            pairs.append((step.last, expected.last))
            cuts += 1
        for found, place in pairs:
            assert torch.equal(found["place"], place)
            assert torch.equal(found["pair.0"].argmax(-1), place[:, 2].long())
            assert torch.equal(found["pair.1"][:, 0], (place[:, 2] % 2).byte())
    assert cuts > 5


def test_observations_are_not_overwritten_by_later_steps():
    vector = SyncVectorEnv([Diary], copy=False, autoreset_mode=DISABLED)
    env = GymnasiumEnvironment(vector, "e")
    steps = [env.reset(5)] + [env.step(torch.tensor([0])) for _ in range(90)]
    assert len({tuple(s.observation[0].tolist()) for s in steps}) == 91
    cut = next(s for s in steps if s.last is not None)
    assert cut.last[0, 2] > 0


class Silent(VectorWrapper):
    @property
    def metadata(self):
        return {}


class Foreign(gymnasium.vector.VectorEnv):
    num_envs = 1
    single_observation_space = Diary.observation_space
    single_action_space = Diary.action_space


def test_gymnasiums_own_vectorisers_reset_in_the_next_step_where_they_do_not_say():
    env = GymnasiumEnvironment(Silent(SyncVectorEnv([Diary])), "e")
    env.reset(5)
    ends = [env.step(torch.tensor([0])) for _ in range(30)]
    assert any(step.idle.item() for step in ends)


def test_other_vector_environments_must_say_how_they_reset():
    with pytest.raises(DiscorlError, match=r"environment 'x'.*autoreset_mode.*None"):
        GymnasiumEnvironment(Foreign(), "x")


@pytest.mark.parametrize("mode", MODES)
def test_the_seed_fixes_everything(mode):
    def stream(env, seed):
        steps = [env.reset(seed)] + [env.step(torch.tensor([0, 1])) for _ in range(80)]
        return torch.stack([s.observation for s in steps])

    def make():
        return GymnasiumEnvironment(SyncVectorEnv([short_cartpole] * 2, autoreset_mode=mode), "e")

    env = make()
    first = stream(env, 3)
    assert torch.equal(stream(env, 3), first)
    assert torch.equal(stream(make(), 3), first)
    assert not torch.equal(stream(env, 4), first)
    assert not torch.equal(first[:, 0], first[:, 1])


def test_a_resumed_run_begins_episodes_that_were_not_played():
    env = make_named("CartPole-v1", 2)
    beginnings = [env.reset(3).observation]
    for _ in range(3):
        state = env.state_dict()
        steps = []
        for copy in (make_named("CartPole-v1", 2), make_named("CartPole-v1", 2)):
            steps.append(copy.load_state_dict(state))
            env = copy
        assert torch.equal(steps[0].observation, steps[1].observation)
        assert steps[0].reward.tolist() == [0, 0]
        assert steps[0].discount.tolist() == [1, 1]
        assert not steps[0].ended.any()
        beginnings.append(steps[0].observation)
    assert len({tuple(x[0].tolist()) for x in beginnings}) == 4


def test_by_id():
    env = make_named("CartPole-v1", 4)
    assert (env.num_envs, env.num_actions) == (4, 2)
    assert env.observation_spec.shape == (4,)
    assert env.reset(0).observation.shape == (4, 4)
    with pytest.raises(ValueError, match=r"actions: expected \[4\], got \[3\]"):
        env.step(torch.zeros(3, dtype=torch.int64))
    env.close()


def test_discretised_pendulum():
    env = make_named("Pendulum-v1", 2, discretize_actions=5)
    twin = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * 2)
    assert env.num_actions == 5
    torch.testing.assert_close(env.reset(1).observation.numpy(), twin.reset(seed=1)[0])
    for action in range(5):
        step = env.step(torch.full((2,), action))
        expected, rewards, *_ = twin.step(np.full((2, 1), action - 2, dtype=np.float32))
        assert np.array_equal(step.observation.numpy(), expected)
        assert np.array_equal(step.reward.numpy(), rewards.astype(np.float32))
    with pytest.raises(DiscorlError, match=r"Pendulum-v1.*--discretize-actions"):
        make_named("Pendulum-v1", 2)


@pytest.mark.parametrize("workers", [False, True])
def test_a_function_in_the_current_directory(tmp_path, monkeypatch, workers):
    source = Path(strange_envs.__file__).read_text()
    (tmp_path / f"my_envs_{workers}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p and p != os.getcwd()])
    env = make_named(f"my_envs_{workers}:Diary", 3, env_workers=workers)
    _, episodes = play(env, by_angle, 70)
    env.close()
    assert episodes == plain_episodes(SyncVectorEnv([Diary] * 3), NEXT, by_angle, 70)


def test_a_function_may_return_a_vector_environment():
    assert make_named("strange_envs:two_diaries", 2).num_envs == 2
    with pytest.raises(DiscorlError, match="has 2 copies, expected 3"):
        make_named("strange_envs:two_diaries", 3)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("CartPol-v1", ["unknown environment 'CartPol-v1'", "CartPole"]),
        ("CartPole-v77", ["unknown environment 'CartPole-v77'", "v77"]),
        ("Nowhere/Pong-v5", ["unknown environment 'Nowhere/Pong-v5'", "Nowhere"]),
        ("not an id", ["'not an id'"]),
        ("no_such_module:make", ["no_such_module", "imported"]),
        ("strange_envs:Diari", ["unknown function of module strange_envs", "Did you mean Diary"]),
        ("strange_envs:number", ["unknown function of module strange_envs 'number'"]),
        ("strange_envs:not_an_environment", ["gymnasium.Env", "int"]),
        ("strange_envs:always_the_same", ["a new environment at each call"]),
        ("strange_envs:Shy", ["Shy", "RuntimeError: no display"]),
        ("strange_envs:Sequences", ["Sequences", "Sequence", "not supported"]),
    ],
)
def test_what_is_wrong_with_a_name_is_said(spec, words):
    with pytest.raises(DiscorlError) as error:
        make_named(spec, 2)
    for word in words:
        assert word in str(error.value)


def test_no_copies_are_refused():
    with pytest.raises(DiscorlError, match="at least 1 copy, got 0"):
        make_named("CartPole-v1", 0)


@pytest.mark.parametrize(("spec", "extra"), [("ALE/Pong-v5", "atari"), ("MinAtar/X-v1", "minatar")])
def test_a_missing_package_is_named(spec, extra, monkeypatch):
    for package in ("ale_py", "minatar"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DiscorlError, match=re.escape(install_line(extra))):
        make_named(spec, 1)


def test_unknown_names_are_their_own_kind_of_error():
    with pytest.raises(UnknownNameError):
        make_named("CartPol-v1", 1)


def standardised(x, past):
    deviation = (past.var(0, unbiased=False) + 1e-8).sqrt()
    return ((x - past.mean(0)) / deviation).clamp(-10, 10).float()


@pytest.mark.parametrize("mode", MODES)
def test_normalised_observations(mode):
    def make():
        vector = SyncVectorEnv([Diary] * ENVS, autoreset_mode=mode)
        return GymnasiumEnvironment(vector, "e")

    plain, env = make(), NormalizedEnvironment(make())
    actions = torch.zeros(ENVS, dtype=torch.int64)
    seen, cuts = [plain.reset(5).observation], 0
    env.reset(5)
    for _ in range(50):
        raw, step = plain.step(actions), env.step(actions)
        seen.append(raw.observation)
        past = torch.cat(seen).double()
        torch.testing.assert_close(step.observation, standardised(raw.observation, past))
        assert step.observation.dtype == torch.float32
        if raw.last is not None:
            torch.testing.assert_close(step.last, standardised(raw.last, past))
            cuts += 1
    assert (cuts > 0) == (mode != NEXT)


def test_moments_travel_with_the_environment():
    env = NormalizedEnvironment(make_named("CartPole-v1", 2))
    env.reset(0)
    for _ in range(20):
        env.step(torch.tensor([0, 1]))
    state = env.state_dict()
    assert any(key.startswith("normalizer/") for key in state)
    other = NormalizedEnvironment(make_named("CartPole-v1", 2))
    first = other.load_state_dict(state)
    assert first is not None
    moments = RunningMoments()
    moments.load_state_dict(env.moments.state_dict())
    raw = make_named("CartPole-v1", 2).load_state_dict(
        {k: v for k, v in state.items() if not k.startswith("normalizer/")}
    )
    moments.update(raw.observation)
    assert torch.equal(first.observation, moments.normalize(raw.observation))


def test_frozen_moments_are_read_only():
    env = NormalizedEnvironment(make_named("CartPole-v1", 2))
    env.reset(0)
    env.step(torch.tensor([0, 1]))
    before = env.moments.state_dict()
    judge = NormalizedEnvironment(make_named("CartPole-v1", 2), env.moments, frozen=True)
    judge.reset(7)
    raw = make_named("CartPole-v1", 2).reset(7).observation
    assert torch.equal(judge.reset(7).observation, env.moments.normalize(raw))
    after = env.moments.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    env.step(torch.tensor([0, 1]))
    assert judge.moments.state_dict()["observations/count"] == 6


def test_large_offsets_do_not_spoil_the_variance_and_bytes_are_left_alone():
    generator = torch.Generator().manual_seed(0)
    moments, pixels = RunningMoments(), torch.arange(4, dtype=torch.uint8).reshape(4, 1)
    data = 1e6 + torch.randn(500, 4, 2, generator=generator, dtype=torch.float64)
    for batch in data:
        moments.update({"x": batch, "pixels": pixels})
    found = moments.normalize({"x": data[0], "pixels": pixels})
    flat = data.reshape(-1, 2)
    expected = (data[0] - flat.mean(0)) / flat.std(0, unbiased=False)
    torch.testing.assert_close(found["x"], expected.float(), rtol=1e-4, atol=1e-4)
    assert found["x"].dtype == torch.float32
    assert torch.equal(found["pixels"], pixels)
    assert moments.normalize({"x": data[0] + 1e9, "pixels": pixels})["x"].max() == 10
