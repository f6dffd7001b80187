"""Each game's optimum, reached by a scripted policy; and what is special to one game."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import play_whole

from discorl.envs import make_environment, optimal_return, resolve_environment
from discorl.envs.registry import make_game
from discorl.envs.tools import draw_flips


def follow_ball(game):
    return lambda state: 1 + (state["ball_column"] - state["paddle"]).sign()


def go_right(game, place, size):
    flips = torch.tensor(draw_flips(size, game.seed))
    return lambda state: 1 - flips[state[place]]


def pull_best_arm(game):
    best = torch.tensor(game.means).argmax(dim=1)
    return lambda state: best[state["context"]]


def walk_the_edge(game):
    action_of = {meaning: action for action, meaning in enumerate(game.meanings)}
    route = [action_of[0], *[action_of[3]] * (game.columns - 1), action_of[1]]
    return lambda state: torch.tensor(route)[state["time"]]


def count_the_steps(game):
    """Where to go forth, [steps left, length]: worked out backwards, pair by pair."""
    values, plan, last = [0.0] * game.length, [[0] * game.length], game.length - 1
    for _ in range(game.steps):
        back = game.small + values[0]
        forth = [values[min(place + 1, last)] + (place == last) for place in range(game.length)]
        plan.append([int(way > back) for way in forth])
        values = [(1 - game.slip) * max(way, back) + game.slip * min(way, back) for way in forth]
    plan, flips = torch.tensor(plan), torch.tensor(draw_flips(game.length, game.seed))
    return lambda s: plan[game.steps - s["time"], s["place"]] ^ flips[s["place"]]


def come_down(game):
    def act(state):
        place, _, speed, falling = state["body"].unbind(dim=1)
        wanted = -0.5 * place
        aside = torch.where(speed > wanted + 0.05, 1, torch.where(speed < wanted - 0.05, 3, 0))
        return torch.where(falling < -0.8 * game.soft, 2, aside)

    return act


BEST = {
    "chain": count_the_steps,
    "lander": come_down,
    "catch": follow_ball,
    "deep_sea": lambda game: go_right(game, "column", game.size),
    "corridor": lambda game: go_right(game, "place", game.length),
    "bandit": pull_best_arm,
    "memory": lambda game: lambda state: state["cue"],
    "umbrella": lambda game: lambda state: state["forecast"],
    "cliff": walk_the_edge,
}


@pytest.mark.parametrize(
    ("spec", "optimum"),
    [
        ("catch", 1.0),
        ("catch:rows=5,columns=8", 1.0),
        ("catch:rows=2,columns=3", 1.0),
        ("catch:rows=2,columns=4", 0.5),
        ("catch:rows=3,columns=10", 0.0),
        ("deep_sea", 0.99),
        ("deep_sea:size=1", 0.99),
        ("deep_sea:size=9,seed=4", 0.99),
        ("corridor", 1.0),
        ("corridor:length=8,step_cost=0.1,steps=7", 0.3),
        ("corridor:length=12,seed=3,step_cost=0.01", 0.89),
        ("bandit:noise=0", None),
        ("bandit:arms=3,contexts=4,noise=0.2,delay=3,seed=6", None),
        ("bandit:arms=3,contexts=4,noise=0.2,delay=3,seed=6,wait=2", None),
        ("memory", 1.0),
        ("memory:cues=4,delay=9", 1.0),
        ("umbrella:noise=0", 1.0),
        ("umbrella:length=20,distractors=0", 1.0),
        ("umbrella:length=1,noise=0.2,wait=3", 1.0),
        ("chain:slip=0,steps=20", 16.0),
        ("chain:length=3,slip=0,small=0.9,reward_scale=0.5,steps=2", 0.9),
        ("chain", None),
        ("chain:length=4,slip=0.1,small=0.3,reward_scale=5,steps=9,seed=4", None),
        ("lander", 1.0),
        ("lander:gravity=0.2,thrust=1,pad=0.3,soft=0.4,steps=80", 1.0),
        ("cliff", 0.65),
        ("cliff:rows=2,columns=3,steps=4", 0.6),
        ("cliff:rows=5,columns=7,seed=11", 1 - 4 / 12),
    ],
)
def test_the_scripted_policy_gets_the_optimum(spec, optimum):
    game = make_game(spec)
    total, _ = play_whole(game, BEST[spec.partition(":")[0]](game), num_envs=4096)
    said = optimal_return(spec)
    assert said == pytest.approx(optimum if optimum is not None else said)
    assert total.mean().item() == pytest.approx(said, abs=4 * total.std().item() / 64 + 1e-5)


@given(rows=st.integers(2, 7), columns=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_catch_counts_the_balls_within_reach(rows, columns):
    # Given one board for each column a ball can fall from
    game = make_game(f"catch:rows={rows},columns={columns}")
    start = game.start(columns, torch.Generator())
    object.__setattr__(game, "start", lambda *_: {**start, "ball_column": torch.arange(columns)})
    total, lengths = play_whole(game, follow_ball(game), num_envs=columns)
    assert total.mean().item() == pytest.approx(game.optimal_return, abs=1e-6)
    assert set(lengths.tolist()) == {rows - 1}


def test_seeds_change_what_actions_do():
    for name, size in (("deep_sea:size=8", 8), ("corridor:length=8", 8)):
        for seed in (0, 1, 2):
            game = make_game(f"{name},seed={seed}")
            always, _ = play_whole(game, lambda s: torch.ones(256, dtype=torch.int64))
            assert (always.mean() > 0.9) == (sum(draw_flips(size, seed)) == 0)
    assert len({tuple(make_game(f"cliff:seed={s}").meanings) for s in range(20)}) > 5


def test_bandit_pays_after_the_delay():
    env = make_environment("bandit:arms=3,contexts=2,noise=0,delay=2,seed=1", 50)
    means = torch.tensor(env.game.means)
    step = env.reset(0)
    context = step.observation[:, :2].argmax(dim=1)
    arm = torch.arange(50) % 3
    seen = []
    for t in range(3):
        step = env.step(arm if t == 0 else torch.zeros_like(arm))
        seen.append(step)
    assert [s.discount.sum().item() for s in seen] == [50, 50, 0]
    assert all(s.reward.eq(0).all() for s in seen[:2])
    assert [s.observation.argmax(dim=1).unique().tolist() for s in seen[:2]] == [[2], [3]]
    assert torch.equal(seen[2].reward, means[context, arm])


@pytest.mark.parametrize("visible", [False, True])
def test_memory_hides_the_cue(visible):
    env = make_environment(f"memory:cues=3,delay=2,visible={visible}", 40)
    first = env.reset(0).observation
    assert first[:, :3].sum(dim=1).eq(1).all()
    assert first[:, 3:].sum() == 0
    later = env.step(torch.zeros(40, dtype=torch.int64)).observation
    assert torch.equal(later[:, :3], first[:, :3] * visible)
    assert later[:, 3].eq(1).all()


def test_umbrella_hangs_on_the_first_action_only():
    env = make_environment("umbrella:length=3,noise=0.25", 400)
    forecast = env.reset(0).observation[:, 0]
    first, rewards = torch.arange(400) % 2, []
    for t in range(3):
        step = env.step(first if t == 0 else 1 - first)
        rewards.append(step.reward)
        if t < 2:
            assert torch.equal(step.observation[:, 1], first.float())
            assert step.observation[0, 2].item() == pytest.approx(1 - (t + 1) / 3)
    assert set(torch.cat(rewards[:2]).tolist()) == {-0.25, 0.25}
    assert torch.equal(rewards[2], 2 * (first == forecast).float() - 1)


def test_cliff_costs_a_fall():
    env = make_environment("cliff:rows=3,columns=5", 1)
    env.reset(0)
    step = env.step(torch.tensor([3]))
    assert step.discount.item() == 0
    assert step.reward.item() == pytest.approx(-1 - 0.5 / 8)
    # The walk begins in the bottom left corner again.
    assert step.observation[0, :, :, 0].nonzero().tolist() == [[2, 0]]


@pytest.mark.parametrize("seed", range(4))
def test_cartpole_is_gymnasiums(seed):
    theirs = gymnasium.make("CartPole-v1").unwrapped
    ours = make_game("cartpole:steps=500")
    rng, generator = np.random.default_rng(seed), torch.Generator()
    seen, _ = theirs.reset(seed=seed)
    state = {"body": torch.tensor(seen)[None], "time": torch.zeros(1, dtype=torch.int64)}
    ended = False
    while not ended:
        action = int(rng.integers(2))
        seen, reward, ended, _, _ = theirs.step(action)
        state, mine, terminal = ours.play(state, torch.tensor([action]), generator)
        np.testing.assert_allclose(ours.observe(state)[0].numpy(), seen, atol=2e-5)
        assert (mine.item(), terminal.item()) == (reward, ended)


@pytest.mark.parametrize(
    ("name", "spec", "parts"),
    [("MountainCar-v0", "mountain_car", 2), ("Acrobot-v1", "acrobot:steps=500", 4)],
)
@pytest.mark.parametrize("seed", range(3))
def test_cars_and_links_are_gymnasiums(name, spec, parts, seed):
    # Given their game, which a strong swing brings to its end
    theirs, ours = gymnasium.make(name).unwrapped, make_game(spec)
    generator, time = torch.Generator(), torch.zeros(1, dtype=torch.int64)
    rng = np.random.default_rng(seed)
    seen, _ = theirs.reset(seed=seed)
    ended, count = False, 0
    while not ended and count < 190:
        before = np.array(theirs.state, dtype=np.float32)
        assert before.shape == (parts,)
        action = int(rng.integers(3)) if rng.random() < 0.1 else 2 * int(before[-1] > 0)
        # When both make the same step from the same state
        seen, reward, ended, _, _ = theirs.step(action)
        state = {"body": torch.tensor(before)[None], "time": time}
        state, mine, terminal = ours.play(state, torch.tensor([action]), generator)
        # Then they are at the same place
        np.testing.assert_allclose(ours.observe(state)[0].numpy(), seen, atol=2e-4)
        assert (mine.item(), terminal.item()) == (reward, ended)
        count += 1
    assert ended or spec != "mountain_car"


@pytest.mark.parametrize(("name", "speed"), [("mountain_car", 1), ("acrobot", 3)])
def test_what_swings_gets_up(name, speed):
    for seed in range(4):
        game = make_game(resolve_environment(f"family:{name}", seed))
        total, lengths = play_whole(game, lambda state: 2 * (state["body"][:, speed] >= 0).long())
        assert (lengths < game.steps).float().mean() > 0.9, game
        assert torch.equal(total, -lengths.float() + (name == "acrobot") * (lengths < game.steps))


def test_the_end_of_the_road_is_a_wall():
    game = make_game("mountain_car")
    state = {"body": torch.tensor([[-1.19, -0.05]]), "time": torch.zeros(1, dtype=torch.int64)}
    state, _, terminal = game.play(state, torch.tensor([0]), torch.Generator())
    assert state["body"][0].tolist() == pytest.approx([-1.2, 0.0])
    assert not terminal


@pytest.mark.parametrize(
    ("body", "pay"),
    [
        ((0.0, 0.01, 0.0, -0.2), 1.0),
        ((0.3, 0.01, 0.0, -0.2), -1.0),
        ((0.0, 0.01, 0.0, -0.3), -1.0),
        ((0.0, 0.01, 0.31, -0.2), -1.0),
        ((0.99, 0.8, 0.2, 0.0), -1.0),
        ((0.0, 1.49, 0.0, 0.5), -1.0),
        ((0.0, 0.8, 0.0, 0.0), 0.0),
    ],
)
def test_lander_pays_for_soft_landings_on_the_pad(body, pay):
    game, zero = make_game("lander"), torch.zeros(1, dtype=torch.int64)
    state = {"body": torch.tensor([body]), "time": zero}
    _, reward, terminal = game.play(state, zero, torch.Generator())
    assert (reward.item(), terminal.item()) == (pay, pay != 0)
    # With shaping, what is added is the way that was made
    shaped = make_game("lander:shaping=0.5")
    after, more, _ = shaped.play(state, zero, torch.Generator())
    nearer = sum(map(abs, body)) - after["body"].abs().sum().item()
    assert more.item() == pytest.approx(pay + 0.5 * nearer, abs=1e-6)
    assert shaped.optimal_return is None


def test_chain_slips_and_scales():
    game = make_game("chain:length=3,slip=0.25,small=0.5,reward_scale=10")
    zero = torch.zeros(4000, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    for place, forth in ((0, (1, 0.0)), (2, (2, 10.0))):
        state = {"place": zero + place, "time": zero}
        moved, reward, _ = game.play(state, zero + 1, generator)
        slipped = moved["place"] == 0
        assert slipped.float().mean().item() == pytest.approx(0.25, abs=0.03)
        assert set(zip(moved["place"].tolist(), reward.tolist(), strict=True)) == {(0, 5.0), forth}


@pytest.mark.parametrize("settings_text", ["", ":force=8,pole=0.8", ":force=12,pole=0.4"])
def test_cartpole_can_be_balanced_to_the_end(settings_text):
    game = make_game(f"cartpole{settings_text}")
    weights = torch.tensor([0.1, 0.3, 1.0, 0.4])
    total, _ = play_whole(game, lambda state: (state["body"] @ weights > 0).long())
    assert total.tolist() == [game.optimal_return] * 256


@given(
    size=st.tuples(st.integers(2, 5), st.integers(3, 5)),
    kinds=st.integers(1, 3),
    respawn=st.booleans(),
    seed=st.integers(0, 500),
)
@settings(max_examples=20, deadline=None)
def test_grid_pays_what_is_seen(size, kinds, respawn, seed):
    # Given a grid and what is seen of it
    rows, columns = size
    env = make_environment(
        f"grid:rows={rows},columns={columns},walls=2,objects=2,kinds={kinds},respawn={respawn},"
        f"steps=30,seed={seed}",
        1,
    )
    rng = np.random.default_rng(seed)
    board = env.reset(seed).observation[0].numpy()
    walls = board[:, :, 1].copy()
    for _ in range(29):
        # When the agent moves
        (row, column), action = np.argwhere(board[:, :, 0])[0], int(rng.integers(4))
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[action]
        to = min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)
        to = (row, column) if walls[to] else to
        step = env.step(torch.tensor([action]))
        after = step.observation[0].numpy()
        # Then it is where it should be, and was paid for what lay there
        found = board[to][2:]
        assert np.argwhere(after[:, :, 0]).tolist() == [list(to)]
        assert step.reward.item() == pytest.approx(float(found @ np.array(env.game.rewards)))
        assert (after[:, :, 1] == walls).all()
        assert after[:, :, 2:].sum() == board[:, :, 2:].sum() - (0 if respawn else found.sum())
        assert after.sum(axis=2).max() == 1
        board = after


def test_grid_without_respawning_is_bounded_by_its_good_objects():
    spec = "grid:rows=1,columns=5,walls=0,objects=3,kinds=1,respawn=false,steps=10"
    game = make_game(spec)
    total, _ = play_whole(game, lambda state: torch.where(state["time"] < 5, 2, 3))
    assert total.mean().item() == pytest.approx(game.optimal_return)
    assert make_game("grid").optimal_return is None


def test_grid_layouts_differ_by_seed_only():
    def layout(seed, episode):
        env = make_environment(f"grid:walls=6,kinds=3,seed={seed}", 1)
        return env.reset(episode).observation[0, :, :, 1].numpy().tobytes(), env.game.rewards

    assert layout(3, 0) == layout(3, 1)
    assert len({layout(seed, 0) for seed in range(10)}) == 10
    for seed in range(50):
        good, bad, _ = make_game(f"grid:kinds=3,seed={seed}").rewards
        assert -1 <= bad < 0 < good <= 1


def test_bandit_waits_and_then_counts_one_action():
    wait = 2
    env = make_environment(f"bandit:arms=3,contexts=2,noise=0,delay=1,seed=1,wait={wait}", 60)
    means, shown = torch.tensor(env.game.means), env.reset(0).observation
    arm = torch.arange(60) % 3
    for _ in range(wait):
        # Given nothing to see, and actions that do nothing
        assert not shown.any()
        step = env.step((arm + 1) % 3)
        assert step.discount.all()
        assert not step.reward.any()
        shown = step.observation
    # When the context is there and an arm is pulled
    assert shown.sum(dim=1).eq(1).all()
    context = shown[:, :2].argmax(dim=1)
    assert set(context.tolist()) == {0, 1}
    step = env.step(arm)
    assert step.observation[:, 2].eq(1).all()
    # Then that arm is paid for
    step = env.step((arm + 2) % 3)
    assert not step.discount.any()
    assert torch.equal(step.reward, means[context, arm])
    assert not step.observation.any()


def test_umbrella_waits_for_the_forecast():
    wait, length = 2, 3
    env = make_environment(f"umbrella:length={length},noise=0.25,wait={wait}", 400)
    choice, step = torch.arange(400) % 2, env.reset(0)
    for t in range(wait):
        assert not step.observation[:, :2].any()
        assert step.observation[0, 2].item() == pytest.approx(1 - t / (wait + length))
        step = env.step(1 - choice)
        assert set(step.reward.tolist()) == {-0.25, 0.25}
    forecast = step.observation[:, 0]
    assert set(forecast.tolist()) == {0, 1}
    assert not step.observation[:, 1].any()
    for t in range(length):
        assert step.discount.all()
        step = env.step(choice if t == 0 else 1 - choice)
        if t < length - 1:
            assert torch.equal(step.observation[:, 0], forecast)
            assert torch.equal(step.observation[:, 1], choice.float())
    assert not step.discount.any()
    assert torch.equal(step.reward, 2 * (choice == forecast).float() - 1)


@pytest.mark.parametrize("spec", ["bandit:contexts=3,delay=1,seed=4", "umbrella:length=2"])
@pytest.mark.parametrize("wait", [1, 3])
def test_waiting_changes_the_length_and_not_the_optimum(spec, wait):
    patient = make_game(f"{spec},wait={wait}")
    assert optimal_return(f"{spec},wait={wait}") == optimal_return(spec)
    best = BEST[spec.partition(":")[0]]
    (total, lengths), (_, before) = (
        play_whole(game, best(game), num_envs=4096) for game in (patient, make_game(spec))
    )
    assert torch.equal(lengths, before + wait)
    said = optimal_return(spec)
    assert total.mean().item() == pytest.approx(said, abs=4 * total.std().item() / 64 + 1e-5)


@pytest.mark.parametrize("name", ["bandit", "umbrella"])
def test_families_decide_after_the_first_step(name):
    for seed in range(20):
        game = make_game(resolve_environment(f"family:{name}", seed))
        assert game.wait >= 1


@pytest.mark.parametrize("name", ["bandit", "umbrella"])
def test_early_families_are_the_same_but_for_the_wait(name):
    waits = set()
    for seed in range(20):
        game = make_game(resolve_environment(f"family:early_{name}", seed))
        waits.add(game.wait)
        assert replace(game, wait=1) == make_game(resolve_environment(f"family:{name}", seed))
    assert waits == {0, 1}
