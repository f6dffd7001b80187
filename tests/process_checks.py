"""What several processes do in `test_processes.py`; what they came to is left in files.

Each case is a function of a group, which has one process or many, and returns tensors. One that
needs parts of the same data takes them by rank.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial

import gymnasium
import torch
import torch.distributed as dist
from goldens import disco103_file
from torch import nn

from discorl.agents import Network, NetworkConfig
from discorl.agents.base import initial_memory
from discorl.envs.sources import find_environment
from discorl.envs.wrappers import RunningMoments, SharedMoments
from discorl.learner import Learner
from discorl.library.catalogue import load_rule
from discorl.life.config import ExperienceConfig, LifeConfig, ReplayConfig, RewardConfig
from discorl.life.life import Life
from discorl.observations import ArraySpec
from discorl.optim import ClippedAdam, Schedule
from discorl.own_loop import DiscoTrainer
from discorl.own_loop.heads import DiscoHeads
from discorl.processes import join_group
from discorl.replay import concatenate
from discorl.rollout import Rollout
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.tree import flatten, tree_map

DISCO = DiscoRule.random(
    DiscoConfig(
        MetaNetworkSizes(
            predictions=6,
            hidden=8,
            prediction_embedding=(5, 1),
            policy_channels=(5, 2),
            policy_target_channels=6,
            meta_hidden=5,
            meta_embedding=4,
            meta_prediction_embedding=(5, 1),
            meta_policy_channels=(4, 2),
        ),
        num_bins=11,
        max_abs_value=10.0,
    )
).to(torch.float64)
CRITIC = ActorCritic(num_bins=11, max_abs_value=10.0, normalize_advantage=True)
SHIPPED = {name: load_rule(name).to(torch.float64) for name in ("sprout", "sapling")}
RULES = {"disco": DISCO, "actor_critic": CRITIC, **SHIPPED}
PUBLISHED = "disco103"
if (weights := disco103_file()) is not None:
    RULES[PUBLISHED] = load_rule(weights).to(torch.float64)
NETWORK = NetworkConfig(torso=(8, 6), model_size=5, head_hidden=4, head_std=0.3)
GRU = replace(NETWORK, memory="gru", memory_size=5)
TRAJECTORIES, ACTIONS, UPDATES = 12, 3, 3
UNEVEN = {1: [12], 2: [1, 11], 3: [2, 7, 3]}


def experience(seed, cut_off, memory):
    """A batch of which parts have differently many steps that count."""
    generator = torch.Generator().manual_seed(seed)
    shape = (6, TRAJECTORIES)

    def noise(*more):
        return torch.randn(*shape, *more, generator=generator, dtype=torch.float64)

    likely = torch.linspace(0.1, 0.8, TRAJECTORIES)
    return Rollout(
        observations=noise(4),
        actions=torch.randint(ACTIONS, shape, generator=generator),
        rewards=noise(),
        discounts=(torch.rand(shape, generator=generator) > likely).double(),
        logits=noise(ACTIONS),
        final=torch.rand(shape, generator=generator) < likely.flip(0) / 2 if cut_off else None,
        memory={k: noise(*m.shape[1:])[:1] for k, m in memory.items()} if memory else None,
    )


def part(rollout, group, sizes=None):
    """A process's part of the trajectories."""
    sizes = sizes or [TRAJECTORIES // group.size] * group.size
    start = sum(sizes[: group.rank])
    return tree_map(lambda t: t[:, start : start + sizes[group.rank]], rollout)


def learner_case(rule, network, cut_off=False, uneven=False, first_steps=False):
    def case(group):
        heads = rule.heads(ACTIONS)
        agent = Network.for_observations(ArraySpec((4,)), heads, network)
        optimiser = ClippedAdam(Schedule(0.01))
        learner = Learner(agent, rule, optimiser, first_steps, group=group)
        state = learner.init(torch.Generator().manual_seed(0), torch.float64)
        memory = initial_memory(agent, TRAJECTORIES, "cpu")
        for seed in range(UPDATES):
            whole = experience(seed, cut_off, memory)
            own = part(whole, group, UNEVEN[group.size] if uneven else None)
            state, metrics = learner.step(state, own)
        return flatten(state) | {f"metrics/{name}": value for name, value in metrics.items()}

    return case


def own_loop(group, make=lambda: Heads(), rule=CRITIC, cut_off=False):
    """Modules that begin differently become one."""
    torch.manual_seed(group.rank)
    module = make().double()
    trainer = DiscoTrainer(module, rule, batch_size=None, group=group)
    for seed in range(UPDATES):
        metrics = trainer.step(part(experience(seed, cut_off, None), group))
    return flatten(trainer.state) | dict(module.state_dict()) | {"loss": metrics["total_loss"]}


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.fixed = nn.Linear(6, 6).requires_grad_(False)
        self.heads = nn.ModuleDict({"logits": nn.Linear(6, ACTIONS), "v": nn.Linear(6, 11)})

    def forward(self, observations):
        features = self.fixed(torch.tanh(self.body(observations)))
        return {name: head(features) for name, head in self.heads.items()}


def moments(group):
    """Of numbers that each process sees a part of."""
    found = RunningMoments() if group.size == 1 else SharedMoments(group)
    for seed in range(3):
        whole = experience(seed, False, None).observations.transpose(0, 1) + 3
        for own in whole.chunk(group.size)[group.rank].split(2):
            found.update(own)
        found.share()
    return found.state_dict()


def disco_heads():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), DiscoHeads(6, ACTIONS, rule=DISCO))


