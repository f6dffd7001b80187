"""Games and settings to test, and how to play whole episodes of them."""

import torch

SPECS = [
    "acrobot:steps=25",
    "acrobot:torque=4,gravity=5,steps=40",
    "bandit",
    "bandit:arms=2,contexts=3,noise=0.5,delay=2,seed=5",
    "bandit:arms=1,noise=0",
    "bandit:arms=3,contexts=2,delay=1,wait=2",
    "cartpole",
    "cartpole:steps=7,force=5,pole=1",
    "catch:rows=4,columns=5",
    "chain",
    "chain:length=2,slip=0,steps=1",
    "chain:length=4,slip=0.5,small=0,reward_scale=10,steps=9,seed=6",
    "cliff",
    "cliff:rows=2,columns=3,steps=4,seed=3",
    "corridor",
    "corridor:length=2,step_cost=0.1,steps=1",
    "corridor:length=5,seed=9,steps=12",
    "deep_sea",
    "deep_sea:size=1",
    "deep_sea:size=4,seed=2",
    "grid",
    "grid:rows=1,columns=4,walls=0,objects=2,kinds=1,respawn=false,steps=6",
    "grid:rows=4,columns=3,walls=5,objects=3,kinds=4,steps=9,seed=8",
    "lander",
    "lander:gravity=0.1,thrust=1,pad=1,soft=2,shaping=0.5,steps=11",
    "memory",
    "memory:cues=5,delay=1,visible=true",
    "mountain_car:power=0.006,steps=50",
    "mountain_car:steps=1",
    "sokoban:count=3,steps=30",
    "sokoban:rows=5,columns=6,boxes=1,walls=1,count=2,steps=5,seed=4",
    "umbrella",
    "umbrella:length=1,distractors=0,noise=0",
    "umbrella:length=2,wait=3",
]


def play_whole(game, policy, num_envs=256, seed=0, limit=500):
    """Returns [B] and lengths [B] of one episode on each board.

    Args:
      policy: from the game's state, which holds all there is to know, to actions [B].
    """
    generator = torch.Generator().manual_seed(seed)
    state = game.start(num_envs, generator)
    total, alive = torch.zeros(num_envs), torch.ones(num_envs, dtype=torch.bool)
    lengths = torch.zeros(num_envs, dtype=torch.int64)
    for _ in range(limit):
        moved, reward, terminal = game.play(state, policy(state), generator)
        total += alive * reward
        lengths += alive
        alive &= ~terminal
        if not alive.any():
            return total, lengths
        # Boards whose episode is over stand still.
        state = {
            name: torch.where(alive.reshape(-1, *[1] * (new.dim() - 1)), new, state[name])
            for name, new in moved.items()
        }
    raise AssertionError(f"{alive.sum()} episodes have not ended")


def random_policy(game, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def act(state):
        num_envs = len(next(iter(state.values())))
        return torch.randint(game.num_actions, (num_envs,), generator=generator)

    return act
