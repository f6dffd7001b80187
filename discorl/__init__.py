"""Train agents with discovered reinforcement-learning rules, and discover new ones.

Public names are imported when they are first used, so that `import discorl` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discorl.agents.config import NetworkConfig
    from discorl.agents.network import Network
    from discorl.api import analyse, compare, discover, distil, load_run, train, tune
    from discorl.discovery.config import DiscoverConfig
    from discorl.discovery.handle import Discovery
    from discorl.distillation.config import DistilConfig
    from discorl.distillation.handle import Distillation
    from discorl.envs.registry import make_environment
    from discorl.exporting.export import Exported, export_policy
    from discorl.learner import Learner, LearnerState
    from discorl.library.catalogue import fetch_rule, load_rule, save_rule
    from discorl.life.playing import Evaluation
    from discorl.optim import ClippedAdam, Schedule
    from discorl.outputs import AgentOutputs
    from discorl.own_loop import DiscoTrainer, collect_rollout
    from discorl.own_loop.check import check_agent
    from discorl.own_loop.heads import DiscoHeads
    from discorl.own_loop.tokens import token_rollout
    from discorl.own_loop.top_k import TopKHeads, top_k_candidates
    from discorl.playing import PlayedEpisode, evaluate, play
    from discorl.processes import join_group
    from discorl.replay import Replay
    from discorl.rollout import Rollout, TimeStep
    from discorl.rules.actor_critic import ActorCritic
    from discorl.rules.base import HandWritten, UpdateRule
    from discorl.rules.disco import DiscoConfig, DiscoRule
    from discorl.rules.meta_network import MetaNetworkSizes
    from discorl.rules.policy_gradient import PolicyGradient
    from discorl.runs.session import Progress
    from discorl.training.agent import TrainedAgent
    from discorl.training.config import TrainConfig
    from discorl.training.handle import Run, load_agent
    from discorl.training.presets import make_config
    from discorl.training.trainer import Trainer
    from discorl.watching.video import Video

__all__ = [
    "ActorCritic",
    "AgentOutputs",
    "ClippedAdam",
    "DiscoConfig",
    "DiscoHeads",
    "DiscoRule",
    "DiscoTrainer",
    "DiscoverConfig",
    "Discovery",
    "DistilConfig",
    "Distillation",
    "Evaluation",
    "Exported",
    "HandWritten",
    "Learner",
    "LearnerState",
    "MetaNetworkSizes",
    "Network",
    "NetworkConfig",
    "PlayedEpisode",
    "PolicyGradient",
    "Progress",
    "Replay",
    "Rollout",
    "Run",
    "Schedule",
    "TimeStep",
    "TopKHeads",
    "TrainConfig",
    "TrainedAgent",
    "Trainer",
    "UpdateRule",
    "Video",
    "analyse",
    "check_agent",
    "collect_rollout",
    "compare",
    "discover",
    "distil",
    "evaluate",
    "export_policy",
    "fetch_rule",
    "join_group",
    "load_agent",
    "load_rule",
    "load_run",
    "make_config",
    "make_environment",
    "play",
    "save_rule",
    "token_rollout",
    "top_k_candidates",
    "train",
    "tune",
]

__version__ = "0.1.0"

_HOMES = {
    "agents.config": "NetworkConfig",
    "agents.network": "Network",
    "api": "analyse compare discover distil load_run train tune",
    "discovery.config": "DiscoverConfig",
    "discovery.handle": "Discovery",
    "distillation.config": "DistilConfig",
    "distillation.handle": "Distillation",
    "envs.registry": "make_environment",
    "exporting.export": "Exported export_policy",
    "learner": "Learner LearnerState",
    "library.catalogue": "fetch_rule load_rule save_rule",
    "life.playing": "Evaluation",
    "optim": "ClippedAdam Schedule",
    "outputs": "AgentOutputs",
    "own_loop": "DiscoTrainer collect_rollout",
    "own_loop.check": "check_agent",
    "own_loop.heads": "DiscoHeads",
    "own_loop.tokens": "token_rollout",
    "own_loop.top_k": "TopKHeads top_k_candidates",
    "playing": "PlayedEpisode evaluate play",
    "processes": "join_group",
    "replay": "Replay",
    "rollout": "Rollout TimeStep",
    "rules.actor_critic": "ActorCritic",
    "rules.base": "HandWritten UpdateRule",
    "rules.disco": "DiscoConfig DiscoRule",
    "rules.meta_network": "MetaNetworkSizes",
    "rules.policy_gradient": "PolicyGradient",
    "runs.session": "Progress",
    "training.agent": "TrainedAgent",
    "training.config": "TrainConfig",
    "training.handle": "Run load_agent",
    "training.presets": "make_config",
    "training.trainer": "Trainer",
    "watching.video": "Video",
}
"""Module -> the public names that it holds; type checkers read them above."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        globals()[name] = getattr(importlib.import_module(f"discorl.{_HOME[name]}"), name)
    elif not name.startswith("_"):
        # A module, perhaps: with the public names come all those that they are made of.
        for module in _HOMES:
            importlib.import_module(f"discorl.{module}")
    if name in globals():
        return globals()[name]
    raise AttributeError(f"module 'discorl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
