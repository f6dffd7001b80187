"""A training loop of one's own around a module of one's own."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import discorl
from discorl.agents import MLPTorso
from discorl.agents.module import module_agent
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.errors import DiscorlError
from discorl.rollout import Rollout

A = 3


class Catch:
    """A board of arrays, as people write it."""

    def __init__(self, num_envs: int, rows: int = 5, columns: int = 5, seed: int = 0) -> None:
        self.num_envs, self.rows, self.columns = num_envs, rows, columns
        self.random = np.random.default_rng(seed)
        self.row, self.paddle = np.zeros(num_envs, int), np.full(num_envs, columns // 2)
        self.ball = self.random.integers(columns, size=num_envs)
        self.caught: list[bool] = []

    def obs(self) -> np.ndarray:
        board = np.zeros((self.num_envs, self.rows, self.columns))
        every = np.arange(self.num_envs)
        board[every, self.row, self.ball] = 1
        board[every, -1, self.paddle] = 1
        return board

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.paddle = np.clip(self.paddle + actions - 1, 0, self.columns - 1)
        self.row += 1
        done = self.row == self.rows - 1
        hit = self.paddle == self.ball
        self.caught += hit[done].tolist()
        fresh = self.random.integers(self.columns, size=self.num_envs)
        self.ball = np.where(done, fresh, self.ball)
        self.paddle = np.where(done, self.columns // 2, self.paddle)
        self.row[done] = 0
        return np.where(done, 2.0 * hit - 1, 0.0), done.astype(np.float32)

    def step_fn(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rewards, dones = self.step(actions)
        return self.obs(), rewards, dones


def small_agent(rule, cells=25, units=16) -> nn.Module:
    torch.manual_seed(0)
    config = discorl.NetworkConfig(
        model_size=8, head_hidden=8, value_width=1.0, action_head_std=0.001
    )
    torso = nn.Sequential(nn.Flatten(-2), nn.Linear(cells, units), nn.ReLU())
    return nn.Sequential(torso, discorl.DiscoHeads(units, A, rule, config))


class TorchStyle(nn.Module):
    """An agent as disco-torch's users write it; `carried` is what it is handed and hands on."""

    def __init__(self, obs_dim: int, num_actions: int, rule) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.torso = nn.Linear(obs_dim, 16)
        self.heads = discorl.DiscoHeads(16, num_actions, rule)
        self.resets: list[torch.Tensor] = []
        self.carried: list[torch.Tensor] = []

    def forward(self, obs_seq, should_reset):
        self.resets.append(should_reset)
        return self.heads(torch.relu(self.torso(obs_seq)))

    def forward_step(self, obs, state):
        h, c = state
        self.carried.append(h)
        return self.heads(torch.relu(self.torso(obs))), (h + 1, c + 1)

    def init_lstm_state(self, num_envs, device):
        return torch.zeros(num_envs, 4, device=device), torch.zeros(num_envs, 4, device=device)


def random_rollout(seed=0, length=6, batch=3, dtype=torch.float32) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    shape = (length, batch)
    return Rollout(
        observations=torch.rand(*shape, 5, 5, generator=generator),
        actions=torch.randint(A, shape, generator=generator),
        rewards=torch.randn(shape, generator=generator, dtype=dtype),
        discounts=(torch.rand(shape, generator=generator) > 0.2).to(dtype),
        logits=torch.randn(*shape, A, generator=generator, dtype=dtype),
    )


