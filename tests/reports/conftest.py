"""Tiny runs of every kind, made once for all tests of reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from report_runs import ENV, POPULATION, TINY, make_comparison, make_search

import discorl


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Runs that no test changes: `seeds/seed_0`, `seeds/seed_1`, `other`, `found`, `compared`,
    `searched`."""
    runs = tmp_path_factory.mktemp("reports")
    settings = {**TINY, "steps": 6, "log_every": 1, "eval_every": 3, "eval_episodes": 2}
    for seed in (0, 1):
        discorl.train(ENV, "actor_critic", runs / "seeds" / f"seed_{seed}", seed=seed, **settings)
    other = "actor_critic:entropy_cost=0.5"
    discorl.train(ENV, other, runs / "other", learning_rate=0.005, **settings)
    sizes = discorl.MetaNetworkSizes(predictions=12, hidden=8, meta_hidden=4)
    discorl.discover(runs / "found", sizes=sizes, value_torso=(4,), **POPULATION)
    make_comparison(runs / "compared")
    make_search(runs / "searched")
    return runs


@pytest.fixture
def runs(made, tmp_path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "runs"))
