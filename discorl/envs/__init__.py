"""Environments: one batched, self-resetting protocol, tensor environments and their registry."""

from discorl.envs.base import Environment, TimeStep
from discorl.envs.catch import Catch
from discorl.envs.registry import list_environments, make_environment
from discorl.envs.tensor import TensorEnvironment, TensorGame

__all__ = [
    "Catch",
    "Environment",
    "TensorEnvironment",
    "TensorGame",
    "TimeStep",
    "list_environments",
    "make_environment",
]