def test_the_quick_start_of_disco_torch_runs(tiny_rule, tmp_path, capsys):
    path = tmp_path / "tiny.safetensors"
    discorl.save_rule(tiny_rule, path)
    device = torch.device("cpu")
    agent = TorchStyle(obs_dim=25, num_actions=3, rule=tiny_rule).to(device)
    trainer = discorl.DiscoTrainer(
        agent, device=device, lr=0.01, batch_size=4, weights_path=str(path)
    )
    env = Catch(num_envs=2)
    obs = env.obs()
    lstm_state = agent.init_lstm_state(env.num_envs, device)

    def step_fn(actions):
        rewards, dones = env.step(actions)
        return env.obs(), rewards, dones

    for step in range(10):
        rollout, obs, lstm_state = discorl.collect_rollout(
            agent, step_fn, obs, lstm_state, rollout_length=30, device=device
        )
        logs = trainer.step(rollout)
        print(f"Step {step + 1}: loss={logs['total_loss']:.4f}")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Step 1: loss=nan"
    assert all(float(line.partition("=")[2]) > 0 for line in lines[1:])
    assert (trainer.acting_steps, trainer.grad_steps) == (10, 9)
    assert all(metric.dim() == 0 for metric in logs.values())
    # Learning was told where episodes begin, and acting forgot there.
    assert agent.resets[-1].shape == (30, 4)
    assert agent.resets[-1].sum() > 0
    assert {int(h.max()) for h in agent.carried} <= {0, 1, 2, 3}


def test_what_a_module_carries_goes_on_from_rollout_to_rollout(tiny_rule):
    agent = TorchStyle(50, A, tiny_rule)
    env = Catch(num_envs=2, rows=10)
    obs, state = env.obs(), agent.init_lstm_state(2, "cpu")
    for _ in range(2):
        _, obs, state = discorl.collect_rollout(agent, env.step_fn, obs, state, rollout_length=4)
    # Three steps each; the observation to bootstrap from is seen again and counts once.
    assert state[0].unique().tolist() == [6]
    assert [int(h[0, 0]) for h in agent.carried] == [0, 1, 2, 3, 3, 4, 5, 6]


def test_a_module_of_this_style_has_a_policy_of_single_steps(tiny_rule):
    agent = TorchStyle(25, A, tiny_rule)
    learning = module_agent(agent, tiny_rule.heads(A))
    params, obs = learning.init(torch.Generator()), torch.rand(2, 25)
    expected, _ = agent.forward_step(obs, agent.init_lstm_state(2, "cpu"))
    assert torch.equal(learning.policy(params, obs), expected["logits"])
    assert agent.resets[-1].tolist() == [[1, 1]]


@pytest.mark.parametrize("tensors", [False, True])
def test_a_rollout_holds_what_happened(tiny_rule, tensors):
    env, seen = Catch(num_envs=2), []
    board = np.zeros((2, 5, 5), np.float32)

    def step_fn(actions):
        assert isinstance(actions, torch.Tensor) is tensors
        rewards, dones = env.step(np.asarray(actions))
        board[:] = env.obs()  # Written over in place.
        seen.append((np.asarray(actions).copy(), board.copy(), rewards, dones))
        if not tensors:
            return board, rewards, dones
        return torch.from_numpy(board), torch.tensor(rewards), torch.tensor(dones).bool()

    agent = small_agent(tiny_rule)
    first = torch.from_numpy(env.obs()) if tensors else env.obs()
    start = torch.Generator().manual_seed(1)
    rollout, obs, state = discorl.collect_rollout(
        agent, step_fn, first, None, rollout_length=10, generator=start
    )
    actions, boards, rewards, dones = (np.stack(part) for part in zip(*seen, strict=True))
    assert state is None
    assert rollout.observations.dtype == torch.float32
    assert len(seen) == 9
    assert rollout.actions.shape == (10, 2)
    np.testing.assert_array_equal(rollout.actions[:-1], actions)
    np.testing.assert_array_equal(rollout.observations[0], np.asarray(first))
    np.testing.assert_array_equal(rollout.observations[1:], boards)
    np.testing.assert_array_equal(rollout.rewards[1:], rewards)
    np.testing.assert_array_equal(rollout.discounts[1:], 1 - dones)
    np.testing.assert_array_equal(np.asarray(obs), boards[-1])
    assert dones.any()
    assert rollout.discounts[0].tolist() == [1, 1]
    torch.testing.assert_close(rollout.logits, agent(rollout.observations)["logits"].detach())
    # The next one begins where this one ended.
    following, _, _ = discorl.collect_rollout(agent, step_fn, obs, None, rollout_length=5)
    assert torch.equal(following.observations[0], rollout.observations[-1])


