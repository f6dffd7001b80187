"""Presets: which settings a rule has in which kind of environment."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

import discorl
from discorl.errors import DiscorlError
from discorl.library.catalogue import load_rule
from discorl.observations import ArraySpec
from discorl.rules.actor_critic import ActorCritic
from discorl.training.presets import (
    KIND_PRESETS,
    default_rule,
    environment_kind,
    find_preset,
    make_config,
    observation_kind,
)

RULES = ("disco103", "sapling", "sprout", "actor_critic", "my_rule.safetensors")


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (ArraySpec((4,)), "vector"),
        (ArraySpec((16,), torch.uint8), "vector"),
        (ArraySpec((84, 84)), "vector"),
        (ArraySpec((10, 10, 4), torch.bool), "board"),
        (ArraySpec((7, 7, 3), torch.uint8), "board"),
        (ArraySpec((4, 84, 84), torch.uint8, 1 / 255), "pixels"),
        ({"image": ArraySpec((7, 7, 3), torch.uint8), "direction": ArraySpec((4,))}, "board"),
        ({"camera": ArraySpec((64, 64, 3), torch.uint8), "map": ArraySpec((9, 9, 2))}, "pixels"),
    ],
)
def test_what_an_agent_sees_makes_the_kind(spec, kind):
    assert observation_kind(spec) == kind


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ("catch", None),
        ("family:grid", None),
        ("CartPole-v1", "vector"),
        ("FrozenLake-v1", "vector"),
        ("minatar/breakout", "board"),
        ("ALE/Pong-v5:sticky=0", "pixels"),
    ],
)
def test_environments_have_a_kind(env, kind):
    assert environment_kind(env, {}) == kind


def test_settings_of_the_environment_count_when_it_is_made_to_see():
    with pytest.raises(DiscorlError, match="--discretize-actions"):
        make_config("Pendulum-v1", "actor_critic")
    config = make_config("Pendulum-v1", "actor_critic", discretize_actions=3)
    assert config.discretize_actions == 3


class Screen(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((40, 40, 3), np.uint8), {}

    def step(self, action):
        return np.zeros((40, 40, 3), np.uint8), 0.0, True, False, {}


@pytest.mark.parametrize("env", [Screen(), lambda: Screen()], ids=["object", "function"])
def test_an_object_has_its_own_kind_too(env, tmp_path):
    settings = {"steps": 1, "num_envs": 2, "eval_episodes": 1, "torso": (8,), "batch_size": 2}
    run = discorl.train(env, out=tmp_path / "run", channels=(2, 2, 2), progress=False, **settings)
    assert run.config.clip_rewards
    assert run.config.rule.startswith("actor_critic:")


def test_what_ships_is_chosen_by_the_environment():
    assert default_rule("catch") == make_config("catch").rule == "sprout"
    assert default_rule("CartPole-v1") == "actor_critic"
    assert make_config("CartPole-v1").rule == make_config("CartPole-v1", "actor_critic").rule


def test_families_have_the_settings_of_games():
    assert make_config("family:grid,seed=7").rule == "sprout"
    assert make_config("family:grid,seed=7").num_envs == make_config("catch").num_envs


def test_a_large_game_of_ours_has_the_settings_of_its_kind():
    ours = make_config("sokoban:boxes=1")
    outside = make_config("minatar/breakout")
    assert replace(ours, env=outside.env) == outside
    assert make_config("sokoban", "disco103").rule == "disco103:discount=0.99,max_abs_value=30"


def test_a_rules_own_settings_come_over_those_of_the_preset():
    plain = make_config("CartPole-v1", "actor_critic").rule
    assert plain == "actor_critic:entropy_cost=0.01,discount=0.99"
    given = make_config("CartPole-v1", "actor_critic:entropy_cost=0.3,vtrace_lambda=0.9").rule
    assert given == "actor_critic:entropy_cost=0.3,discount=0.99,vtrace_lambda=0.9"
    pixels = make_config("ALE/Pong-v5", "actor_critic:discount=0.9").rule
    assert pixels == (
        "actor_critic:normalize_advantage=true,value_cost=2.5,entropy_cost=0.03,"
        "final_entropy_cost=0.003,entropy_hold=0.2,entropy_fall=0.5,discount=0.9"
    )
    assert load_rule(pixels) == ActorCritic(
        normalize_advantage=True,
        value_cost=2.5,
        entropy_cost=0.03,
        final_entropy_cost=0.003,
        entropy_hold=0.2,
        entropy_fall=0.5,
        discount=0.9,
    )
    assert make_config("catch", "actor_critic").rule == "actor_critic"
    assert make_config("CartPole-v1", "actor_critic", "published").rule == "actor_critic"


def test_a_rule_that_is_an_object_is_left_as_it_is():
    rule = discorl.load_rule("actor_critic:entropy_cost=0.3")
    assert make_config("CartPole-v1", rule).rule == "actor_critic:entropy_cost=0.3"


def test_settings_after_the_colon_do_not_hide_the_kind():
    plain, sticky = (
        make_config(env, "disco103").to_json()
        for env in ("minatar/breakout", "minatar/breakout:sticky=0")
    )
    assert plain | {"env": None} == sticky | {"env": None}


def test_what_is_given_comes_over_the_rule_and_the_environment():
    config = make_config("minatar/breakout", "actor_critic", normalize_rewards=2.0, num_envs=9)
    assert (config.normalize_rewards, config.num_envs) == (2.0, 9)
    assert config.rollout_length == make_config("minatar/breakout", "actor_critic").rollout_length


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("preset", KIND_PRESETS, ids=lambda p: p.kind)
def test_every_preset_is_a_valid_configuration_of_its_example(preset, rule):
    assert find_preset(preset.kind) is preset
    config = make_config(preset.example, rule)
    assert config.env == preset.example


def test_the_published_preset_is_the_same_everywhere():
    published = make_config("ALE/Pong-v5", "disco103", "published").to_json()
    assert published | {"env": "catch"} == make_config("catch", "disco103", "published").to_json()


def test_unknown_presets_are_named():
    with pytest.raises(DiscorlError, match=r"unknown preset 'fast'.*published"):
        make_config(preset="fast")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("ALE/Pong-v5", {"env": "ALE/Pong-v5", "batch_size": 96, "warmup_updates": 34_482}),
        ("procgen/coinrun", {"env": "procgen/coinrun:stack=4", "batch_size": 192, "num_envs": 19}),
        ("crafter:size=32", {"env": "crafter:size=32,stack=30", "weight_decay": 0.3}),
        ("crafter:stack=8", {"env": "crafter:stack=8", "learning_rate_schedule": "constant"}),
        ("nethack", {"max_step": 0.3, "learning_rate": 1e-4, "body": "auto", "torso": (768,)}),
        ("sokoban", {"body": "impala", "channels": (256, 384, 384, 256), "model_size": 1024}),
    ],
)
def test_the_papers_settings(env, expected):
    values = make_config(env, "disco103", "paper").to_json()
    assert values | expected == values
    steps = {"crafter": 5e7}.get(env.partition(":")[0], 2e8)
    config = make_config(env, "disco103", "paper")
    assert config.env_steps == pytest.approx(steps, rel=1e-3)


def test_the_papers_rule_is_its_own_unless_another_is_named():
    assert make_config("sokoban", preset="paper").rule == "disco103"
    assert make_config("sokoban", "sprout", "paper").rule == "sprout"
    assert make_config("sokoban", "sprout").rule == "sprout"


def test_the_papers_settings_can_be_overridden_and_refused():
    assert make_config("ALE/Pong-v5", "disco103", "paper", num_envs=8).num_envs == 8
    with pytest.raises(DiscorlError, match=r"tells no settings for 'CartPole-v1'"):
        make_config("CartPole-v1", "disco103", "paper")


@pytest.mark.parametrize("preset", KIND_PRESETS, ids=lambda p: p.kind)
def test_sapling_is_fed_like_the_rule_that_it_was_distilled_from(preset):
    student, teacher = (make_config(preset.example, rule) for rule in ("sapling", "disco103"))
    assert student.to_json() | {"rule": ""} == teacher.to_json() | {"rule": ""}
