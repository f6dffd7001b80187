"""Environments of one's own with odd spaces: trained in, resumed, played and exported."""

import sys
from pathlib import Path

import numpy as np
import odd_envs
import pytest

import discorl
from discorl.training.start import resume_run

sys.path.append(str(Path(__file__).parent))  # Names of environments are imported from here.

TINY = {"torso": (8,), "num_envs": 2, "rollout_length": 5, "batch_size": 2, "eval_episodes": 2}


@pytest.mark.filterwarnings("ignore:observations. left out")
@pytest.mark.parametrize("kind", odd_envs.ALL, ids=lambda kind: kind.__name__)
def test_odd_spaces(kind, tmp_path):
    masked = kind is odd_envs.MaskedBeside
    name = f"odd_envs:{kind.__name__}"
    run = discorl.train(
        name, "actor_critic", tmp_path / "run", steps=3, mask_actions=masked, **TINY
    )
    assert run["eval_return_greedy"] == odd_envs.STEPS
    assert resume_run(tmp_path / "run", steps=5)["steps"] == 5
    agent = discorl.load_agent(tmp_path / "run")
    if not masked:
        env = kind()
        action, _ = agent.act(env.reset(seed=0)[0])
        assert env.action_space.contains(action)
    assert np.isfinite(discorl.evaluate(agent, name, 2).mean_return)
    assert discorl.export_policy(agent, tmp_path / "policy.pt2").largest_difference < 1e-4
