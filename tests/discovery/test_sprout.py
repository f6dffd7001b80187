"""The rule that ships with the package: it is here, it works, and its run can be repeated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from discorl.discovery.config import DiscoverConfig
from discorl.discovery.start import start_discovery
from discorl.files import read_json
from discorl.library.catalogue import load_rule, parameter_count
from discorl.runs.metrics import read_metrics
from discorl.training.presets import make_config
from discorl.training.start import start_run

RUN = Path(__file__).parents[2] / "discoveries" / "sprout"


@pytest.mark.usefixtures("empty_cache")
def test_it_comes_with_the_package_and_says_how_it_was_made():
    rule = load_rule("sprout")
    assert rule.name == "sprout"
    assert parameter_count(rule) == 41_706
    assert json.loads(rule.provenance["config"]) == read_json(RUN / "config.json")


def test_its_run_can_be_repeated(tmp_path):
    """Bit for bit on one machine with one thread; elsewhere sampled actions may differ."""
    config = DiscoverConfig.from_json(read_json(RUN / "config.json"))
    start_discovery(replace(config, meta_steps=10, eval_steps=1), tmp_path / "run")
    found = {r["step"]: r for r in read_metrics(tmp_path / "run") if "meta/meta_loss" in r}
    logged = {r["step"]: r for r in read_metrics(RUN) if "meta/meta_loss" in r}
    assert sorted(found) == [5, 10]
    for step, record in found.items():
        for name in ("meta/meta_loss", "meta/entropy", "population/return"):
            assert record[name] == pytest.approx(logged[step][name], abs=0.03), (step, name)


@pytest.mark.slow
def test_it_trains_an_agent_on_a_board_it_was_not_told_of(tmp_path):
    config = make_config("catch:rows=8,columns=8", "sprout", steps=1000, seed=0)
    assert start_run(config, tmp_path / "run")["episode_return"] >= 0.9
