"""What the runs in tests of reports are made of."""

from __future__ import annotations

import json
from pathlib import Path

from discorl.comparison.cells import Cell, CellResult, write_cell
from discorl.comparison.config import CompareConfig
from discorl.tuning.config import TuneConfig

ENV = "catch:rows=3,columns=3"
TINY = {"torso": (4,), "num_envs": 2, "rollout_length": 5, "batch_size": 2, "replay_capacity": 4}
POPULATION = {
    "envs": (ENV, "family:bandit"), "agents": 2, "meta_steps": 4, "num_envs": 2,
    "rollout_length": 5, "torso": (4,), "model_size": 4, "head_hidden": 4, "lifetimes": (2, 4),
    "log_every": 1, "eval_every": 2, "eval_steps": 3, "eval_agents": 2,
}  # fmt: skip
RIVAL = "actor_critic:learning_rate=0.01"
ENVS = (ENV, "catch:rows=4,columns=3")


def make_comparison(folder: Path) -> None:
    """What `discorl compare` leaves behind, with returns that are known: the rival always wins."""
    config = CompareConfig(rules=("actor_critic", RIVAL), envs=ENVS, seeds=2, steps=10)
    for entrant in config.entrants():
        for env in ENVS:
            for seed in range(2):
                value = (0.8 if entrant.label == RIVAL else 0.2) + 0.05 * seed
                curve = [(5, value - 0.1), (10, value)]
                run = config.train_config(entrant, env, seed)
                result = CellResult(
                    entrant.label, env, seed, value, 10, 320, 9, 1.5, curve, run.to_json()
                )
                write_cell(folder / "cells", Cell(entrant.label, run, run.rule), result)
    anchors = {"random_return": 0.0, "random_episodes": 8, "optimal_return": 1.0}
    (folder / "environments.json").write_text(json.dumps(dict.fromkeys(ENVS, anchors)))
    (folder / "config.json").write_text(json.dumps(config.to_json()))


def make_search(folder: Path) -> None:
    """What `discorl tune` leaves behind: two trials that went through, and one that was pruned."""
    config = TuneConfig(env=ENV, rule="actor_critic", trials=3, seeds=2, steps=10)
    trials = [
        {"number": 1, "values": {"learning_rate": 0.01, "torso": [8, 8]}, "mean_return": 0.5,
         "finished": True, "curve": [[1, 0.0], [20, 0.5]], "error": None},
        {"number": 0, "values": {"learning_rate": 0.002, "torso": [8]}, "mean_return": 0.25,
         "finished": True, "curve": [[1, -0.5], [20, 0.25]], "error": None},
        {"number": 2, "values": {"learning_rate": 0.03, "torso": [8]}, "mean_return": None,
         "finished": False, "curve": [], "error": "the loss is not finite"},
    ]  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    found = {"config": config.to_json(), "preset": "preset.json", "trials": trials}
    (folder / "trials.json").write_text(json.dumps(found))
