"""Evaluation: the first episode of each copy, and nothing else."""

import torch

from discorl.envs import TimeStep, make_environment
from discorl.life.playing import AgentPolicy, evaluate_policy
from discorl.observations import ArraySpec


class Follower:
    """Moves towards the ball, or with `away` from it; as sure as can be."""

    def __init__(self, away=False):
        self.away = away

    def policy(self, params, observations):
        board = observations[..., 0].float()
        columns = torch.arange(board.shape[-1]).float()
        ball = (board[:, :-1].sum(dim=1) * columns).sum(dim=-1)
        paddle = (board[:, -1] * columns).sum(dim=-1)
        side = torch.sign(ball - paddle)
        if self.away:
            side = torch.where(ball >= board.shape[-1] // 2, -1.0, 1.0)
        return 50 * torch.nn.functional.one_hot((side + 1).long(), 3).float()


class Uneven:
    """Copy b's episodes last b + 1 steps and give a reward of b + 1 at each."""

    num_actions, observation_spec = 2, ArraySpec((1,))

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.lengths = torch.arange(1, num_envs + 1)

    def reset(self, seed):
        self.clock = torch.zeros(self.num_envs, dtype=torch.int64)
        zeros = torch.zeros(self.num_envs)
        return TimeStep(zeros.unsqueeze(-1), zeros, zeros.bool())

    def step(self, actions):
        self.clock += 1
        ended = self.clock == self.lengths
        self.clock[ended] = 0
        reward = self.lengths.float()
        return TimeStep(torch.zeros(self.num_envs, 1), reward, ended)


class Anything:
    def policy(self, params, observations):
        return torch.zeros(len(observations), 2)


def evaluate(agent, env, seed=0, greedy=False, **limits):
    """An agent without parameters, in all copies of an environment."""
    params = {"none": torch.zeros(0)}
    return evaluate_policy(AgentPolicy(agent, params, greedy), env, seed, **limits)


def test_a_perfect_player_and_a_hopeless_one():
    for away, expected in ((False, 1.0), (True, -1.0)):
        env = make_environment("catch:rows=6,columns=5", 30)
        result = evaluate(Follower(away), env, greedy=True)
        assert result.mean_return == expected
        assert (result.std_return, result.mean_length) == (0.0, 5.0)
        assert (result.episodes, result.unfinished) == (30, 0)


def test_only_first_episodes_count():
    result = evaluate(Anything(), Uneven(4))
    # Returns 1, 4, 9, 16 and lengths 1 to 4, however often the short ones came round.
    assert result.mean_return == 7.5
    assert result.mean_length == 2.5
    assert abs(result.std_return - torch.tensor([1.0, 4, 9, 16]).std(correction=0).item()) < 1e-6


def test_episodes_at_the_limit_are_said():
    result = evaluate(Anything(), Uneven(4), max_steps=2)
    assert result.unfinished == 2
    assert result.mean_return == (1 + 4 + 6 + 8) / 4
    assert result.mean_length == (1 + 2 + 2 + 2) / 4


def test_the_seed_fixes_the_result():
    class Coin(Anything):
        def policy(self, params, observations):
            return torch.zeros(len(observations), 3)

    env = make_environment("catch:rows=5,columns=5", 200)
    first, again, other = (evaluate(Coin(), env, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
