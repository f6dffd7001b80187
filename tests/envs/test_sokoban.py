"""Sokoban: its rules by hand, Boxoban's files, and levels that can all be solved."""

import json
from collections import deque

import pytest
import torch

import discorl
from discorl.cli.__main__ import main
from discorl.envs import make_environment
from discorl.envs.registry import make_game, name_game
from discorl.envs.sokoban_levels import generate_levels, read_levels
from discorl.errors import DiscorlError

UP, DOWN, LEFT, RIGHT = range(4)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
ROOM = "; 0\n#######\n#@$ . #\n# $ . #\n#     #\n#######\n"


def play(env, *actions):
    return [env.step(torch.tensor([action])) for action in actions]


@pytest.fixture
def room(tmp_path):
    path = tmp_path / "Levels.txt"
    path.write_text(ROOM)
    return f"sokoban:levels={path}"


def test_pushing_by_hand(room):
    env = make_environment(room, 1)
    board = env.reset(0).observation[0]
    assert board.shape == (5, 7, 4)
    assert board[1, 1].tolist() == [0, 0, 0, 1]
    assert board[1, 2].tolist() == [0, 0, 1, 0]
    assert board[1, 4].tolist() == [0, 1, 0, 0]
    assert board[0].tolist() == [[1, 0, 0, 0]] * 7
    rewards = [float(step.reward) for step in play(env, UP, RIGHT, RIGHT, RIGHT)]
    # A wall stops the agent; the box reaches its goal with the second push, and leaves it again.
    assert rewards == pytest.approx([-0.1, -0.1, 0.9, -1.1])
    steps = play(env, RIGHT)
    # Now a wall stops the box.
    assert steps[0].observation[0, 1, 4].tolist() == [0, 1, 0, 1]
    assert steps[0].observation[0, 1, 5].tolist() == [0, 0, 1, 0]


def test_solving_ends_the_episode(room):
    env = make_environment(room, 1)
    env.reset(0)
    steps = play(env, RIGHT, RIGHT, LEFT, LEFT, DOWN, RIGHT, RIGHT)
    assert [float(step.reward) for step in steps] == pytest.approx([-0.1, 0.9, *[-0.1] * 4, 10.9])
    assert [bool(step.terminated) for step in steps] == [False] * 6 + [True]
    assert env.played()[0, 2, 4].tolist() == [0, 1, 1, 0]


def test_two_boxes_in_a_row_do_not_move(tmp_path):
    path = tmp_path / "row.txt"
    path.write_text("######\n#@$$.#\n#   .#\n######\n")
    env = make_environment(f"sokoban:levels={path},steps=2", 1)
    before = env.reset(0).observation
    first, last = play(env, RIGHT, RIGHT)
    assert torch.equal(first.observation, before)
    assert bool(last.terminated)  # Its time is up.


def solvable(level):
    """Breadth-first search over all positions."""
    start = (level.agent, level.boxes)
    seen, queue = {start}, deque([start])
    while queue:
        agent, boxes = queue.popleft()
        if boxes == level.goals:
            return True
        for down, right in MOVES:
            there = (agent[0] + down, agent[1] + right)
            beyond = (there[0] + down, there[1] + right)
            after = boxes
            if there in boxes:
                if beyond in boxes | level.walls:
                    continue
                after = boxes - {there} | {beyond}
            if there not in level.walls and (there, after) not in seen:
                seen.add((there, after))
                queue.append((there, after))
    return False


@pytest.mark.parametrize("settings", [(6, 6, 1, 2), (7, 7, 2, 3), (6, 8, 2, 4)])
def test_generated_levels_are_solvable(settings):
    levels = generate_levels(*settings, 12, 3)
    assert len({str(level) for level in levels}) > 8
    for level in levels:
        assert not level.boxes & level.goals
        assert len(level.boxes) == len(level.goals) == settings[2]
        assert solvable(level)


def test_levels_are_written_as_they_are_read(tmp_path):
    levels = generate_levels(7, 7, 2, 3, 5, 0)
    path = tmp_path / "levels.txt"
    path.write_text("".join(f"; {n}\n{level}\n\n" for n, level in enumerate(levels)))
    assert tuple(read_levels(path)) == levels
    path.write_text("#####\n#+* #\n# $ #\n#####\n")
    (level,) = read_levels(path)
    assert level.goals == {(1, 1), (1, 2)}
    assert level.boxes == {(1, 2), (2, 2)}
    assert level.agent == (1, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no level"),
        ("#####\n#@$?#\n#####\n", "level 0: unknown sign '\\?'"),
        ("#####\n#@$ #\n#####\n", "as many boxes as goals, got 1, 1 and 0"),
        ("     \n #@$.#\n#####\n", "has no walls around it"),
        (ROOM + "; 1\n#####\n#@$.#\n#####\n", "of one size"),
    ],
)
def test_wrong_files_are_refused(text, words, tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text(text)
    with pytest.raises(DiscorlError, match=words):
        make_game(f"sokoban:levels={path}")


def test_settings_are_checked_and_named(room, tmp_path):
    assert name_game(make_game(room)) == room
    assert name_game(make_game("sokoban:boxes=1")) == "sokoban:boxes=1"
    with pytest.raises(DiscorlError, match="could not be read"):
        make_game(f"sokoban:levels={tmp_path}/none.txt")
    with pytest.raises(DiscorlError, match="expected room for 5 boxes"):
        make_game("sokoban:boxes=5,rows=5,columns=5")


def test_training_and_resuming(tmp_path):
    spec = "sokoban:rows=6,columns=6,boxes=1,walls=0,count=4"
    rule = "actor_critic:num_bins=5,max_abs_value=2"
    run = discorl.train(spec, rule, tmp_path / "run", steps=20, torso=(8,), num_envs=4)
    assert run["updates"] > 0


def test_an_agent_is_tried_on_levels_that_it_was_not_trained_on(tmp_path, capsys):
    small = "rows=5,columns=5,boxes=1,walls=0,steps=10"
    rule = "actor_critic:num_bins=5,max_abs_value=2"
    spec, other = f"sokoban:{small},count=1", f"sokoban:{small},count=40,seed=9"
    run = discorl.train(spec, rule, tmp_path / "run", steps=20, torso=(8,), num_envs=4)
    on_other = run.evaluate(20, deterministic=True, env=other)
    assert len(set(on_other.returns)) >= len(set(run.evaluate(20, deterministic=True).returns)) == 1
    command = ["evaluate", str(tmp_path / "run"), "--episodes", "20", "--env", other]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["env"] == other
    assert told["greedy"]["returns"] == list(on_other.returns)
    assert told["greedy"]["score"] is None
    assert main(command) == 0
    assert f"20 episodes each in {other}:" in capsys.readouterr().out
    assert main([*command[:-1], "catch"]) == 2
    assert "policy: it" in capsys.readouterr().err
