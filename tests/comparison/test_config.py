"""What a comparison is told."""

import pytest

from discorl.comparison.config import CompareConfig
from discorl.errors import DiscorlError
from discorl.training.presets import make_config


def configs(**values):
    config = CompareConfig(**values)
    return [config.train_config(entrant, "catch", 3) for entrant in config.entrants()]


def test_presets_are_those_of_training():
    own = configs(rules=("actor_critic", "disco103"), steps=7)
    assert own == [
        make_config("catch", rule, steps=7, seed=3) for rule in ("actor_critic", "disco103")
    ]
    (published,) = configs(rules=("disco103",), preset="published", steps=7)
    assert published == make_config("catch", "disco103", "published", steps=7, seed=3)


def test_a_rules_settings_come_over_those_of_all():
    plain, variant = configs(
        rules=(
            "actor_critic",
            "actor_critic:torso=8,4,learning_rate=0.5,activate_torso=true,value_width=none",
        ),
        set=("learning_rate=0.1", "num_envs=32", "learning_rate_schedule=cosine"),
    )
    assert (plain.learning_rate, plain.torso, plain.value_width) == (0.1, (64, 32, 32), 1.0)
    assert (variant.learning_rate, variant.torso, variant.value_width) == (0.5, (8, 4), None)
    assert (plain.activate_torso, variant.activate_torso) == (False, True)
    for config in (plain, variant):
        assert (config.num_envs, config.learning_rate_schedule) == (32, "cosine")


def test_a_path_may_hold_a_colon():
    plain, variant = CompareConfig(rules=("a:b/c.npz", "a:b/c.npz:steps=5")).entrants()
    assert (plain.rule, plain.settings) == ("a:b/c.npz", {})
    assert (variant.rule, variant.settings) == ("a:b/c.npz", {"steps": 5})


def test_json_and_back():
    config = CompareConfig(rules=("actor_critic:torso=8,4",), set=("num_envs=4",), seeds=2)
    assert CompareConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rules": ()}, "--rules: expected one or more"),
        ({"envs": ("catch", "catch")}, "--envs: catch is given twice"),
        ({"seeds": 0}, "--seeds: expected at least 1"),
        ({"set": ("leaning_rate=1",)}, "'leaning_rate'. Did you mean learning_rate"),
        ({"set": ("seed=1",)}, "Rules, environments and seeds are flags"),
        ({"set": ("wandb=true",)}, "'wandb'"),
        ({"set": ("learning_rate",)}, "--set: write field=value"),
        ({"set": ("learning_rate=fast",)}, "learning_rate=fast: expected float"),
        ({"set": ("learning_rate=-1",)}, "--learning-rate: expected a positive number"),
        ({"set": ("torso=8,x",)}, "torso=8,x: expected int"),
        ({"set": ("activate_torso=1",)}, "expected true or false"),
        ({"set": ("learning_rate_schedule=linear",)}, "expected one of constant, cosine"),
        ({"rules": ("actor_critic:rate=1",)}, "setting in --rules actor_critic:rate=1"),
    ],
)
def test_mistakes_are_explained(values, words):
    with pytest.raises(DiscorlError) as error:
        configs(**values)
    assert words in str(error.value)
