"""Catch against a plain loop over single boards."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discorl.envs import Catch, TensorEnvironment, make_environment

SIZES = [(8, 8), (5, 5), (10, 7), (2, 1), (2, 4), (3, 2)]


class OneBoard:
    """One game of Catch, without tensors; told where each ball starts."""

    def __init__(self, rows, columns, ball):
        self.rows, self.columns = rows, columns
        self.restart(ball)

    def restart(self, ball):
        self.x, self.y, self.paddle = ball, 0, self.columns // 2

    def picture(self):
        board = [[0] * self.columns for _ in range(self.rows)]
        board[self.y][self.x] = 1
        board[self.rows - 1][self.paddle] = 1
        return board

    def step(self, action):
        """Reward and whether the episode ended; the caller restarts it."""
        self.paddle = max(0, min(self.columns - 1, self.paddle + (-1, 0, 1)[action]))
        self.y += 1
        if self.y < self.rows - 1:
            return 0.0, False
        return (1.0 if self.paddle == self.x else -1.0), True


def ball_column(picture):
    """Where a fresh ball is: the top row is never the paddle's."""
    (column,) = np.flatnonzero(picture[0])
    return int(column)


def compare(rows, columns, seed, choose, steps=40, num_envs=5):
    """Play both, and return all rewards and discounts."""
    env = make_environment(f"catch:rows={rows},columns={columns}", num_envs)
    step = env.reset(seed)
    assert step.reward.tolist() == [0.0] * num_envs
    assert step.discount.tolist() == [1.0] * num_envs
    boards = [OneBoard(rows, columns, ball_column(o)) for o in step.observation[..., 0].numpy()]
    history = []
    for t in range(steps):
        pictures = step.observation[..., 0].numpy()
        actions = [choose(t, b, board) for b, board in enumerate(boards)]
        step = env.step(torch.tensor(actions))
        assert step.observation.shape == (num_envs, rows, columns, 1)
        assert step.observation.dtype == torch.uint8
        for b, board in enumerate(boards):
            assert pictures[b].tolist() == board.picture() or t == 0
            reward, ended = board.step(actions[b])
            picture = step.observation[b, :, :, 0].numpy()
            if ended:
                # The reward of the old episode comes with the new one's first observation.
                board.restart(ball_column(picture))
            assert picture.tolist() == board.picture()
            assert step.reward[b].item() == reward
            assert step.discount[b].item() == (0.0 if ended else 1.0)
        history.append((step.reward.tolist(), step.discount.tolist()))
    return history


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_random_play_equals_a_plain_loop(rows, columns):
    rng = np.random.default_rng(rows * columns)
    compare(rows, columns, seed=1, choose=lambda *_: int(rng.integers(3)))


@given(
    rows=st.integers(2, 7),
    columns=st.integers(1, 7),
    seed=st.integers(0, 1000),
    script=st.lists(st.integers(0, 2), min_size=1, max_size=20),
)
@settings(max_examples=20, deadline=None)
def test_any_script_equals_a_plain_loop(rows, columns, seed, script):
    compare(rows, columns, seed, lambda t, b, _: script[(t + b) % len(script)], num_envs=2)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (5, 5), (10, 7)])
def test_following_the_ball_always_catches_it(rows, columns):
    def follow(_t, _b, board):
        return 1 + (board.x > board.paddle) - (board.x < board.paddle)

    history = compare(rows, columns, seed=3, choose=follow, steps=5 * (rows - 1))
    ends = [t for t, (_, discounts) in enumerate(history, start=1) if 0.0 in discounts]
    assert ends == [n * (rows - 1) for n in range(1, 6)]
    assert all(history[t - 1] == ([1.0] * 5, [0.0] * 5) for t in ends)


def test_walls_stop_the_paddle():
    history = compare(9, 4, seed=0, choose=lambda t, *_: 0 if t % 8 < 7 else 2, steps=16)
    assert len(history) == 16


def test_running_away_loses():
    def away(_t, _b, board):
        return 0 if board.x >= board.columns // 2 else 2

    history = compare(5, 5, seed=2, choose=away, steps=4)
    assert history[-1] == ([-1.0] * 5, [0.0] * 5)


def test_balls_fall_from_every_column_about_equally():
    env = make_environment("catch:rows=3,columns=4", 4000)
    first = env.reset(0).observation[:, 0, :, 0].sum(dim=0)
    env.step(torch.ones(4000, dtype=torch.int64))
    later = env.step(torch.ones(4000, dtype=torch.int64)).observation[:, 0, :, 0].sum(dim=0)
    for counts in (first, later):
        assert counts.sum() == 4000
        assert all(850 < n < 1150 for n in counts.tolist())


def play(env, step, steps, seed=0):
    """The bytes of everything handed out."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(steps):
        step = env.step(torch.randint(3, (env.num_envs,), generator=generator))
        out.append(
            (step.observation.numpy().tobytes(), step.reward.tolist(), step.discount.tolist())
        )
    return out


def test_the_seed_fixes_everything():
    runs = []
    for seed in (1, 1, 2):
        env = make_environment("catch:rows=5", 6)
        runs.append(play(env, env.reset(seed), 30))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_reset_begins_anew():
    env = make_environment("catch", 3)
    first = play(env, env.reset(4), 20)
    assert play(env, env.reset(4), 20) == first


@pytest.mark.parametrize("after", [0, 3, 11])
def test_a_restored_environment_goes_on_bit_for_bit(after):
    env = make_environment("catch:rows=5", 4)
    play(env, env.reset(7), after)
    state = {name: tensor.clone() for name, tensor in env.state_dict().items()}
    rest = play(env, None, 30)
    other = make_environment("catch:rows=5", 4)
    other.reset(99)
    other.load_state_dict(state)
    assert play(other, None, 30) == rest
    for name, tensor in env.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


def test_a_state_is_not_changed_by_playing_on():
    env = make_environment("catch", 4)
    env.reset(0)
    state = env.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    play(env, None, 20)
    for name, tensor in state.items():
        assert torch.equal(tensor, kept[name])


def test_another_number_of_boards_is_refused():
    env = make_environment("catch", 4)
    with pytest.raises(ValueError, match=r"\[3\].*|.*\[4\]"):
        make_environment("catch", 3).load_state_dict(env.state_dict())


@pytest.mark.parametrize("shape", [(3,), (4, 1), ()])
def test_wrong_actions_are_refused(shape):
    env = make_environment("catch", 4)
    with pytest.raises(ValueError, match=r"^actions: expected \[4\], got"):
        env.step(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (0, 5), (5, 0)])
def test_impossible_boards_are_refused(rows, columns):
    with pytest.raises(ValueError, match="rows >= 2 and columns >= 1"):
        Catch(rows, columns)


def test_no_environments_are_refused():
    with pytest.raises(ValueError, match="num_envs: expected at least 1"):
        TensorEnvironment(Catch(), 0)
