"""Presets: which settings a rule has in which environment."""

import pytest

from discorl.errors import DiscorlError
from discorl.training.presets import ENVIRONMENT_PRESETS, find_preset, make_config

RULES = ("disco103", "sprout", "actor_critic", "my_rule.safetensors")


def test_kinds_of_environments_have_their_own():
    assert make_config("minatar/breakout", "disco103").num_envs == 8
    assert make_config("ALE/Breakout-v5", "disco103").clip_rewards
    assert make_config("Acrobot-v1", "disco103").shrink_rewards
    assert make_config("my_module:make_env", "disco103").shrink_rewards
    assert make_config("CartPole-v1", "disco103").reward_scale == 0.1


def test_settings_after_the_colon_do_not_hide_the_kind():
    plain, sticky = (
        make_config(env, "disco103").to_json()
        for env in ("minatar/breakout", "minatar/breakout:sticky=0")
    )
    assert plain | {"env": None} == sticky | {"env": None}


def test_what_is_given_comes_over_the_rule_and_the_environment():
    config = make_config("minatar/breakout", "actor_critic", reward_scale=2.0, num_envs=9)
    assert (config.reward_scale, config.num_envs, config.rollout_length) == (2.0, 9, 16)
    assert config.life.experience.shares == (9, 27)
    assert make_config("minatar/breakout", "actor_critic").reward_scale == 5.0
    assert make_config("minatar/breakout", "disco103").reward_scale == 1.0


def test_what_an_environment_does_not_say_is_the_rules():
    for rule in RULES:
        assert (
            make_config("minatar/breakout", rule).learning_rate
            == make_config("catch", rule).learning_rate
        )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("preset", ENVIRONMENT_PRESETS, ids=lambda p: p.pattern)
def test_every_preset_is_a_valid_configuration_of_its_example(preset, rule):
    assert find_preset(preset.example) is preset
    config = make_config(preset.example, rule)
    assert config.env == preset.example


def test_the_published_preset_is_the_same_everywhere():
    published = make_config("ALE/Pong-v5", "disco103", "published").to_json()
    assert published | {"env": "catch"} == make_config("catch", "disco103", "published").to_json()


def test_unknown_presets_are_named():
    with pytest.raises(DiscorlError, match=r"unknown preset 'fast'.*published"):
        make_config(preset="fast")
