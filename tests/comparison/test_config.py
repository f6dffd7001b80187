"""What a comparison is told."""

from contextlib import closing

import pytest

from discorl.comparison.config import CompareConfig
from discorl.comparison.suites import SUITES
from discorl.envs import FAMILIES
from discorl.envs.registry import is_external, make_environment, make_game
from discorl.errors import DiscorlError
from discorl.settings import split_spec
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


def test_a_suite_stands_for_its_environments():
    config = CompareConfig(envs=("catch", "suite:minatar"))
    assert config.envs == ("catch", *SUITES["minatar"])
    assert CompareConfig.from_json(config.to_json()) == config
    with pytest.raises(DiscorlError, match=r"minatarr.*Did you mean minatar"):
        CompareConfig(envs=("suite:minatarr",))
    with pytest.raises(DiscorlError, match="minatar/breakout is given twice"):
        CompareConfig(envs=("suite:minatar", "minatar/breakout"))


def test_suites_share_no_environment_with_each_other_or_with_a_family():
    """What a rule is chosen by, and reported on, it has not seen in discovery."""
    selection, report = (SUITES[name] for name in ("selection", "report"))
    assert not set(selection) & set(report)
    for env in (*selection, *report):
        if is_external(env):
            continue
        make_game(env)
        game, settings = split_spec(env)
        for family in (family for family in FAMILIES.values() if family.game == game):
            texts = {name: [str(v) for v in values] for name, values in family.ranges.items()}
            foreign = [
                name for name in texts if settings.get(name, texts[name][0]) not in texts[name]
            ]
            assert foreign, f"{env} may be drawn in discovery"


@pytest.mark.parametrize("env", sorted({env for envs in SUITES.values() for env in envs}))
def test_every_environment_of_a_suite_can_be_made(env):
    needed = {"LunarLander-v3": "Box2D", "minigrid": "minigrid", "minatar": "minatar"}
    for word, package in needed.items():
        if env.startswith(word):
            pytest.importorskip(package)
    with closing(make_environment(env, 1)) as made:
        assert made.reset(0).reward.shape == (1,)


def test_scores_are_against_one_of_the_rules():
    with pytest.raises(DiscorlError, match="--against sprout: not among --rules"):
        CompareConfig(rules=("actor_critic",), against="sprout")


def test_a_path_may_hold_a_colon():
    plain, variant = CompareConfig(rules=("a:b/c.npz", "a:b/c.npz:steps=5")).entrants()
    assert (plain.rule, plain.settings) == ("a:b/c.npz", {})
    assert (variant.rule, variant.settings) == ("a:b/c.npz", {"steps": 5})


def test_environment_steps_are_rounded_up_to_whole_rollouts():
    rules = ("actor_critic", "actor_critic:num_envs=32,rollout_length=10", "disco103")
    for config in configs(rules=rules, env_steps=1001):
        rollout = config.num_envs * config.rollout_length
        assert (config.steps - 1) * rollout < 1001 <= config.steps * rollout


def test_peers_have_their_own_settings_and_the_environments():
    config = CompareConfig(
        rules=("sb3/ppo:learning_rate=0.001,clip_range_vf=none,num_envs=4", "sb3/dqn"),
        env_steps=500,
        set=("discretize_actions=3", "learning_rate=7"),
    )
    ppo, dqn = (config.run_config(entrant, "Pendulum-v1", 3) for entrant in config.entrants())
    assert (ppo.env, ppo.seed, ppo.env_steps, ppo.algorithm) == ("Pendulum-v1", 3, 500, "ppo")
    assert (ppo.settings["learning_rate"], ppo.settings["n_steps"]) == (0.001, 128)
    assert (ppo.settings["num_envs"], ppo.settings["clip_range_vf"]) == (4, None)
    assert dqn.settings["learning_rate"] == 2.5e-4
    assert ppo.environment.discretize_actions == dqn.environment.discretize_actions == 3


def test_settings_from_before_environment_steps():
    old = CompareConfig(steps=7).to_json()
    del old["env_steps"]
    assert CompareConfig.from_json(old) == CompareConfig(steps=7)


def test_json_and_back():
    config = CompareConfig(rules=("actor_critic:torso=8,4",), set=("num_envs=4",), seeds=2)
    assert CompareConfig.from_json(config.to_json()) == config
    config = CompareConfig(rules=("sb3/ppo",), env_steps=100)
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
        ({"set": ("learning_rate",)}, "--set: write name=value, got 'learning_rate'"),
        ({"set": ("learning_rate=fast",)}, "--set: learning_rate=fast: expected a number"),
        ({"set": ("learning_rate=-1",)}, "--set: learning_rate=-1: expected a positive number"),
        ({"set": ("torso=8,x",)}, "--set: torso=8,x: expected a whole number"),
        ({"set": ("activate_torso=1",)}, "expected true or false"),
        ({"set": ("learning_rate_schedule=steep",)}, "expected one of constant, linear, cosine"),
        ({"env_steps": 0}, "--env-steps: expected at least 1"),
        ({"steps": 5, "env_steps": 100}, "--steps and --env-steps: give one of them"),
        ({"set": ("steps=5",), "env_steps": 100}, "--env-steps: drop the setting steps"),
        ({"rules": ("sb3/ppo",)}, "--rules sb3/ppo: give --env-steps"),
        ({"rules": ("sb3/pop",), "env_steps": 9}, "'sb3/pop'. Did you mean sb3/ppo"),
        ({"rules": ("actor_critic:rate=1",)}, "setting of --rules actor_critic:rate=1: 'rate'"),
    ],
)
def test_mistakes_are_explained(values, words):
    with pytest.raises(DiscorlError) as error:
        configs(**values)
    assert words in str(error.value)
