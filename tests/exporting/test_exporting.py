"""Exported policies: they agree with the agent, say what they take, and fail in plain words."""

import importlib.util
import json
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import discorl
from discorl.cli.__main__ import main
from discorl.errors import DiscorlError
from discorl.exporting import export
from discorl.exporting.graph import PolicyGraph
from discorl.extras import install_line

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))
needs_onnx = pytest.mark.skipif(not ONNX, reason="needs the extra: discorl[onnx]")
formats = pytest.mark.parametrize("suffix", ["pt2", pytest.param("onnx", marks=needs_onnx)])
TINY = {"torso": (8,), "batch_size": 2, "num_envs": 2, "rollout_length": 4, "eval_episodes": 2}
RULE = "actor_critic:num_bins=5,max_abs_value=2"
BOARD = "catch:rows=6,columns=5"


class Mixed(gymnasium.Env):
    """Observations of several kinds, nested."""

    observation_space = gymnasium.spaces.Dict(
        {
            "room": gymnasium.spaces.Discrete(3, start=1),
            "body": gymnasium.spaces.Dict(
                {"speed": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)}
            ),
            "doors": gymnasium.spaces.MultiDiscrete([2, 3]),
            "lights": gymnasium.spaces.MultiBinary(2),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        return self._look(), 1.0, True, False, {}

    def _look(self):
        draw = self.np_random
        return {
            "room": draw.integers(1, 4),
            "body": {"speed": 100 + 20 * draw.normal(size=2)},
            "doors": draw.integers(0, [2, 3]),
            "lights": draw.integers(0, 2, 2).astype(np.int8),
        }


AGENTS = {
    "mlp": (BOARD, {"body": "mlp"}),
    "conv": (BOARD, {"body": "conv"}),
    "centred": (BOARD, {"body": "conv", "centre_images": True}),
    "gru": ("memory:delay=2", {"memory": "gru", "memory_size": 8}),
    "normalised": ("cartpole", {"normalize_observations": True}),
    "mixed": (Mixed(), {"normalize_observations": True}),
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """Agents by kind, each trained for a moment, with the weights of its policy head made large."""
    made = {}

    def get(kind):
        if kind not in made:
            env, settings = AGENTS[kind]
            out = tmp_path_factory.mktemp("runs") / kind
            agent = discorl.train(env, RULE, out, steps=2, **(TINY | settings)).agent
            generator = torch.Generator().manual_seed(0)
            head = agent.params["head.logits.weight"]
            head.copy_(torch.randn(head.shape, generator=generator))
            agent.save(out / "agent.safetensors")
            made[kind] = agent, out
        return made[kind][0]

    get.folder = lambda kind: (get(kind), made[kind][1])[1]
    return get


def load_file(path):
    """What an exported file computes, by means of its own library alone."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        return lambda *arrays: [out.numpy() for out in module(*map(torch.from_numpy, arrays))]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    assert names == [port["name"] for port in read_description(path)["inputs"]]
    assert all(port.shape[0] == "batch" for port in session.get_inputs())
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def read_description(path):
    return json.loads(path.with_name(path.name + ".json").read_text())


@formats
@pytest.mark.parametrize("kind", ["mlp", "conv", "centred", "normalised"])
def test_the_file_agrees_with_the_agent(kind, suffix, agents, tmp_path):
    agent, path = agents(kind), tmp_path / f"policy.{suffix}"
    exported = discorl.export_policy(agent, path)
    assert exported.largest_difference <= 1e-5
    # Given observations that play brings, not those of the check, of some other number
    env = discorl.make_environment(agent.info["env"], 9)
    step = env.reset(seed=3)
    seen = []
    for _ in range(3):
        seen.append(step.observation.numpy())
        step = env.step(torch.ones(9, dtype=torch.int64))
    observations = np.concatenate(seen)
    # Then the file answers as the agent does, and not always the same
    (logits,) = load_file(path)(observations)
    expected = agent.logits(observations)[0].numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-5 * max(1, np.abs(expected).max()))
    assert logits.std(axis=0).min() > 1e-3


@formats
def test_memory_goes_in_and_out(suffix, agents, tmp_path):
    agent, path = agents("gru"), tmp_path / f"policy.{suffix}"
    discorl.export_policy(agent, path)
    about = read_description(path)
    assert [port["name"] for port in about["inputs"]] == ["observations", "episode_start", "hidden"]
    assert [port["name"] for port in about["outputs"]] == ["logits", "next_hidden"]
    run, rng = load_file(path), np.random.default_rng(0)
    memory, state = np.zeros((4, 8), np.float32), None
    for step in range(5):
        observation = rng.integers(0, 2, (4, *about["inputs"][0]["shape"][1:])).astype(np.uint8)
        starts = np.array([step == 0, step == 2, False, False])
        logits, memory = run(observation, starts, memory)
        expected, state = agent.logits(observation, state, starts)
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5)
    # What is remembered matters: without it, the same observation gives other logits
    fresh, _ = run(observation, np.ones(4, bool), memory)
    assert np.abs(fresh - logits).max() > 1e-3


@formats
def test_observations_go_in_as_the_environment_shows_them(suffix, agents, tmp_path):
    agent, path = agents("mixed"), tmp_path / f"policy.{suffix}"
    discorl.export_policy(agent, path)
    about = read_description(path)
    dtypes = {port["name"]: port["dtype"] for port in about["inputs"]}
    assert dtypes == {"body.speed": "float64", "doors": "int64", "lights": "int8", "room": "int64"}
    assert about["actions"]["values"] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    env, run = Mixed(), load_file(path)
    for seed in range(3):
        seen, _ = env.reset(seed=seed)
        flat = {"body.speed": seen["body"]["speed"], **seen}
        arrays = [np.asarray(flat[name])[None].astype(dtypes[name]) for name in dtypes]
        (logits,) = run(*arrays)
        np.testing.assert_allclose(logits[0], agent.logits(seen)[0][0].numpy(), atol=1e-5)


@formats
def test_the_command(suffix, agents, tmp_path, capsys):
    folder, path = agents.folder("mlp"), tmp_path / f"policy.{suffix}"
    assert main(["export", str(folder), str(path)]) == 0
    said = capsys.readouterr().out
    assert "inputs:  observations uint8[batch, 6, 5, 1]" in said
    assert "outputs: logits float32[batch, 3]" in said
    assert "largest difference from the agent on random observations" in said
    about = read_description(path)
    assert about["agent"]["env"] == BOARD
    assert about["actions"] == {"count": 3, "names": ["left", "stay", "right"], "values": [0, 1, 2]}
    assert 0 <= about["largest_difference"] <= 1e-5
    # The file describes itself too
    if suffix == "onnx":
        import onnx

        (prop,) = onnx.load(path).metadata_props
        inside = prop.value
    else:
        extra = {"description.json": ""}
        torch.export.load(path, extra_files=extra)
        inside = extra["description.json"]
    assert json.loads(inside) == about
    # and is not overwritten unless asked to be
    assert main(["export", str(folder), str(path)]) == 2
    assert "--force overwrites it" in capsys.readouterr().err


def with_entries(*names):
    """What makes an environment whose observation has these entries."""

    class Entries(Mixed):
        observation_space = gymnasium.spaces.Dict(
            {name: gymnasium.spaces.Box(-1, 1, (2,)) for name in names}
        )

        def _look(self):
            return {name: np.zeros(2, np.float32) for name in names}

    return Entries


@formats
@pytest.mark.parametrize(
    ("memory", "entries", "others"),
    [
        ("none", ["logits", "x"], ["output_logits"]),
        ("none", ["cat", "inside/", "linear", "relu", "val_0"], ["logits"]),
        (
            "gru",
            ["episode_start", "hidden", "logits", "memory_hidden", "next_memory_memory_hidden"],
            [
                *("memory_episode_start", "memory_memory_hidden", "output_logits"),
                "output_next_memory_memory_hidden",
            ],
        ),
    ],
)
def test_entries_may_have_any_name(memory, entries, others, suffix, tmp_path):
    settings = TINY | {"steps": 1, "memory": memory, "memory_size": 8}
    agent = discorl.train(with_entries(*entries), RULE, tmp_path / "run", **settings).agent
    about = discorl.export_policy(agent, tmp_path / f"policy.{suffix}").description
    ports = about["inputs"] + about["outputs"]
    assert [port["name"] for port in ports] == [*entries, *others]
    if memory == "none":
        shown = np.random.default_rng(0).normal(size=(len(entries), 3, 2)).astype(np.float32)
        (logits,) = load_file(tmp_path / f"policy.{suffix}")(*shown)
        expected = agent.logits(dict(zip(entries, shown, strict=True)))[0]
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5)


def test_a_stack_of_coloured_images(tmp_path):
    class Film(Mixed):
        observation_space = gymnasium.spaces.Box(0, 255, (2, 16, 16, 3), np.uint8)

        def _look(self):
            return self.observation_space.sample()

    agent = discorl.train(Film, RULE, tmp_path / "run", **TINY, steps=1).agent
    discorl.export_policy(agent, tmp_path / "policy.pt2")  # It is compared with the agent.
    shown = np.random.default_rng(0).integers(0, 256, (3, 2, 16, 16, 3), dtype=np.uint8)
    (logits,) = load_file(tmp_path / "policy.pt2")(shown)
    np.testing.assert_allclose(logits, agent.logits(shown)[0].numpy(), atol=1e-5)


def test_a_network_of_your_own(tmp_path):
    torso = nn.Sequential(nn.Flatten(-3), nn.Linear(30, 8), nn.Tanh())

    class Floats(nn.Module):
        def __init__(self):
            super().__init__()
            self.torso = torso

        def forward(self, boards):
            return self.torso(boards.float())

    network = Floats()
    run = discorl.train(BOARD, RULE, tmp_path / "a", network=network, steps=2, **TINY)
    exported = discorl.export_policy(run.agent, tmp_path / "policy.pt2")
    assert exported.description["inputs"][0]["shape"] == ["batch", 6, 5, 1]


def test_a_file_that_differs_is_not_written(agents, tmp_path, monkeypatch):
    # Given an exporter that forgets to normalise
    class Forgetful(PolicyGraph):
        def __init__(self, agent):
            super().__init__(replace(agent, moments=None))

    monkeypatch.setattr(export, "PolicyGraph", Forgetful)
    with pytest.raises(DiscorlError, match="differs from the agent by"):
        discorl.export_policy(agents("normalised"), tmp_path / "policy.pt2")
    assert not list(tmp_path.iterdir())


def test_an_agent_in_a_file_replaces_what_was_there(agents, tmp_path):
    path = tmp_path / "policy.pt2"
    path.write_text("old")
    saved = str(agents.folder("mlp") / "agent.safetensors")
    assert main(["export", saved, str(path), "--force"]) == 0
    assert read_description(path)["format"] == "pt2"
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("policy.pt", "expected a name ending in .onnx or .pt2"),
        ("policy.pt2 --checkpoint 7", "has no checkpoint of step 7"),
    ],
)
def test_mistakes_are_told(args, words, agents, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(agents.folder("mlp")), *args.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in err


def test_what_to_install_for_onnx(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert main(["export", "runs/a", str(tmp_path / "policy.onnx")]) == 2
    assert install_line("onnx") in capsys.readouterr().err
