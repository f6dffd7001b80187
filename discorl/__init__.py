"""Train agents with discovered reinforcement-learning rules, and discover new ones."""

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
