"""Train agents with discovered reinforcement-learning rules, and discover new ones."""

from discorl.agents.check import check_agent
from discorl.agents.config import NetworkConfig
from discorl.agents.heads import DiscoHeads
from discorl.agents.network import Network
from discorl.agents.top_k import TopKHeads, top_k_candidates
from discorl.api import discover, train
from discorl.envs.registry import make_environment
from discorl.learner import Learner, LearnerState, learner_step
from discorl.optim import ClippedAdam, Schedule
from discorl.own_loop import DiscoTrainer, collect_rollout
from discorl.own_loop.tokens import token_rollout
from discorl.replay import Replay
from discorl.rollout import AgentOutputs, Rollout
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.rules.library import fetch_rule, load_rule, save_rule
from discorl.rules.meta_network import MetaNetworkSizes
from discorl.rules.policy_gradient import PolicyGradient
from discorl.training.config import TrainConfig
from discorl.training.presets import make_config
from discorl.training.trainer import Trainer

__all__ = [
    "ActorCritic",
    "AgentOutputs",
    "ClippedAdam",
    "DiscoConfig",
    "DiscoHeads",
    "DiscoRule",
    "DiscoTrainer",
    "Learner",
    "LearnerState",
    "MetaNetworkSizes",
    "Network",
    "NetworkConfig",
    "PolicyGradient",
    "Replay",
    "Rollout",
    "Schedule",
    "TopKHeads",
    "TrainConfig",
    "Trainer",
    "UpdateRule",
    "check_agent",
    "collect_rollout",
    "discover",
    "fetch_rule",
    "learner_step",
    "load_rule",
    "make_config",
    "make_environment",
    "save_rule",
    "token_rollout",
    "top_k_candidates",
    "train",
]

__version__ = "0.1.0"
