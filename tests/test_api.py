"""What a person does in ten lines: train anywhere, stop, load, act, resume, evaluate, plot."""

import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import discorl
from discorl.envs.catch import Catch
from discorl.envs.tensor import TensorEnvironment
from discorl.errors import DiscorlError
from discorl.runs.folder import file_name
from discorl.settings import change
from discorl.training.start import run_name
from discorl.values import entropy
from discorl.values.distributions import log_prob

SMALL = {"torso": (8,), "eval_episodes": 4, "steps": 6, "log_every": 2, "checkpoint_every": 3}


class Light(gymnasium.Env):
    """Press the button that is lit; ends after four presses."""

    observation_space = spaces.Discrete(3, start=5)
    action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.presses = 0
        self.lit = int(self.np_random.integers(3))
        return self.lit + 5, {}

    def step(self, action):
        reward = float(action == self.lit - 1)
        self.presses += 1
        self.lit = int(self.np_random.integers(3))
        return self.lit + 5, reward, False, self.presses == 4, {}


def make_light():
    return Light()


@pytest.fixture
def run(tmp_path):
    return discorl.train("catch:rows=4,columns=3", "actor_critic", tmp_path / "run", **SMALL)


def test_a_run_reads_like_its_result(run):
    assert dict(run) == run.result
    assert run["steps"] == 6
    assert "eval_return_greedy" in run
    assert len(run) == len(run.result)
    assert run.config.torso == (8,)
    assert [row["step"] for row in run.metrics] == [2, 4, 6]
    assert str(run.folder) in repr(run)


def test_progress_is_silent_where_nobody_looks(tmp_path, capfd):
    discorl.train("catch", "actor_critic", tmp_path / "a", **SMALL)
    assert capfd.readouterr() == ("", "")
    discorl.train("catch", "actor_critic", tmp_path / "b", progress=True, **SMALL)
    assert "step 6/6" in capfd.readouterr().err


def test_without_a_folder_a_new_one_is_made_each_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (discorl.train("catch", "actor_critic", **SMALL) for _ in range(2))
    assert first.folder != second.folder
    assert first.folder.parent.name == "runs"


@pytest.mark.parametrize(
    "env", [Light(), make_light, lambda: Light()], ids=["object", "function", "lambda"]
)
def test_an_environment_of_ones_own_is_trained_in_and_played(tmp_path, env):
    run = discorl.train(env, "actor_critic", tmp_path / "run", num_envs=4, **SMALL)
    env, agent = Light(), run.agent
    observation, _ = env.reset(seed=1)
    for _ in range(4):
        action, state = agent.act(observation)
        assert env.action_space.contains(action)
        assert state is None
        observation, _, _, truncated, _ = env.step(action)
    assert truncated
    many, _ = agent.act(np.array([5, 6, 7]), deterministic=True)
    assert many.shape == (3,)
    assert agent.probabilities(5).shape == (3,)


