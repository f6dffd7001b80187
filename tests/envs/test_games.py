"""What holds for every game, through the environment that plays it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import SPECS, play_whole, random_policy
from safetensors.torch import load_file, save_file

from discorl.envs import make_environment, optimal_return
from discorl.envs.registry import GAMES, make_game
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec


def play(env, steps, seed=0):
    """The bytes of everything handed out."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(steps):
        step = env.step(torch.randint(env.num_actions, (env.num_envs,), generator=generator))
        out.append([x.numpy().tobytes() for x in (step.observation, step.reward, step.discount)])
    return out


def test_every_game_is_here():
    assert {spec.partition(":")[0] for spec in SPECS} == set(GAMES)


@pytest.mark.parametrize("spec", SPECS)
def test_shapes_and_types(spec):
    env = make_environment(spec, 7)
    step = env.reset(0)
    assert step.reward.tolist() == [0.0] * 7
    assert step.discount.tolist() == [1.0] * 7
    spec_of_env, dtype, ends = env.observation_spec, step.observation.dtype, 0
    assert dtype in (torch.uint8, torch.float32)
    for t in range(60):
        assert ArraySpec(step.observation.shape[1:], step.observation.dtype) == spec_of_env
        assert len(step.observation) == 7
        assert (step.reward.shape, step.discount.shape) == ((7,), (7,))
        assert step.reward.dtype == step.discount.dtype == torch.float32
        assert step.reward.isfinite().all()
        assert step.observation.isfinite().all()
        if dtype == torch.uint8:
            # Only a wait shows nothing at all.
            assert step.observation.max() <= 1
            assert step.observation.any() or "wait=" in spec
        assert ((step.discount == 0) | (step.discount == 1)).all()
        ends += int((step.discount == 0).sum())
        step = env.step(torch.full((7,), t % env.num_actions))
    assert ends > 0


@pytest.mark.parametrize("spec", SPECS)
def test_an_end_comes_with_a_fresh_episode(spec):
    # Given a game, and boards that follow it episode by episode
    game, env = make_game(spec), make_environment(spec, 16)
    env.reset(3)
    act = random_policy(game)
    fresh = game.start(16, torch.Generator())
    for _ in range(40):
        step = env.step(act({"boards": torch.zeros(16)}))
        state = env.state_dict()
        if "time" in fresh:
            # Then time is 0 exactly where the discount is.
            assert torch.equal(state["time"] == 0, step.discount == 0)
        assert {n: (t.shape, t.dtype) for n, t in state.items() if n != "generator"} == {
            name: (tensor.shape, tensor.dtype) for name, tensor in fresh.items()
        }


@pytest.mark.parametrize("spec", SPECS)
def test_the_seed_fixes_everything(spec):
    runs = []
    for seed in (1, 1, 2):
        env = make_environment(spec, 32)
        env.reset(seed)
        runs.append(play(env, 25, seed))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2] or make_game(spec).num_actions == 1 or "step_cost" in spec


@pytest.mark.parametrize("spec", SPECS)
def test_a_restored_environment_goes_on_bit_for_bit(spec):
    env = make_environment(spec, 5)
    env.reset(7)
    play(env, 4)
    state = env.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    rest = play(env, 30)
    for name, tensor in state.items():
        assert torch.equal(tensor, kept[name]), name
    other = make_environment(spec, 5)
    other.load_state_dict(kept)
    assert play(other, 30) == rest


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("steps", [0, 1])
def test_a_state_can_be_written_to_a_file(spec, steps, tmp_path):
    # Given what a checkpoint holds: the state, and the newest observation
    env = make_environment(spec, 3)
    step = env.reset(0)
    for _ in range(steps):
        step = env.step(torch.zeros(3, dtype=torch.int64))
    tensors = {**env.state_dict(), "observation": step.observation}
    # When it is written and read, which fails where tensors share memory or have gaps
    save_file(tensors, tmp_path / "state.safetensors")
    read = load_file(tmp_path / "state.safetensors")
    # Then it is the same
    assert set(read) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(read[name], tensor), name


@pytest.mark.parametrize("spec", SPECS)
def test_random_play_ends_and_is_no_better_than_the_best(spec):
    game, best = make_game(spec), optimal_return(spec)
    total, lengths = play_whole(game, random_policy(game), num_envs=512)
    assert lengths.min() >= 1
    assert best == getattr(game, "optimal_return", None)
    if best is not None:
        assert total.mean() <= best + 4 * total.std() / 512**0.5 + 1e-5


@given(
    spec=st.sampled_from(SPECS),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    script=st.lists(st.integers(0, 100), min_size=1, max_size=12),
)
@settings(max_examples=40, deadline=None)
def test_any_script_can_be_played(spec, num_envs, seed, script):
    env = make_environment(spec, num_envs)
    env.reset(seed)
    for number in script:
        actions = (torch.arange(num_envs) + number) % env.num_actions
        step = env.step(actions)
        assert step.reward.isfinite().all()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("acrobot:torque=-1", "torque: expected at least 0"),
        ("acrobot:steps=0", "steps: expected at least 1"),
        ("bandit:arms=0", "arms: expected at least 1, got 0"),
        ("bandit:contexts=0", "contexts: expected at least 1"),
        ("bandit:noise=-1", "noise: expected at least 0"),
        ("bandit:noise=nan", "noise=nan: expected a number"),
        ("bandit:noise=inf", "noise: expected at least 0, got inf"),
        ("bandit:delay=-1", "delay: expected at least 0"),
        ("bandit:wait=-1", "wait: expected at least 0"),
        ("cartpole:steps=0", "steps: expected at least 1"),
        ("cartpole:pole=0", "pole: expected more than 0"),
        ("cartpole:force=x", "force=x: expected a number"),
        ("chain:length=1", "length: expected at least 2"),
        ("chain:slip=1.5", "slip: expected at most 1, got 1.5"),
        ("chain:reward_scale=-1", "reward_scale: expected at least 0"),
        ("cliff:columns=2", "columns: expected at least 3"),
        ("cliff:columns=6,steps=6", "steps: expected at least 7, to reach the goal, got 6"),
        ("corridor:length=1", "length: expected at least 2"),
        ("corridor:length=9,steps=7", "steps: expected at least 8, to reach the far end"),
        ("deep_sea:size=0", "size: expected at least 1"),
        ("deep_sea:seed=-1", "seed: expected at least 0"),
        ("grid:rows=2,columns=3", "beside 3 walls and 3 objects, got 2 x 3 cells"),
        ("grid:kinds=0", "kinds: expected at least 1"),
        ("grid:respawn=maybe", "respawn=maybe: expected true or false"),
        ("lander:gravity=1", "thrust: expected more than gravity, 1.0, got 0.8"),
        ("lander:pad=-1", "pad: expected at least 0"),
        ("memory:cues=1", "cues: expected at least 2"),
        ("memory:delay=0", "delay: expected at least 1"),
        ("mountain_car:power=-0.1", "power: expected at least 0"),
        ("mountain_car:steps=0", "steps: expected at least 1"),
        ("umbrella:length=0", "length: expected at least 1"),
        ("umbrella:distractors=-1", "distractors: expected at least 0"),
        ("umbrella:wait=-1", "wait: expected at least 0"),
    ],
)
def test_impossible_settings_are_refused(spec, words):
    with pytest.raises(DiscorlError) as error:
        make_environment(spec, 1)
    assert words in str(error.value)
