"""Agents read images without what the images share; what that is, is measured while they act."""

import gymnasium
import numpy as np
import pytest
import torch

import discorl
from discorl.envs.sources import find_environment
from discorl.library.catalogue import load_rule
from discorl.training.config import TrainConfig
from discorl.training.trainer import Trainer

SMALL = {
    "rule": "actor_critic",
    "num_envs": 2,
    "rollout_length": 5,
    "batch_size": 4,
    "replay_capacity": 8,
    "replay_fraction": 1.0,
    "torso": (8,),
    "body": "conv",
    "channels": (3,),
    "centre_images": True,
    "steps": 6,
    "checkpoint_every": 3,
    "eval_episodes": 1,
}

BOARD = "catch:rows=11,columns=10"


class Room(gymnasium.Env):
    """A bright wall that is always the same, and one dot that moves; episodes of seven steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (10, 10, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, wall=200):
        self.wall = wall

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        self.time += 1
        return self._look(), float(action), self.time == 7, False, {}

    def _look(self):
        image = np.full((10, 10, 1), self.wall, np.uint8)
        image[tuple(self.np_random.integers(0, 10, 2))] = self.wall + 40
        return image


class Furnished(gymnasium.ObservationWrapper):
    """The room, and numbers beside its image."""

    def __init__(self, env):
        super().__init__(env)
        numbers = gymnasium.spaces.Box(-1, 1, (3,))
        self.observation_space = gymnasium.spaces.Dict(
            {"a_number": numbers, "room": env.observation_space}
        )

    def observation(self, observation):
        return {"a_number": np.zeros(3, np.float32), "room": observation}


def trainer(env, **settings):
    config = TrainConfig.from_json(SMALL | settings)
    return Trainer(config, load_rule(config.rule), find_environment(env, "cpu"))


def centred(params):
    return {
        name: p for name, p in params.items() if name.rpartition(".")[2] in ("common", "spread")
    }


def test_it_is_the_mean_of_the_images_at_the_end_of_every_rollout():
    made = trainer(Room)
    seen = []
    take_in = made.life.take_in
    made.life.take_in = lambda played: (
        seen.append(played[0].rollout.observations[-1]) or take_in(played)
    )
    for _ in range(4):
        made.train_step()
    made.close()
    images = torch.cat(seen).double()
    params = made.life.state.params
    torch.testing.assert_close(params["torso.common"].double(), images.mean(0), rtol=1e-6, atol=0)
    spread = images.var(0, correction=0).mean().sqrt()
    torch.testing.assert_close(params["torso.spread"].double(), spread, rtol=1e-6, atol=0)


def test_no_gradient_changes_it():
    made = trainer(Room)
    for _ in range(3):
        made.train_step()
    before = made.life.state.params
    batch = made.life.batch(made.life.act(), store=True)
    shown = centred(made.life.state.params)
    made.life.learn(batch)
    after = made.life.state.params
    made.close()
    assert not torch.equal(before["torso.stack.0.weight"], after["torso.stack.0.weight"])
    assert len(shown) == 2
    assert all(torch.equal(after[name], tensor) for name, tensor in shown.items())


def test_a_brighter_wall_changes_nothing_that_an_agent_learns():
    """What all images share does not count, but for the first rollout, before it is known."""

    def life(wall):
        made = trainer(lambda: Room(wall), learning_rate=0.01)
        first = made.life.act()
        with torch.no_grad():
            outputs = made.life.mind.learner.agent.outputs(
                made.life.state.params, first.observations
            )
        made.close()
        return outputs.logits, outputs.state["v"]

    for dark, bright in zip(life(100), life(200), strict=True):
        torch.testing.assert_close(dark, bright, rtol=1e-4, atol=1e-5)


def test_without_it_a_wall_drowns_the_dot():
    """Features of different images lie far apart with it, and close together without."""

    def apart(**settings):
        made = trainer(Room, layer_norm=True, **settings)
        rollout = made.life.act()
        features = made.life.mind.learner.agent._torso(
            made.life.state.params, rollout.observations
        ).flatten(0, 1)
        made.close()
        return float((features.std(0) / features.square().mean(0).sqrt().clamp(min=1e-3)).mean())

    assert apart() > 3 * apart(centre_images=False)


@pytest.mark.parametrize("memory", ["none", "gru", "transformer"])
def test_each_image_of_a_dictionary_has_its_own(memory):
    made = trainer(lambda: Furnished(Room()), memory=memory, memory_size=8)
    for _ in range(2):
        made.train_step()
    params = centred(made.life.state.params)
    made.close()
    (common,) = (p for name, p in params.items() if name.endswith("common"))
    assert common.shape == (10, 10, 1)
    assert 200 <= float(common.mean()) <= 201


@pytest.mark.parametrize("rule", ["actor_critic", "sprout"])  # The second has target parameters.
@pytest.mark.parametrize("first", [1, 3])  # Before the first update, and after it.
def test_a_run_resumes_with_it_bit_for_bit(tmp_path, rule, first):
    whole, parts = (
        discorl.train(BOARD, out=tmp_path / f"{steps}", **(SMALL | {"steps": steps, "rule": rule}))
        for steps in (6, first)
    )
    parts.resume(6)
    for name, tensor in whole.agent.params.items():
        assert torch.equal(tensor, parts.agent.params[name]), name


def test_an_agent_that_is_saved_and_loaded_has_it(tmp_path):
    run = discorl.train(Room, out=tmp_path / "run", **SMALL)
    run.agent.save(tmp_path / "agent.safetensors")
    loaded = discorl.load_agent(tmp_path / "agent.safetensors")
    assert 200 < float(loaded.params["torso.common"].mean()) < 201
    image, _ = Room().reset(seed=3)
    assert torch.equal(loaded.logits(image)[0], run.agent.logits(image)[0])


def test_it_is_no_more_than_a_scale_before_anything_is_seen():
    plain, made = trainer(Room, centre_images=False), trainer(Room)
    observations = made.life.time_step.observation
    before = [
        t.life.mind.learner.agent.policy(t.life.state.params, observations) for t in (plain, made)
    ]
    plain.close()
    made.close()
    torch.testing.assert_close(*before)
