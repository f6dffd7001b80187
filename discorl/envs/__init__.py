"""Environments: one batched, self-resetting protocol, tensor environments and their registry."""

from discorl.envs.base import Environment
from discorl.envs.catch import Catch
from discorl.envs.families import FAMILIES, Family, resolve_environment
from discorl.envs.registry import list_environments, make_environment, optimal_return
from discorl.envs.stacked import StackedEnvironment, make_stack
from discorl.envs.tensor import StackableGame, TensorEnvironment, TensorGame
from discorl.rollout import TimeStep

__all__ = [
    "FAMILIES",
    "Catch",
    "Environment",
    "Family",
    "StackableGame",
    "StackedEnvironment",
    "TensorEnvironment",
    "TensorGame",
    "TimeStep",
    "list_environments",
    "make_environment",
    "make_stack",
    "optimal_return",
    "resolve_environment",
]
