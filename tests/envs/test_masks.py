"""Legal actions: no other is ever taken, in training, greedily or after export."""

import importlib.util
import json
import sys
from pathlib import Path

import locked_envs
import numpy as np
import pytest
import torch
from torch import nn

import discorl
from discorl.agents.masks import keep_legal
from discorl.agents.network import Network
from discorl.cli.__main__ import main
from discorl.envs import make_environment
from discorl.envs.base import EnvironmentConfig
from discorl.envs.checker import check_environment
from discorl.errors import DiscorlError
from discorl.observations import ArraySpec
from discorl.rollout import Rollout, TimeStep
from discorl.rules.actor_critic import ActorCritic
from discorl.training.start import resume_run
from discorl.values.distributions import MASKED, entropy, log_prob, mask_logits, unmasked

sys.path.append(str(Path(__file__).parent))  # Names of environments are imported from here.

TINY = {
    "torso": (8,),
    "num_envs": 2,
    "rollout_length": 5,
    "batch_size": 2,
    "replay_fraction": 0.5,
    "replay_ratio": 1,
    "eval_episodes": 8,
    "model_size": 8,
    "head_hidden": 8,
}
ACTOR_CRITIC = "actor_critic:num_bins=5,max_abs_value=2"
ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))


def train(env, out, rule=ACTOR_CRITIC, steps=12, **settings):
    return discorl.train(env, rule, out, steps=steps, **(TINY | settings))


def test_masked_policies_are_exact():
    logits = torch.tensor([1.0, 50.0, -2.0], requires_grad=True)
    masked = mask_logits(logits, torch.tensor([1, 0, 1]))
    probs = masked.softmax(-1)
    assert probs[1] == 0
    torch.testing.assert_close(probs[[0, 2]], logits.detach()[[0, 2]].softmax(-1))
    torch.testing.assert_close(entropy(masked), entropy(masked[[0, 2]]))
    (log_prob(masked[None, None], torch.tensor([[0]])) + entropy(masked)).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[1] == 0
    assert unmasked(masked).tolist() == [True, False, True]


def test_without_a_mask_nothing_changes():
    logits = torch.randn(4, 3)
    assert keep_legal(logits, torch.zeros(4, 2)) is logits
    assert keep_legal(logits, {"place": torch.zeros(4, 3)}) is logits
    assert torch.equal(mask_logits(logits, unmasked(logits)), logits)


@pytest.mark.parametrize(
    ("kind", "memory"),
    [
        ("InDictionary", "lstm"),
        ("InDictionary", "transformer"),
        ("InInfo", "none"),
        ("ByMethod", "none"),
    ],
)
def test_illegal_actions_are_never_taken(kind, memory, tmp_path):
    """The environments raise at the first one."""
    run = train(
        getattr(locked_envs, kind),
        tmp_path / "run",
        memory=memory,
        memory_size=8,
        memory_heads=2,
        mask_actions=kind != "InDictionary",
    )
    assert run["updates"] > 0
    assert run["eval_episodes"] == 8


def test_a_discovered_rule_learns_with_masks(tiny_rule, tmp_path):
    run = train(locked_envs.InDictionary, tmp_path / "run", tiny_rule, normalize_observations=True)
    lines = (Path(run["folder"]) / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert 0 <= last["losses/pi_loss"] < 100
    assert abs(last["rule/logits"]) < 100
    assert abs(last["rule/pi_hat"]) < 100
    assert last["rule/pi_hat_entropy"] <= np.log(locked_envs.DOORS)


def test_masks_survive_a_resume_and_workers(tmp_path):
    name = "locked_envs:InInfo"
    run = train(name, tmp_path / "run", mask_actions=True, env_workers=True, steps=6)
    assert resume_run(Path(run["folder"]), steps=10)["steps"] == 10


def test_masks_in_every_reset_mode(tmp_path):
    assert train(locked_envs.same_step(), tmp_path / "run")["updates"] > 0


@pytest.mark.parametrize("kind", ["InDictionary", "InInfo", "ByMethod", "Pairs"])
def test_an_agent_that_knows_masks_is_played_and_watched(kind, tmp_path):
    name, masked = f"locked_envs:{kind}", kind != "InDictionary"
    agent = train(name, tmp_path / "run", mask_actions=masked, steps=3).agent
    assert discorl.evaluate(agent, name, 3).episodes == 3
    assert len(discorl.play(agent, getattr(locked_envs, kind))[0]) == locked_envs.STEPS
    agent.save(tmp_path / "agent.safetensors")
    loaded = discorl.load_agent(tmp_path / "agent.safetensors")
    assert loaded.watch(max_frames=3, size=32).frames


def test_vector_environments_show_their_masks_themselves(tmp_path):
    agent = train(locked_envs.same_step, tmp_path / "run", mask_actions=True, steps=3).agent
    for env in (locked_envs.same_step, locked_envs.same_step()):
        assert discorl.evaluate(agent, env, 3, num_envs=2).episodes == 3
    with pytest.raises(DiscorlError, match="it reads observations"):
        discorl.evaluate(agent, locked_envs.vector_of_secrets(), 3)


def test_actions_with_parts(tmp_path):
    assert train("locked_envs:Pairs", tmp_path / "run", mask_actions=True)["updates"] > 0


def test_rules_see_masked_policies(tiny_rule):
    spec = {"x": ArraySpec((2,)), "action_mask": ArraySpec((3,), torch.uint8)}
    for rule in (ActorCritic(num_bins=5, max_abs_value=2.0), tiny_rule):
        network = Network.for_observations(spec, rule.heads(3))
        generator = torch.Generator().manual_seed(0)
        params = network.init(generator)
        mask = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.uint8)
        observation = {"x": torch.randn(2, 2, generator=generator), "action_mask": mask}
        step = TimeStep(observation, torch.ones(2), torch.zeros(2, dtype=torch.bool))
        logits = network.policy(params, observation)
        actions = logits.argmax(-1)
        rollout = Rollout.from_steps([step] * 4, [actions] * 4, [logits] * 4)
        outputs, taken = network.learn(params, rollout.inputs(), rollout.actions[:-1])
        legal = mask.bool().expand(4, 2, 3)
        assert (outputs.logits[~legal] == MASKED).all()
        assert (outputs.logits[legal] > -100).all()
        transitions = rollout.transitions()
        state = rule.initial_state(torch.float32, "cpu")
        targets, _ = rule.targets(outputs, outputs, transitions, state)
        loss, _ = rule.loss(taken, targets, transitions)
        assert torch.isfinite(loss).all()
        assert loss.abs().max() < 100
        if rule is tiny_rule:
            assert (targets.policy.softmax(-1)[~legal[:-1]] == 0).all()


