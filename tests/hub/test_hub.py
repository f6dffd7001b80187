"""Agents and rules as folders for the hub, there and back."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_stand_in import TOKEN, Hub, stand_in

import discorl
from discorl.cli.__main__ import main
from discorl.cli.commands import parse_arguments
from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.hub.pack import Packing, pack
from discorl.hub.push import push
from discorl.rules.disco import DiscoRule
from discorl.settings import flat_settings

ENV = "catch:rows=3,columns=3"
TINY = {"torso": (4,), "num_envs": 2, "rollout_length": 5, "batch_size": 2, "replay_capacity": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> discorl.Run:
    folder = tmp_path_factory.mktemp("hub") / "run"
    settings = {**TINY, "steps": 4, "eval_every": 2, "eval_episodes": 2, "log_every": 1}
    return discorl.train(ENV, "actor_critic", folder, **settings)


@pytest.fixture(scope="module")
def packed(run: discorl.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "catch-agent"
    pack(run.folder, folder, Packing(episodes=8, licence="apache-2.0"))
    return folder


def metadata(folder: Path) -> dict[str, Any]:
    """What the hub reads of a card."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def same(one: discorl.TrainedAgent, other: discorl.TrainedAgent) -> bool:
    return one.params.keys() == other.params.keys() and all(
        torch.equal(tensor, other.params[name]) for name, tensor in one.params.items()
    )


# --- agents


def test_an_agent_comes_back_from_its_folder(run: discorl.Run, packed: Path) -> None:
    assert same(discorl.load_agent(packed), run.agent)
    names = {"README.md", "agent.safetensors", "training.json", "play.gif", "curve.png"}
    assert {path.name for path in packed.iterdir()} == names
    assert json.loads((packed / "training.json").read_text())["env"] == ENV


def test_the_card_of_an_agent_is_filled_in(run: discorl.Run, packed: Path) -> None:
    known = metadata(packed)
    assert known["library_name"] == "discorl"
    assert known["license"] == "apache-2.0"
    assert {"reinforcement-learning", "actor_critic", "catch-rows-3-columns-3"} <= {*known["tags"]}
    (model,) = known["model-index"]
    assert model["name"] == "catch-agent"
    sampled, greedy = model["results"]
    assert sampled["dataset"]["name"] == ENV
    mean = run.evaluate(8, deterministic=True)
    value = f"{mean.mean_return:.2f} +/- {mean.std_return:.2f}"
    assert greedy["metrics"][0]["value"] == value
    page = (packed / "README.md").read_text()
    assert "discorl.load_agent(path)" in page
    assert "![The learning curve](curve.png)" in page
    # The command makes the same run again
    words = shlex.split(re.findall(r"^discorl train .*$", page, re.MULTILINE)[0])
    config = flat_settings(parse_arguments("train", words[2:]).config)
    assert config == flat_settings(run.config)


def test_the_best_agent_alone_without_playing(run: discorl.Run, tmp_path: Path) -> None:
    pack(run.folder, tmp_path / "best", Packing(checkpoint="best", episodes=0, film=False))
    assert same(discorl.load_agent(tmp_path / "best"), run.best_agent)
    page = (tmp_path / "best" / "README.md").read_text()
    assert "None were measured for this card." in page
    assert "play.gif" not in page.split("## How to load it")[0]
    assert "model-index" not in metadata(tmp_path / "best")


def test_an_agent_whose_environment_is_gone_has_no_results(
    run: discorl.Run, tmp_path: Path
) -> None:
    agent = run.agent
    agent.info["env"] = "nowhere-v0"
    agent.save(tmp_path / "agent.safetensors")
    told: list[str] = []
    pack(tmp_path / "agent.safetensors", tmp_path / "out", Packing(episodes=4), told.append)
    assert any("the card has no results" in line for line in told)
    assert any("the card has no film" in line for line in told)
    assert same(discorl.load_agent(tmp_path / "out"), agent)


# --- rules