def test_observations_keep_their_integers_and_names(tiny_rule):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = discorl.DiscoHeads(4, A, tiny_rule)

        def forward(self, obs):
            return self.heads(torch.cat([obs["a"], obs["b"].float()], dim=-1))

    def step_fn(actions):
        return {"a": np.ones((3, 2)), "b": np.full((3, 2), 7, np.uint8)}, np.ones(3), np.zeros(3)

    agent = Reader()
    first = {"a": np.zeros((3, 2)), "b": np.zeros((3, 2), np.uint8)}
    rollout, _, _ = discorl.collect_rollout(agent, step_fn, first, None, rollout_length=5)
    assert rollout.observations["b"].dtype == torch.uint8
    trainer = discorl.DiscoTrainer(agent, tiny_rule, batch_size=2, replay_capacity=8)
    assert trainer.step(rollout)["total_loss"] > 0
    # A state holds them by name too.
    twin = discorl.DiscoTrainer(copy.deepcopy(agent), tiny_rule, batch_size=2, replay_capacity=8)
    twin.load_state_dict(trainer.state_dict())
    assert torch.equal(twin.step(rollout)["total_loss"], trainer.step(rollout)["total_loss"])


def test_a_discorl_environment_may_stand_for_the_function(tiny_rule):
    env = discorl.make_environment("catch:rows=5,columns=5", 2)
    torso = MLPTorso((5, 5, 1), (8,))
    agent = nn.Sequential(torso, discorl.DiscoHeads(8, A, tiny_rule))
    with pytest.raises(DiscorlError, match=r"env\.reset\(seed\)"):
        discorl.collect_rollout(agent, env, None, None, rollout_length=5)
    obs = env.reset(0)
    first, obs, _ = discorl.collect_rollout(agent, env, obs, None, rollout_length=5)
    second, _, _ = discorl.collect_rollout(agent, env, obs, None, rollout_length=5)
    assert first.discounts[-1].tolist() == [0, 0]
    assert torch.equal(second.observations[0], first.observations[-1])
    assert torch.equal(second.discounts[0], first.discounts[-1])


def test_episodes_that_a_time_limit_cuts_are_told_of(tiny_rule):
    vector_env = gymnasium.make_vec("CartPole-v1", 2, "sync", max_episode_steps=4)
    agent = nn.Sequential(nn.Linear(4, 8), discorl.DiscoHeads(8, 2, tiny_rule))
    with pytest.raises(DiscorlError, match=r"GymnasiumEnvironment\(vector_env"):
        discorl.collect_rollout(agent, vector_env, None, None, rollout_length=5)
    env = GymnasiumEnvironment(vector_env, "cartpole")
    rollout, obs, _ = discorl.collect_rollout(agent, env, env.reset(0), None, rollout_length=7)
    assert rollout.final.any(dim=0).all()
    trainer = discorl.DiscoTrainer(agent, tiny_rule, batch_size=2)
    trainer.step(rollout)
    following, _, _ = discorl.collect_rollout(agent, env, obs, None, rollout_length=7)
    assert trainer.step(following)["total_loss"].isfinite()
    env.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first_steps", [False, True])
def test_it_is_the_learner(tiny_rule, dtype, first_steps):
    agent = small_agent(tiny_rule).to(dtype)
    rule = tiny_rule.to(dtype)
    learner = discorl.Learner(
        discorl.agents.ModuleAgent(copy.deepcopy(agent), rule.heads(A)),
        rule,
        discorl.ClippedAdam(discorl.Schedule(0.02)),
        first_steps,
    )
    state = learner.init_from({n: p.detach().clone() for n, p in agent.named_parameters()})
    trainer = discorl.DiscoTrainer(
        agent, tiny_rule, lr=0.02, batch_size=None, learn_first_steps=first_steps
    )
    for seed in range(3):
        rollout = random_rollout(seed)
        rollout = replace(rollout, observations=rollout.observations.to(dtype))
        metrics = trainer.step(rollout)
        state, expected = learner.step(state, rollout.to(dtype))
        assert torch.equal(metrics["total_loss"], expected["total_loss"])
    for name, p in agent.named_parameters():
        assert torch.equal(p, state.params[name]), name
        assert torch.equal(trainer.state.target_params[name], state.target_params[name])
    assert trainer.replay is None


