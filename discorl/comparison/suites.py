"""Named sets of environments: `--envs suite:selection`. docs/discovery.md says what each is for."""

from __future__ import annotations

from collections.abc import Iterable

from discorl.errors import UnknownNameError

SUITE = "suite:"

SUITES: dict[str, tuple[str, ...]] = {
    "selection": (
        "catch:rows=11,columns=7",
        "corridor:length=10,steps=40,seed=20001",
        "bandit:arms=5,contexts=3,noise=0.2,seed=20002",
        "umbrella:length=12,distractors=4",
        "cliff:rows=4,columns=8,seed=20003",
        "grid:rows=6,columns=6,walls=4,seed=20004",
        "deep_sea:size=8,seed=20005",
        "chain:length=7,slip=0.1,steps=25,seed=20006",
        "cartpole:steps=200,force=9,pole=0.7",
        "acrobot:torque=2.5,gravity=9,steps=150",
    ),
    "report": (
        "catch:rows=12,columns=5",
        "corridor:length=12,step_cost=0.01,steps=50,seed=30001",
        "bandit:arms=8,contexts=2,noise=0.3,seed=30002",
        "memory:cues=5,delay=7,visible=True",
        "cliff:rows=6,columns=6,steps=50,seed=30003",
        "grid:rows=7,columns=7,walls=8,objects=4,steps=30,seed=30004",
        "deep_sea:size=9,seed=30005",
        "chain:length=8,slip=0.2,steps=30,reward_scale=10,seed=30006",
        "lander:gravity=0.5,shaping=0.5",
        "CartPole-v1",
        "minatar/breakout",
    ),
    "everyday": (
        "CartPole-v1",
        "Acrobot-v1",
        "MountainCar-v0",
        "LunarLander-v3",
        "FrozenLake-v1",
        "Taxi-v4",
        "CliffWalking-v1",
        "minigrid:MiniGrid-Empty-8x8-v0",
        "minigrid:MiniGrid-DoorKey-5x5-v0",
    ),
    "minatar": (
        "minatar/asterix",
        "minatar/breakout",
        "minatar/freeway",
        "minatar/seaquest",
        "minatar/space_invaders",
    ),
}


def expand_suites(envs: Iterable[str]) -> tuple[str, ...]:
    """The environments, with those of a suite in place of its name."""
    found: list[str] = []
    for env in envs:
        found += _suite(env.removeprefix(SUITE)) if env.startswith(SUITE) else [env]
    return tuple(found)


def _suite(name: str) -> tuple[str, ...]:
    if name not in SUITES:
        raise UnknownNameError("suite", name, tuple(SUITES))
    return SUITES[name]
