"""Agents really learn. Minutes each: marked slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from discorl.training.presets import make_config
from discorl.training.start import start_run

pytestmark = pytest.mark.slow


def test_disco103_learns_catch_within_400_steps(disco103_path: Path, tmp_path: Path) -> None:
    config = make_config("catch", str(disco103_path), steps=400, seed=0, eval_episodes=500)
    result = start_run(config, tmp_path / "run")
    assert result["eval_return_greedy"] >= 0.98
    assert result["episode_return"] >= 0.96


def test_actor_critic_learns_catch(tmp_path: Path) -> None:
    config = make_config("catch:rows=5,columns=5", "actor_critic", steps=600, seed=0)
    result = start_run(config, tmp_path / "run")
    assert result["eval_return_greedy"] >= 0.98


@pytest.mark.parametrize(("memory", "least", "most"), [("gru", 0.95, 1.0), ("none", -0.4, 0.4)])
def test_only_an_agent_with_memory_names_a_cue_it_no_longer_sees(
    memory: str, least: float, most: float, tmp_path: Path
) -> None:
    experience = {"num_envs": 32, "rollout_length": 16, "batch_size": None, "replay_fraction": 0.0}
    network = {"torso": (32,), "memory": memory, "memory_size": 32, "learning_rate": 0.005}
    config = make_config("memory:delay=4", "actor_critic", steps=500, **experience, **network)
    result = start_run(config, tmp_path / "run")
    assert least <= result["eval_return_sampled"] <= most