@pytest.mark.parametrize("batch_size", [None, 5])
def test_going_on_from_a_state_is_exact(tiny_rule, batch_size):
    def make(seed):
        torch.manual_seed(seed)
        return discorl.DiscoTrainer(
            small_agent(tiny_rule), tiny_rule, batch_size=batch_size, replay_ratio=2, seed=seed
        )

    one = make(0)
    for seed in range(4):
        one.step(random_rollout(seed))
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    in_hand = one.state_dict()
    after = [one.step(random_rollout(seed)) for seed in range(4, 7)]
    assert one.grad_steps == (14 if batch_size is None else 12)
    for state in (torch.load(file, weights_only=True), in_hand):
        other = make(1)
        with torch.no_grad():
            next(other.agent.parameters()).add_(1)
        other.load_state_dict(state)
        again = [other.step(random_rollout(seed)) for seed in range(4, 7)]
        for found, expected in zip(again, after, strict=True):
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in found)
        assert (other.grad_steps, other.acting_steps) == (one.grad_steps, one.acting_steps)
        ours, theirs = one.state_dict(), other.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_state_of_another_agent_is_refused_whole(tiny_rule):
    trainer = discorl.DiscoTrainer(small_agent(tiny_rule), tiny_rule, batch_size=2)
    other = discorl.DiscoTrainer(small_agent(tiny_rule, units=17), tiny_rule, batch_size=2)
    trainer.step(random_rollout())
    before = other.state_dict()
    with pytest.raises(DiscorlError, match=r"does not fit this trainer.*expected float32\[17"):
        other.load_state_dict(trainer.state_dict())
    with pytest.raises(DiscorlError, match="does not fit this trainer"):
        other.load_state_dict({})
    assert all(torch.equal(before[name], t) for name, t in other.state_dict().items())


def test_the_module_itself_learns_and_may_be_changed(tiny_rule):
    agent = small_agent(tiny_rule)
    frozen = agent[0][1].bias.requires_grad_(False)
    kept, parameter = frozen.clone(), agent[0][1].weight
    trainer = discorl.DiscoTrainer(agent, tiny_rule, batch_size=None)
    probe = random_rollout().observations
    before, weights = agent(probe)["logits"], parameter.clone()
    trainer.step(random_rollout())
    assert agent[0][1].weight is parameter
    assert parameter.grad is None
    assert not torch.equal(parameter, weights)
    assert not torch.equal(agent(probe)["logits"], before)
    assert torch.equal(frozen, kept)
    # What is put into the module from outside counts.
    with torch.no_grad():
        parameter.zero_()
    trainer.step(random_rollout(1))
    assert parameter.abs().max() <= 0.0101
    agent.load_state_dict({k: 0 * v for k, v in agent.state_dict().items()}, assign=True)
    trainer.step(random_rollout(2))
    assert 0 < agent[0][1].weight.abs().max() <= 0.0101


def test_learning_waits_until_a_batch_is_stored(tiny_rule):
    trainer = discorl.DiscoTrainer(
        small_agent(tiny_rule), tiny_rule, batch_size=5, replay_capacity=6, replay_ratio=3
    )
    assert trainer.step(random_rollout(0))["total_loss"].isnan()
    assert (trainer.grad_steps, trainer.acting_steps) == (0, 1)
    assert trainer.step(random_rollout(1))["total_loss"].isfinite()
    assert (trainer.grad_steps, trainer.acting_steps) == (3, 2)
    trainer.step(random_rollout(2))
    assert trainer.replay.size == 6


def test_other_rules_learn_too():
    agent = nn.Sequential(
        nn.Flatten(-2), nn.Linear(25, 8), discorl.DiscoHeads(8, A, "actor_critic")
    )
    trainer = discorl.DiscoTrainer(agent, "actor_critic", batch_size=None)
    assert trainer.step(random_rollout())["total_loss"].isfinite()
    assert trainer.state.target_params is None


