"""Files of single results: what is damaged is said, and nothing is drawn from it."""

import json
from dataclasses import replace

import pytest

from discorl.comparison.cells import Cell, CellResult, read_cell, write_cell
from discorl.comparison.peers import PeerConfig
from discorl.envs.base import EnvironmentConfig
from discorl.errors import DiscorlError
from discorl.settings import change
from discorl.training.config import TrainConfig

CELL = Cell("actor_critic", TrainConfig(), "actor_critic")
RESULT = CellResult(
    rule="actor_critic",
    env=CELL.config.env,
    seed=CELL.config.seed,
    final_return=0.5,
    steps=2,
    env_steps=20,
    episodes=3,
    seconds=1.5,
    curve=[(1, 0.25), (2, 0.5)],
    config=CELL.config.to_json(),
)


def test_a_result_comes_back(tmp_path):
    assert read_cell(tmp_path, CELL) is None
    write_cell(tmp_path, CELL, RESULT)
    found = read_cell(tmp_path, CELL)
    assert found.final_return == 0.5
    assert [tuple(point) for point in found.curve] == RESULT.curve


def test_a_result_from_before_there_was_a_setting_is_found(tmp_path):
    config = {name: v for name, v in RESULT.config.items() if name != "layer_norm"}
    write_cell(tmp_path, CELL, replace(RESULT, config=config))
    (path,) = tmp_path.glob("*.json")
    path.rename(path.with_name(path.name.rpartition("-")[0] + "-0123456789.json"))
    assert read_cell(tmp_path, CELL).final_return == 0.5
    other = replace(CELL, config=change(CELL.config, {"layer_norm": True}))
    assert read_cell(tmp_path, other) is None
    another_rule = replace(CELL, label="sprout")
    assert read_cell(tmp_path, another_rule) is None


def test_a_peers_result_from_before_there_was_a_setting_is_found(tmp_path):
    config = PeerConfig("CartPole-v1", 0, 100, "ppo", {"gamma": 0.9})
    cell = Cell("sb3/ppo", config, "sb3/ppo")
    stored = config.to_json()
    del stored["environment"]["mask_actions"]
    result = replace(RESULT, rule="sb3/ppo", env=config.env, config=stored)
    write_cell(tmp_path, cell, result)
    (path,) = tmp_path.glob("*.json")
    path.rename(path.with_name(path.name.rpartition("-")[0] + "-0123456789.json"))
    assert read_cell(tmp_path, cell).final_return == 0.5
    masked = replace(config, environment=EnvironmentConfig(mask_actions=True))
    assert read_cell(tmp_path, replace(cell, config=masked)) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 10**30),
        ("env_steps", "many"),
        ("final_return", True),
        ("final_return", None),
        ("seconds", [1.5]),
        ("curve", []),
        ("curve", [[1, 10**30]]),
        ("curve", [[1, [0.5]]]),
        ("curve", [[1, True]]),
        ("curve", [1, 2]),
        ("config", []),
    ],
)
def test_what_is_no_number_is_said(tmp_path, name, value):
    write_cell(tmp_path, CELL, RESULT)
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(DiscorlError, match="is no result of a cell: delete it and resume"):
        read_cell(tmp_path, CELL)
