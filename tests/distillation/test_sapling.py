"""The distilled rule that ships with the package: it is here, and says where it comes from."""

import json
from pathlib import Path

import pytest

from discorl.files import read_json
from discorl.library.catalogue import load_rule, parameter_count
from discorl.training.presets import make_config
from discorl.training.start import start_run

RUN = Path(__file__).parents[2] / "discoveries" / "sapling"


@pytest.mark.usefixtures("empty_cache")
def test_it_comes_with_the_package_and_gives_credit():
    rule = load_rule("sapling")
    assert rule.name == "sapling"
    assert parameter_count(rule) == 426_474
    assert json.loads(rule.provenance["config"]) == read_json(RUN / "config.json")
    assert "Google DeepMind" in rule.provenance["teacher_origin"]
    assert "Nature" in rule.provenance["teacher_paper"]
    assert "CC BY 4.0" in rule.provenance["teacher_licence"]


def test_its_credit_is_in_the_notice_too():
    notice = (RUN.parents[1] / "NOTICE").read_text()
    assert "sapling" in notice
    assert "CC-BY 4.0" in notice


@pytest.mark.slow
def test_it_trains_an_agent_on_catch(tmp_path):
    config = make_config("catch", "sapling", steps=600, seed=0)
    assert start_run(config, tmp_path / "run")["episode_return"] >= 0.9
