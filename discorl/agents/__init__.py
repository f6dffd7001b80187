"""Agents: a torso, the heads a rule asks for, and the action-conditional model."""

from discorl.agents.base import Agent
from discorl.agents.config import NetworkConfig
from discorl.agents.module import ModuleAgent
from discorl.agents.network import Network
from discorl.agents.torsos import MLPTorso

__all__ = ["Agent", "MLPTorso", "ModuleAgent", "Network", "NetworkConfig"]