def test_what_does_not_fit_is_refused(tiny_rule):
    agent = small_agent(tiny_rule)

    def trainer(**options):
        return discorl.DiscoTrainer(agent, tiny_rule, **options)

    with pytest.raises(DiscorlError, match="batch_size: expected 1 to replay_capacity"):
        trainer(batch_size=8, replay_capacity=4)
    with pytest.raises(DiscorlError, match="replay_ratio"):
        trainer(replay_ratio=0)
    with pytest.raises(DiscorlError, match="lr: expected a positive"):
        trainer(lr=0.0)
    with pytest.raises(DiscorlError, match="not on meta"):
        trainer(device="meta")
    with pytest.raises(DiscorlError, match="advantages from outside"):
        discorl.DiscoTrainer(agent, "policy_gradient")
    with pytest.raises(DiscorlError, match="head 'y' is"):
        discorl.DiscoTrainer(agent, "sprout").step(random_rollout())
    with pytest.raises(DiscorlError, match=r"expected a discorl\.Rollout.*got dict"):
        trainer().step({"observations": None})
    with pytest.raises(DiscorlError, match="rollout has no memory"):
        trainer().step(replace(random_rollout(), memory={"h": torch.zeros(1, 3, 2)}))
    with pytest.raises(DiscorlError, match=r"replay: this rollout does not fit.*capacity"):
        trainer(batch_size=2, replay_capacity=2).step(random_rollout())
    fussy = trainer(batch_size=2)
    fussy.step(random_rollout())
    with pytest.raises(DiscorlError, match="expected 6 steps"):
        fussy.step(random_rollout(length=7))


def test_step_functions_are_checked(tiny_rule):
    agent, obs = small_agent(tiny_rule), np.zeros((2, 5, 5))

    def collect(step_fn, length=3):
        return discorl.collect_rollout(agent, step_fn, obs, None, rollout_length=length)

    with pytest.raises(DiscorlError, match="return three things"):
        collect(lambda actions: (obs, np.zeros(2)))
    with pytest.raises(DiscorlError, match=r"rewards of shape \[2\].*got \[2, 1\]"):
        collect(lambda actions: (obs, np.zeros((2, 1)), np.zeros(2)))
    with pytest.raises(DiscorlError, match="expected a function"):
        collect("env")
    with pytest.raises(DiscorlError, match="rollout_length: expected at least 2, got 1"):
        collect(lambda actions: (obs, np.zeros(2), np.zeros(2)), 1)
    with pytest.raises(DiscorlError, match=r"'logits' is missing"):
        discorl.collect_rollout(_Headless(), lambda a: None, obs, None, rollout_length=3)
    with pytest.raises(DiscorlError, match="Network holds no parameters"):
        discorl.collect_rollout(
            discorl.Network.mlp((5, 5), tiny_rule.heads(A)),
            lambda a: None,
            obs,
            None,
            rollout_length=3,
        )


class _Headless(nn.Linear):
    def __init__(self):
        super().__init__(5, 3)

    def forward(self, obs):
        return {"policy": super().forward(obs)}


def test_a_compiled_module_acts_and_learns_as_the_plain_one(tiny_rule):
    def run(compiled):
        agent, env = small_agent(tiny_rule), Catch(2)
        acting = torch.compile(agent, backend="eager") if compiled else agent
        trainer = discorl.DiscoTrainer(acting, tiny_rule, batch_size=2)
        obs, losses = env.obs(), []
        for _ in range(3):
            rollout, obs, _ = discorl.collect_rollout(
                acting, env.step_fn, obs, None, rollout_length=6, generator=trainer.generator
            )
            losses.append(trainer.step(rollout)["total_loss"])
        return torch.stack(losses), trainer.state_dict()

    (plain, state), (compiled, other) = run(False), run(True)
    torch.testing.assert_close(compiled, plain)
    # So a state of one can be loaded into the other.
    assert state.keys() == other.keys()