@pytest.mark.parametrize(
    "suffix",
    ["pt2", pytest.param("onnx", marks=pytest.mark.skipif(not ONNX, reason="needs discorl[onnx]"))],
)
def test_exported_policies_keep_to_the_mask(suffix, tmp_path):
    agent = train(locked_envs.InDictionary, tmp_path / "run").agent
    path = tmp_path / f"policy.{suffix}"
    discorl.export_policy(agent, path)
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 2, (16, locked_envs.DOORS)).astype(np.int8)
    mask[:, 2] = 1
    shown = {"observation": rng.random((16, 1)).astype(np.float32), "action_mask": mask}
    policy = agent.probabilities(shown)
    assert (policy[mask == 0] == 0).all()
    for deterministic in (True, False):
        chosen, _ = agent.act(shown, deterministic=deterministic)
        assert mask[np.arange(16), chosen].all()
    logits = run_graph(path, [shown["action_mask"], shown["observation"]])
    assert (logits[mask == 0] == MASKED).all()
    assert mask[np.arange(16), logits.argmax(1)].all()


def run_graph(path, arrays):
    """Logits of an exported policy; inputs are sorted by name."""
    if path.suffix == ".pt2":
        tensors = [torch.from_numpy(array) for array in arrays]
        return torch.export.load(path).module()(*tensors)[0].numpy()
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [port.name for port in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


class AllHeads(nn.Module):
    """A network of one's own that would always take the first door."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(1, 5)

    def forward(self, observations):
        place = observations["observation"]
        logits = torch.zeros(*place.shape[:-1], locked_envs.DOORS)
        logits[..., 0] = 20 + 0 * self.value.weight.sum()
        return {"logits": logits, "v": self.value(place)}


def test_networks_of_ones_own_are_masked(tmp_path):
    run = train(locked_envs.InDictionary, tmp_path / "run", network=AllHeads(), steps=4)
    assert run["updates"] > 0
    score = discorl.evaluate(AllHeads(), locked_envs.InDictionary, 4, deterministic=True)
    assert score.episodes == 4


def test_what_is_wrong_with_a_mask_is_said():
    masks = EnvironmentConfig(mask_actions=True)
    with pytest.raises(DiscorlError, match="does not tell which actions are legal"):
        make_environment("locked_envs:Silent", 2, config=masks).reset(0)
    env = make_environment("locked_envs:Stuck", 2)
    step = env.reset(0)
    for _ in range(2):
        step = env.step(step.observation["action_mask"].argmax(1))
    with pytest.raises(DiscorlError, match=r"no action is legal in copy 0.*at step 3"):
        env.step(step.observation["action_mask"].argmax(1))
    with pytest.raises(DiscorlError, match="must show its masks itself"):
        make_environment("locked_envs:vector_of_secrets", 2, config=masks)
    with pytest.warns(UserWarning, match="it masks none of them"):
        make_environment("locked_envs:OddMask", 2)
    with pytest.warns(UserWarning, match=r"'player.action_mask': it masks no actions"):
        make_environment("locked_envs:Within", 2)


def test_an_environment_that_refuses_an_action_is_told_how_to_be_asked():
    env = make_environment("locked_envs:InInfo", 2)
    env.reset(0)
    closed = [int((copy.unwrapped.mask == 0).argmax()) for copy in env._env.envs]
    with pytest.raises(DiscorlError, match=r"is locked .*--mask-actions keeps to them$"):
        env.step(torch.tensor(closed))


@pytest.mark.parametrize("name", ["Taxi-v4", "locked_envs:ByMethod"])
def test_the_checker_tells_of_masks_that_are_not_seen(name):
    texts = [finding.text for finding in check_environment(name)]
    assert any("--mask-actions" in text for text in texts)


@pytest.mark.parametrize("name", ["Taxi-v4", "locked_envs:ByMethod", "locked_envs:InDictionary"])
@pytest.mark.parametrize("normalized", [False, True])
def test_a_run_tells_of_masks_that_are_not_seen(name, normalized, tmp_path, capsys):
    small = [*("--num-envs", "2", "--rollout-length", "2", "--batch-size", "2", "--steps", "1")]
    small += [*("--torso", "8", "--no-learn-first-steps", "--eval-episodes", "1")]
    small += ["--normalize-observations"] if normalized else []
    for flags, told in (([], name != "locked_envs:InDictionary"), (["--mask-actions"], False)):
        out = str(tmp_path / f"run{len(flags)}")
        main(["train", name, "--rule", ACTOR_CRITIC, "--out", out, *small, *flags])
        assert ("--mask-actions keeps to legal ones" in capsys.readouterr().out) == told