CASES = {
    "own loop": own_loop,
    "own loop, disco, cut off": partial(own_loop, make=disco_heads, rule=DISCO, cut_off=True),
    "moments": moments,
    **{
        f"{name}, {word}": learner_case(rule, network, **options)
        for name, rule in RULES.items()
        for word, network, options in [
            ("plain", NETWORK, {}),
            ("cut off", NETWORK, {"cut_off": True, "first_steps": True}),
            ("memory, cut off, uneven", GRU, {"cut_off": True, "uneven": True}),
        ]
    },
}
"""Name -> what gives the same tensors in any group."""

LIFE = LifeConfig(
    experience=ExperienceConfig(
        num_envs=6, rollout_length=5, replay=ReplayConfig(12, 24, 0.5, 1), burn_in=1
    ),
    rewards=RewardConfig(normalize_rewards=1.0),
    network=GRU,
)


SHORT = "discorl/Short-v0"
"""Nearly all of its episodes are cut off."""
gymnasium.register(
    SHORT, "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=4
)


def live(group, batches=None, rule=CRITIC):
    """A life with memory and replay: what was learned, and from which batches.

    One process learns from `batches` in place of its own.
    """
    generator = torch.Generator().manual_seed(0)
    life = Life(
        find_environment(SHORT),
        rule,
        LIFE.share(group),
        group.seed(0),
        generator,
        torch.float64,
        group=group,
    )
    generator.manual_seed(group.seed(0))
    used = []
    with closing(life):
        for step in range(4):
            batch = life.batch(life.act())
            if batch is not None:
                life.learn(batch if batches is None else batches[step])
            used.append(batch)
    return flatten(life.state), used


def own_replay(group, batches=None):
    """`live` in a loop of one's own."""
    torch.manual_seed(group.rank)
    trainer = DiscoTrainer(
        disco_heads().double(), DISCO, batch_size=18, replay_capacity=36, group=group
    )
    draw, used = trainer._mind.batch, []

    def drawn(rollout):
        used.append(draw(rollout))
        return used[-1] if batches is None else batches[len(used) - 1]

    trainer._mind.batch = drawn
    for seed in range(4):
        trainer.step(part(experience(seed, True, None), group))
    return flatten(trainer.state), used


LIVES = {name: partial(live, rule=rule) for name, rule in RULES.items()}
LIVES["own loop"] = own_replay
"""Name -> what learns the same in any group from the same batches."""


def joined(parts):
    """The batches of all processes side by side."""
    return [None if own[0] is None else concatenate(list(own)) for own in zip(*parts, strict=True)]


def main(rank, size, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet{size}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    with join_group() as group:
        found = {name: case(group) for name, case in CASES.items()}
        lives = {name: case(group) for name, case in LIVES.items()}
        refused = []
        try:
            Learner(None, CRITIC, None, group=group).step(None, None, differentiable=True)
        except ValueError as error:
            refused.append(str(error))
    torch.save((found, lives, refused), f"{folder}/{rank}_of_{size}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
