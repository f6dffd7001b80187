"""Agents really learn. Minutes each: marked slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from discorl.training.presets import make_config
from discorl.training.run import start_run

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