def test_a_rule_comes_back_from_its_folder(tiny_rule: DiscoRule, tmp_path: Path) -> None:
    agents = [{"env": ENV, "steps": 30, "final_return": value} for value in (0.2, 0.4)]
    evaluation = json.dumps({"score": 0.3, "agents": agents})
    rule = DiscoRule(
        tiny_rule.config, tiny_rule.params, "mine", {"origin": "tests", "evaluation": evaluation}
    )
    discorl.save_rule(rule, tmp_path / "file.safetensors")
    pack(tmp_path / "file.safetensors", tmp_path / "my-rule")
    back = discorl.load_rule(tmp_path / "my-rule")
    assert back.config == rule.config
    assert all(torch.equal(t, back.params[name]) for name, t in rule.params.items())
    page = (tmp_path / "my-rule" / "README.md").read_text()
    assert "| origin | tests |" in page
    assert str(tmp_path) not in page
    (result,) = metadata(tmp_path / "my-rule")["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == "0.30 +/- 0.10"
    # It can be named wherever rules can
    run = discorl.train(ENV, str(tmp_path / "my-rule"), tmp_path / "run", steps=2, **TINY)
    assert run["updates"] > 0


def test_a_discovery_gives_its_best_rule(tiny_rule: DiscoRule, tmp_path: Path) -> None:
    folder = tmp_path / "found"
    other = tiny_rule.with_params({k: t + 1 for k, t in tiny_rule.params.items()})
    discorl.save_rule(tiny_rule, folder / "rule.safetensors")
    discorl.save_rule(other, folder / "best_rule.safetensors")
    config = discorl.DiscoverConfig(meta_steps=7)
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    pack(folder, tmp_path / "out")
    back = discorl.load_rule(tmp_path / "out")
    assert all(torch.equal(tensor, back.params[name]) for name, tensor in other.params.items())
    assert "discorl discover --meta-steps 7" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(DiscorlError, match=r"holds best_rule.safetensors and rule.safetensors"):
        discorl.load_rule(folder)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("actor_critic", "has no parameters: it is code"),
        ("sprot", "unknown rule 'sprot'. Did you mean sprout"),
        ("sprout --checkpoint best", "--checkpoint: for agents of training runs"),
        ("sprout --episodes -1", "--episodes: expected at least 0"),
        (".", "expected a rule file, or a folder with rule.safetensors"),
    ],
)
def test_what_cannot_be_packed(
    what: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *flags = what.split()
    assert main(["pack", name, "out", *flags]) == 2
    assert words in capsys.readouterr().err
    assert not Path("out").exists()


def test_nothing_is_overwritten(packed: Path) -> None:
    with pytest.raises(DiscorlError, match="is not empty, and nothing is overwritten"):
        pack("sprout", packed)


# --- the hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch):
    """The real client, and a hub on this machine."""
    pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with stand_in() as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.address)
        yield server


def test_there_and_back(hub: Hub, packed: Path, tmp_path: Path, capsys) -> None:
    # Given a folder with something private in it
    (packed / "notes.txt").write_text("not for others")
    # When it is pushed
    assert main(["push", str(packed), "me/catch", "--private"]) == 0
    # Then the hub has all of it but what is not ours, under the repository's name
    assert f"{hub.address}/me/catch" in capsys.readouterr().out
    assert hub.visibility == {"me/catch": "private"}
    assert {*hub.files["me/catch"]} == {path.name for path in packed.iterdir()} - {"notes.txt"}
    (packed / "notes.txt").unlink()
    assert 'snapshot_download("me/catch")' in hub.files["me/catch"]["README.md"].decode()
    # and what the card says gets the agent back
    assert same(discorl.load_agent(download(hub, tmp_path)), discorl.load_agent(packed))


def download(hub: Hub, cache: Path) -> str:
    """Where the client puts the repository, in a process that knows no hub but this one."""
    code = "import huggingface_hub; print(huggingface_hub.snapshot_download('me/catch'))"
    env = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(cache / "hf")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_stranger_is_told_to_log_in(hub: Hub, packed: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    assert main(["push", str(packed), "me/catch"]) == 2
    assert "log in with `hf auth login`, or set HF_TOKEN" in capsys.readouterr().err
    assert hub.files == {}


def test_what_cannot_be_pushed(packed: Path, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DiscorlError, match="expected a repository of the hub, OWNER/NAME"):
        push(packed, "catch")
    with pytest.raises(DiscorlError, match="no such folder"):
        push(tmp_path / "nothing", "me/catch")
    with pytest.raises(DiscorlError, match="holds no agent or rule with a card"):
        push(tmp_path, "me/catch")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DiscorlError, match=re.escape(install_line("hub"))):
        push(packed, "me/catch")