def test_under_autocast_the_heads_are_coarse_and_the_loss_is_not(tiny_rule):
    def run(autocast):
        agent, seen = small_agent(tiny_rule), []
        agent.register_forward_hook(lambda *args: seen.append(args[2]["y"].dtype))
        trainer = discorl.DiscoTrainer(agent, tiny_rule, batch_size=None)
        env = Catch(2)
        obs = env.obs()
        generator = torch.Generator().manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            for _ in range(3):
                rollout, obs, _ = discorl.collect_rollout(
                    agent, env.step_fn, obs, None, rollout_length=6, generator=generator
                )
                seen.clear()
                metrics = trainer.step(rollout)
            probe = random_rollout().observations
            inside = agent(probe)["y"]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            assert torch.equal(agent(probe)["y"], inside), "it acts with old parameters"
        assert all(p.dtype == torch.float32 for p in agent.parameters())
        return metrics, rollout, set(seen)

    metrics, rollout, types = run(autocast=True)
    assert types == {torch.bfloat16}
    assert rollout.logits.dtype == torch.float32
    assert all(metric.dtype == torch.float32 for metric in metrics.values())
    exact, _, types = run(autocast=False)
    assert types == {torch.float32}
    assert metrics["total_loss"] != exact["total_loss"]
    assert metrics["total_loss"].item() == pytest.approx(exact["total_loss"].item(), rel=0.1)


def play(agent, trainer, env, steps, length):
    obs, state = env.obs(), None
    if hasattr(agent, "init_lstm_state"):
        state = agent.init_lstm_state(env.num_envs, "cpu")
    for _ in range(steps):
        rollout, obs, state = discorl.collect_rollout(
            agent, env.step_fn, obs, state, rollout_length=length, generator=trainer.generator
        )
        trainer.step(rollout)
    return sum(env.caught[-200:]) / 200


def test_an_agent_learns_catch():
    torch.manual_seed(0)
    torso = nn.Sequential(nn.Flatten(-2), nn.Linear(25, 64), nn.ReLU(), nn.Linear(64, 64))
    agent = nn.Sequential(torso, nn.ReLU(), discorl.DiscoHeads(64, A, "actor_critic"))
    trainer = discorl.DiscoTrainer(
        agent, "actor_critic", lr=0.01, batch_size=None, learn_first_steps=True
    )
    assert play(agent, trainer, Catch(32), steps=120, length=16) >= 0.95


class FiveLinearHeads(nn.Module):
    """No model of the actions at all."""

    def __init__(self):
        super().__init__()
        self.torso = nn.Sequential(
            nn.Flatten(-2), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()
        )
        self.logits, self.y = nn.Linear(512, A), nn.Linear(512, 600)
        self.z, self.q = nn.Linear(512, A * 600), nn.Linear(512, A * 601)
        self.aux_pi = nn.Linear(512, A * A)

    def forward(self, obs):
        x = self.torso(obs)
        return {
            "logits": self.logits(x),
            "y": self.y(x),
            "z": self.z(x).unflatten(-1, (A, 600)),
            "q": self.q(x).unflatten(-1, (A, 601)),
            "aux_pi": self.aux_pi(x).unflatten(-1, (A, A)),
        }


class MLPWithHeads(nn.Sequential):
    def __init__(self):
        torso = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
        super().__init__(nn.Flatten(-2), *torso, discorl.DiscoHeads(512, A, "disco103"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [MLPWithHeads, FiveLinearHeads])
def test_the_quick_start_learns_catch(make, disco103_path: Path):
    torch.manual_seed(0)
    agent = make()
    trainer = discorl.DiscoTrainer(agent, disco103_path, lr=0.01)
    assert play(agent, trainer, Catch(2, 8, 8), steps=450, length=30) >= 0.99


@pytest.mark.parametrize("actions", [2, 5])
def test_an_agent_with_another_number_of_actions_is_refused(actions):
    env = discorl.make_environment("catch:rows=3,columns=3", 2)
    torso = MLPTorso((3, 3, 1), (8,), activate_last=True)
    agent = nn.Sequential(torso, discorl.DiscoHeads(8, actions, "actor_critic"))
    with pytest.raises(DiscorlError, match=f"it has {actions} actions, the environment 3"):
        discorl.collect_rollout(agent, env, env.reset(0), None, rollout_length=3)