def test_a_function_in_a_module_is_remembered_by_name_and_an_object_is_not(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_worlds", sys.modules[__name__])
    monkeypatch.setattr(make_light, "__module__", "my_worlds")
    by_name = discorl.train(make_light, "actor_critic", tmp_path / "a", num_envs=2, **SMALL)
    assert by_name.config.env == "my_worlds:make_light"
    assert discorl.load_run(by_name.folder).resume(8)["steps"] == 8
    by_hand = discorl.train(Light(), "actor_critic", tmp_path / "b", num_envs=2, **SMALL)
    assert by_hand.config.env == "given:Light"
    assert by_hand.resume(8)["steps"] == 8
    with pytest.raises(DiscorlError, match="pass it again"):
        discorl.load_run(by_hand.folder).resume(10)
    assert discorl.load_run(by_hand.folder, env=Light()).resume(10)["steps"] == 10


class Half(gymnasium.Wrapper):
    """Half of every reward."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward / 2, *rest


def test_wrappers_and_changes_of_a_gymnasium_environment_are_kept(tmp_path):
    env = Half(gymnasium.make("CartPole-v1", max_episode_steps=7))
    env.unwrapped.force_mag = 0.0
    env.unwrapped.theta_threshold_radians = 9.0
    run = discorl.train(env, "actor_critic", tmp_path / "a", **SMALL)
    assert run.config.env == "given:CartPole-v1"
    evaluation = run.evaluate(3)
    assert (evaluation.mean_length, evaluation.mean_return) == (7, 3.5)


def test_the_settings_of_a_rule_object_are_remembered(tmp_path):
    rule = discorl.ActorCritic(entropy_cost=0.01, normalize_advantage=True)
    run = discorl.train("catch", rule, tmp_path / "run", **SMALL)
    assert run.config.rule == "actor_critic:normalize_advantage=true,entropy_cost=0.01"
    assert discorl.load_rule(run.config.rule) == rule
    assert run.config.torso == (8,)
    assert run.config.learning_rate == discorl.make_config("catch", "actor_critic").learning_rate


def test_our_own_environments_and_vector_environments(tmp_path):
    env = TensorEnvironment(Catch(rows=4, columns=3), num_envs=6)
    run = discorl.train(env, "actor_critic", tmp_path / "a", **SMALL)
    assert (run.config.env, run.config.num_envs) == ("catch:rows=4,columns=3", 6)
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3)
    run = discorl.train(vector, "actor_critic", tmp_path / "b", **SMALL)
    assert run.config.num_envs == 3
    assert run.resume(8)["steps"] == 8


class Closable(gymnasium.vector.SyncVectorEnv):
    """Cannot be used once it is closed."""

    def step(self, actions):
        assert not self.closed
        return super().step(actions)


def test_an_object_is_left_as_it_is_so_the_run_can_be_resumed_in_it(tmp_path):
    env = Closable([make_light] * 3)
    run = discorl.train(env, "actor_critic", tmp_path / "run", **SMALL)
    assert not env.closed
    assert run.resume(8)["steps"] == 8
    assert run.evaluate(4).episodes == 4
    env.close()


def test_a_run_that_cannot_begin_leaves_no_environment_open(tmp_path):
    closed = []

    class Counted(Light):
        def close(self):
            closed.append(self)

    with pytest.raises(DiscorlError, match="forward failed"):
        discorl.train(
            Counted, "actor_critic", tmp_path / "a", network=nn.Linear(9, 9), num_envs=2, **SMALL
        )
    assert len(closed) == 2
    with pytest.raises(DiscorlError, match="wandb"):
        discorl.train(Counted, "actor_critic", tmp_path / "b", wandb=True, num_envs=3, **SMALL)
    assert len(closed) == 5


def test_folders_are_named_after_the_rule_and_its_settings():
    config = discorl.make_config("catch", "actor_critic:entropy_cost=0.01")
    assert file_name(run_name(config)) == "catch-actor_critic_entropy_cost_0.01-s0"
    assert run_name(change(config, {"rule": "some/best_rule.safetensors"})) == "catch-best_rule-s0"
    assert run_name(discorl.make_config("ALE/Pong-v5", seed=1)) == "ALE/Pong-v5-actor_critic-s1"
    config = discorl.make_config("ALE/Pong-v5", "actor_critic:entropy_cost=0.05")
    assert run_name(config) == "ALE/Pong-v5-actor_critic:entropy_cost=0.05-s0"


def test_what_cannot_be_copied_is_refused_at_once(tmp_path):
    env = Light()
    env.lock = (i for i in ())
    with pytest.raises(DiscorlError, match=r"cannot be copied.*give a function that makes it"):
        discorl.train(env, "actor_critic", tmp_path / "run", **SMALL)
    with pytest.raises(DiscorlError, match="expected a name, an environment or a function"):
        discorl.train(3, "actor_critic", tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Greedy(discorl.HandWritten):
    """Policy gradient on the next reward."""

    name = "greedy"

    def heads(self, num_actions):
        return discorl.ActorCritic().heads(num_actions)

    def targets(self, outputs, target_outputs, transitions, state, differentiable=False):
        return transitions.rewards, state

    def loss(self, outputs, targets, transitions):
        logits = outputs.logits[:-1]
        loss = -log_prob(logits, transitions.actions) * targets
        return loss, {"entropy": entropy(logits.detach()).mean()}


def test_a_rule_object(tmp_path):
    run = discorl.train("catch", Greedy(), tmp_path / "a", **SMALL)
    assert run.config.rule == "greedy"
    assert run.config.learning_rate == discorl.make_config("catch", "actor_critic").learning_rate
    assert run.resume(8)["steps"] == 8
    assert discorl.load_run(run.folder, rule=Greedy()).resume(10)["steps"] == 10
    with pytest.raises(DiscorlError, match="unknown rule 'greedy'"):
        discorl.load_run(run.folder).resume(12)
    changed = discorl.ActorCritic(entropy_cost=0.01)
    by_object = discorl.train("catch", changed, tmp_path / "b", **SMALL)
    by_name = discorl.train("catch", "actor_critic:entropy_cost=0.01", tmp_path / "c", **SMALL)
    assert by_object["eval_return_sampled"] == by_name["eval_return_sampled"]
    weights = [run.agent.params["head.logits.weight"] for run in (by_object, by_name)]
    assert torch.equal(*weights)


def torso():
    return nn.Sequential(nn.Flatten(-3), Floats(), nn.Linear(12, 7), nn.ReLU())


class Floats(nn.Module):
    """Bytes to floats."""

    def forward(self, observations):
        return observations.float()


class Whole(nn.Module):
    """All heads of actor-critic at once."""

    def __init__(self):
        super().__init__()
        self.torso = torso()
        self.logits, self.v = nn.Linear(7, 3), nn.Linear(7, 601)

    def forward(self, observations):
        features = self.torso(observations)
        return {"logits": self.logits(features), "v": self.v(features)}


@pytest.mark.parametrize("make", [torso, Whole])
def test_a_network_of_ones_own(tmp_path, make):
    torch.manual_seed(0)
    module = make()
    settings = {"eval_episodes": 4, "steps": 6, "checkpoint_every": 3}
    run = discorl.train(
        "catch:rows=4,columns=3", "actor_critic", tmp_path / "run", network=module, **settings
    )
    board = np.zeros((4, 3, 1), np.uint8)
    expected = run.agent.probabilities(board)
    with pytest.raises(DiscorlError, match="module of your own: pass it again"):
        discorl.load_agent(run.folder)
    loaded = discorl.load_agent(run.folder, network=make())
    np.testing.assert_allclose(loaded.probabilities(board), expected, rtol=1e-6)
    assert discorl.load_run(run.folder, network=make()).resume(8)["steps"] == 8


def test_networks_that_do_not_fit_are_explained(tmp_path):
    for module, words in [
        (nn.Linear(3, 3), "forward failed on observations uint8"),
        (nn.Sequential(Floats(), nn.Linear(1, 5)), r"must give features \[T, B, F\]"),
        ("no module", "expected a torch.nn.Module"),
    ]:
        with pytest.raises(DiscorlError, match=words):
            discorl.train("catch", "actor_critic", tmp_path / "run", network=module)


def test_a_callback_sees_records_and_the_agent_and_ends_the_run(tmp_path):
    seen = []

    def stop_at_four(progress):
        seen.append((progress.step, progress.metrics["charts/env_steps"]))
        assert progress.agent.info["steps"] == progress.step
        return progress.step >= 4

    run = discorl.train(
        "catch", "actor_critic", tmp_path / "run", callbacks=[stop_at_four], **SMALL
    )
    assert [step for step, _ in seen] == [2, 4]
    assert run["steps"] == 4
    assert run.agent.info["steps"] == 4
    assert run.resume()["steps"] == 6


def test_a_callback_ends_a_discovery(tmp_path):
    run = discorl.discover(
        tmp_path / "run",
        callbacks=[lambda progress: progress.step >= 2],
        meta_steps=8,
        log_every=1,
        eval_steps=3,
        agents=1,
        num_envs=4,
        torso=(8,),
        model_size=4,
        head_hidden=4,
        value_torso=(4,),
        num_bins=5,
        predictions=4,
        hidden=4,
        meta_hidden=4,
    )
    assert run["meta_steps"] == 2
    assert run.rule.config.num_bins == 5
    assert run.best_rule.name == "run"
    assert discorl.load_run(run.folder).resume(3)["meta_steps"] == 3
    assert run.plot(tmp_path / "d.png").stat().st_size > 0


def test_an_agent_alone_in_a_file(run, tmp_path):
    agent, path = run.agent, tmp_path / "agent.safetensors"
    agent.save(path)
    loaded = discorl.load_agent(path)
    boards = np.random.default_rng(0).integers(2, size=(5, 4, 3, 1)).astype(np.uint8)
    assert np.array_equal(loaded.probabilities(boards), agent.probabilities(boards))
    for each in (agent, loaded):
        each.seed(3)
    assert np.array_equal(loaded.act(boards)[0], agent.act(boards)[0])
    assert loaded.info == agent.info
    assert (loaded.info["env"], loaded.info["steps"]) == ("catch:rows=4,columns=3", 6)
    checkpoint = discorl.load_agent(run.folder / "checkpoints" / "step_00000003")
    assert checkpoint.info["steps"] == 3
    with pytest.raises(DiscorlError, match=r"ending in \.safetensors"):
        agent.save(tmp_path / "agent.pt")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x02\0\0\0\0\0\0\0{}"])
def test_files_that_are_no_agents(tmp_path, content):
    path = tmp_path / "agent.safetensors"
    with pytest.raises(DiscorlError, match="no such file"):
        discorl.load_agent(path)
    path.write_bytes(content)
    with pytest.raises(DiscorlError, match=r"agent\.safetensors: "):
        discorl.load_agent(path)
    with pytest.raises(DiscorlError, match=r"agent\.safetensors: "):
        discorl.load_agent(tmp_path)  # As `discorl pack` writes it.
    path.unlink()
    with pytest.raises(DiscorlError, match="holds no run"):
        discorl.load_agent(tmp_path)


def test_memory_is_carried_and_forgotten_where_episodes_start(tmp_path):
    run = discorl.train(
        "memory:delay=2", "actor_critic", tmp_path / "run", memory="gru", memory_size=5, **SMALL
    )
    agent = discorl.load_agent(run.folder)
    shape = agent.blueprint.observation_space.shape
    observations = np.random.default_rng(0).integers(2, size=(3, 2, *shape), dtype=np.uint8)
    observations[:, 0, 0] = 1
    state = None
    for observation in observations:
        _, state = agent.act(observation, state)
    assert state["hidden"].shape == (2, 5)
    fresh = agent.probabilities(observations[0])
    started = agent.probabilities(observations[0], state, episode_start=[True, False])
    np.testing.assert_allclose(started[0], fresh[0], rtol=1e-5)
    assert not np.allclose(started[1], fresh[1], rtol=1e-5)
    with pytest.raises(DiscorlError, match="episode_start: expected 2 booleans"):
        agent.act(observations[0], state, episode_start=[True])
    with pytest.raises(DiscorlError, match="state: it is not of 1 observations"):
        agent.act(observations[0, :1], state)


def test_observations_are_normalised_as_in_training(tmp_path):
    run = discorl.train(
        "CartPole-v1", "actor_critic", tmp_path / "run", normalize_observations=True, **SMALL
    )
    agent = run.agent
    agent.save(tmp_path / "alone.safetensors")
    observation = np.array([1.0, 2.0, 0.1, -1.0], np.float32)
    shifted = agent.moments.normalize(torch.tensor(observation[None]))
    expected = torch.softmax(agent.agent.policy(agent.params, shifted), dim=-1)[0]
    for each in (agent, discorl.load_agent(tmp_path / "alone.safetensors")):
        np.testing.assert_allclose(each.probabilities(observation), expected.numpy(), rtol=1e-5)
    assert run.evaluate(3).episodes == 3


def test_an_agent_plays_with_actions_cut_as_its_own_were(tmp_path):
    settings = {"num_envs": 2, "torso": (8,), "discretize_actions": 3}
    agent = discorl.train("Pendulum-v1", "actor_critic", tmp_path, steps=2, **settings).agent
    assert discorl.evaluate(agent, "Pendulum-v1", 2, max_steps=5).episodes == 2
    for env in (lambda: gymnasium.make("Pendulum-v1"), gymnasium.make_vec("Pendulum-v1", 1)):
        assert set(discorl.play(agent, env, max_steps=5)[0].actions) <= {0, 1, 2}


def test_evaluating_a_run_and_its_agent_is_the_same(run):
    assert discorl.load_run(run.folder).evaluate(deterministic=True).mean_return == pytest.approx(
        run["eval_return_greedy"]
    )
    seeded = {"seed": 1_000_003, "episodes": 4}
    again = discorl.evaluate(run.agent, "catch:rows=4,columns=3", **seeded)
    assert again.mean_return == pytest.approx(run["eval_return_sampled"])


class Paddle(nn.Module):
    """Always stays where it is."""

    def forward(self, boards):
        return torch.tensor([0.0, 9.0, 0.0]).expand(len(boards), 3)


def test_any_policy_plays_anywhere():
    still = discorl.evaluate(Paddle(), "catch", 64, deterministic=True)
    assert still == discorl.evaluate(lambda boards: np.ones(len(boards), int), "catch", 64)
    assert still.mean_length == 7
    assert discorl.evaluate(lambda boards: [1] * len(boards), Light(), 3).mean_length == 4
    (episode,) = discorl.play(lambda boards: [0], "catch:rows=4,columns=3", seed=2)
    assert len(episode) == len(episode.rewards) == len(episode.observations) == 3
    assert episode.observations[0].shape == (4, 3, 1)
    assert episode.total_reward in (-1, 1)
    assert not episode.truncated
    first, second = discorl.play(Paddle(), Light(), 2)
    assert first.truncated
    assert second.truncated
    (cut,) = discorl.play(Paddle(), "catch", max_steps=2)
    assert (len(cut), cut.truncated) == (2, True)


class StepByStep(nn.Module):
    """Reads flat boards one at a time, and acts on how many there were."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def init_lstm_state(self, batch, device):
        return torch.zeros(batch, 1, device=device)

    def forward_step(self, boards, state):
        assert boards.shape[1:] == (64,)
        return {"logits": 0 * self.layer(boards) + nn.functional.one_hot(state[:, 0].long(), 3)}, (
            state + 1
        ) % 3


def test_a_module_with_forward_step_plays_as_it_acts_in_rollouts():
    (episode,) = discorl.play(StepByStep(), "catch", deterministic=True)
    assert episode.actions == [0, 1, 2, 0, 1, 2, 0]
    assert discorl.evaluate(StepByStep(), "catch", 3).episodes == 3


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (lambda boards: 1, "expected 4 integers"),
        (lambda boards: np.full(len(boards), 3), "actions go from 0 to 2"),
        (lambda boards: np.ones(len(boards)), "expected 4 integers"),
        (nn.Identity(), "return a dictionary"),
        (3, "expected an agent, a module or a function"),
    ],
)
def test_policies_that_are_none(policy, words):
    if isinstance(policy, nn.Identity):
        policy.forward = lambda boards: None
    with pytest.raises(DiscorlError, match=words):
        discorl.evaluate(policy, "catch", 4)
    with pytest.raises(DiscorlError, match="episodes: expected at least 1"):
        discorl.evaluate(policy, "catch", 0)


def test_an_agent_of_another_game_is_refused(run):
    with pytest.raises(DiscorlError, match="it has 3 actions, the environment 2"):
        discorl.evaluate(run.agent, "CartPole-v1", 4)
    with pytest.raises(DiscorlError, match=r"it reads observations .*, the environment has"):
        discorl.evaluate(run.agent, "catch:rows=9,columns=11", 4)


def test_plots(run, tmp_path):
    assert run.plot() == run.folder / "curve.png"
    other = run.plot(tmp_path / "loss.svg", metric="losses/total_loss")
    assert other.read_text().startswith("<?xml")
