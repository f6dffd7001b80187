"""A trained agent: it is loaded, acts and is saved without replay, rule or environment."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from discorl.agents.base import Agent, initial_memory
from discorl.agents.module import ModuleAgent
from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.sources import AnyEnvironment, EnvironmentSource, find_environment
from discorl.envs.spaces import ActionWriter, ObservationReader
from discorl.envs.wrappers import NormalizedEnvironment, RunningMoments
from discorl.errors import DiscorlError
from discorl.files import write_atomically
from discorl.life.acting import choose, policy_step
from discorl.life.life import Life
from discorl.observations import ACTION_MASK, ObservationSpec, batch_size, spec_entries
from discorl.rollout import Memory, TimeStep
from discorl.runs.display import counting_in_python
from discorl.runs.folder import CONFIG_FILE
from discorl.settings import Count, Seed, change, check_value
from discorl.training.blueprint import DAMAGE, Blueprint, blueprint_of
from discorl.training.config import TrainConfig
from discorl.tree import flatten, split_groups, tree_map, unflatten
from discorl.watching.recording import Player, Show
from discorl.watching.video import Video, VideoSettings

BEST_AGENT_FILE = "best_agent.safetensors"
"""In a run folder: the agent that did best in the run's evaluations, if there were any."""
SHARED_AGENT = "agent.safetensors"
"""In a folder that `discorl pack` wrote: the agent."""
_FORMAT, _VERSION = "discorl-agent", "1"


@dataclass
class TrainedAgent:
    """A policy that reads its environment's observations and returns the actions it takes.

    `act` takes one observation or many: NumPy arrays, as Gymnasium's spaces define them.
    """

    blueprint: Blueprint
    agent: Agent
    params: dict[str, Tensor]
    moments: RunningMoments | None = None
    """What observations are shifted and scaled by, if they are."""
    info: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: environment, rule, seed, steps."""
    _generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        self._reader = ObservationReader(self.blueprint.observation_space)
        self._writer = ActionWriter(self.blueprint.action_space, self.blueprint.discretize_actions)

    @property
    def num_actions(self) -> int:
        """How many actions it chooses from."""
        return self._writer.num_actions

    @property
    def action_values(self) -> np.ndarray:
        """What each action is to the environment: [A, *shape of its action space]."""
        return self._writer.values

    def seed(self, seed: int) -> None:
        """Fix the draws of sampled actions from now on."""
        self._generator = torch.Generator(self.device).manual_seed(seed)

    @torch.no_grad()
    def act(
        self,
        observation: Any,
        state: Memory | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Memory | None]:
        """Choose actions.

        Args:
          observation: of one environment, or of B: arrays with a leading dimension.
          state: what the last call returned, for agents with memory; None starts afresh.
          episode_start: whether the observation begins an episode, one or B booleans: then
            nothing before it is remembered.
          deterministic: take the likeliest action instead of drawing one.

        Returns:
          One action, or an array of B, as the environment takes them; and the state to pass to
          the next call, which is None for agents without memory.
        """
        logits, state, single = self._logits(observation, state, episode_start)
        actions = self._writer.write(choose(logits, self._generator, deterministic))
        return (actions[0] if single else actions), state

    @torch.no_grad()
    def logits(
        self, observation: Any, state: Memory | None = None, episode_start: Any = None
    ) -> tuple[Tensor, Memory | None]:
        """The policy's logits for a batch, [B, A], and the state for the next call; as `act`."""
        logits, state, _ = self._logits(observation, state, episode_start)
        return logits, state

    @torch.no_grad()
    def probabilities(
        self, observation: Any, state: Memory | None = None, episode_start: Any = None
    ) -> np.ndarray:
        """The policy [A], or [B, A]: how likely `act` would draw each action."""
        logits, _, single = self._logits(observation, state, episode_start)
        probs: np.ndarray = torch.softmax(logits, dim=-1).cpu().numpy()
        return probs[0] if single else probs

    def save(self, path: str | Path) -> None:
        """Write the agent alone to one `.safetensors` file; `discorl.load_agent` reads it."""
        path = Path(path)
        if path.suffix != ".safetensors":
            raise DiscorlError(f"{path}: expected a name ending in .safetensors")
        groups: dict[str, Any] = {"params": self.params}
        if self.moments is not None:
            groups["moments"] = self.moments.state_dict()
        metadata = {
            "format": _FORMAT,
            "version": _VERSION,
            "blueprint": json.dumps(self.blueprint.to_json()),
            "info": json.dumps(self.info),
        }
        tensors = {k: t.detach().cpu().contiguous() for k, t in flatten(groups).items()}
        write_atomically(path, lambda p: save_file(tensors, p, metadata))

    def watching(self, env: Environment) -> Environment:
        """The environment as the agent sees it: with observations normalised as its own were."""
        if self.moments is None:
            return env
        return NormalizedEnvironment(env, self.moments, frozen=True)

    def watch(
        self,
        env: AnyEnvironment | None = None,
        episodes: int = 1,
        *,
        seed: int = 0,
        deterministic: bool = False,
        max_steps: int | None = None,
        progress: bool | None = None,
        **settings: Any,
    ) -> Video:
        """A video of the agent at play, which a notebook shows in place.

        Args:
          env: as for `discorl.train`; by default the one it was trained in, if that has a name.
          seed: of the first episode; it is the one that `discorl.play` plays with this seed.
          deterministic: always take the likeliest action.
          max_steps: of an episode; by default the environment's own limit, or 3,000.
          progress: whether to show it; by default in a terminal or a notebook.
          **settings: `max_frames`, `every`, `size` and `fps`, as `discorl watch` takes them.
        """
        episodes = check_value("episodes", Count, episodes)
        chosen = video_settings(settings)
        show = self.show(env, seed=seed, deterministic=deterministic, max_steps=max_steps)
        with counting_in_python(progress, "recording") as tell:
            return show.film(episodes, chosen, tell)

    def show(
        self,
        env: AnyEnvironment | EnvironmentSource | None = None,
        config: EnvironmentConfig | None = None,
        *,
        seed: int = 0,
        deterministic: bool = False,
        max_steps: int | None = None,
    ) -> Show:
        """The agent in an environment, ready to be watched; arguments as for `watch`.

        Args:
          config: how an environment that is named is run.
        """
        seed = check_value("seed", Seed, seed)
        max_steps = check_value("max_steps", Count | None, max_steps)
        env = self.info.get("env") if env is None else env
        if env is None:
            raise DiscorlError("env: the agent does not know where it was trained; name it")
        config = config or self.config_for(env)
        if not isinstance(env, EnvironmentSource):
            env = find_environment(env, self.device, config)
        player = Player(self.agent, self.params, self.moments, deterministic)
        return Show(player, env, config, self.check_fits, seed, max_steps)

    def config_for(self, env: AnyEnvironment | EnvironmentSource) -> EnvironmentConfig:
        """How an environment is run to be the one that the agent knows: with continuous actions
        cut as its own were, and with legal actions in the observation if it reads them there.

        A vector environment can only show those itself.
        """
        mask = spec_entries(self._reader.spec).get(ACTION_MASK)
        masked = mask is not None and mask.shape == (self.num_actions,)
        return EnvironmentConfig(
            discretize_actions=self.blueprint.discretize_actions,
            mask_actions=masked and not isinstance(env, VectorEnv),
        )

    def check_fits(self, env: Environment) -> None:
        """Raise DiscorlError unless the environment shows what the agent reads, and lets it act."""
        if self.num_actions != env.num_actions:
            raise DiscorlError(
                f"policy: it has {self.num_actions} actions, the environment {env.num_actions}"
            )
        own = _shapes(ObservationReader(self.blueprint.observation_space).spec)
        shown = _shapes(env.observation_spec)
        if own != shown:
            raise DiscorlError(f"policy: it reads observations {own}, the environment has {shown}")

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(iter(self.params.values())).device

    def to(self, device: torch.device | str) -> TrainedAgent:
        """The same agent on another device."""
        if isinstance(self.agent, ModuleAgent):
            self.agent.module.to(device)
        params = {name: p.to(device) for name, p in self.params.items()}
        return TrainedAgent(self.blueprint, self.agent, params, self.moments, self.info)

    def _logits(
        self, observation: Any, state: Memory | None, episode_start: Any
    ) -> tuple[Tensor, Memory | None, bool]:
        single = self._reader.is_single(observation)
        read = self._reader.read_each([observation]) if single else self._reader.read(observation)
        if self.moments is not None:
            read = self.moments.normalize(read)
        batch = batch_size(read)
        first = np.zeros(batch, bool) if episode_start is None else np.ravel(episode_start)
        if first.shape != (batch,):
            raise DiscorlError(f"episode_start: expected {batch} booleans, got {first.shape}")
        firsts = torch.as_tensor(first.astype(bool), device=self.device)
        memory = initial_memory(self.agent, batch, self.device)
        if state is not None and memory is not None:
            if {k: m.shape for k, m in state.items()} != {k: m.shape for k, m in memory.items()}:
                raise DiscorlError(f"state: it is not of {batch} observations of this agent")
            memory = state
        read = tree_map(lambda t: t.to(self.device), read)
        step = TimeStep(read, torch.zeros(batch), firsts)
        logits, memory = policy_step(self.agent, self.params, step, memory)
        return logits, memory, single


def video_settings(settings: dict[str, Any]) -> VideoSettings:
    """Settings of a video by their names; DiscorlError for one that there is not."""
    return change(VideoSettings(), settings, "setting of a video")


def agent_of(life: Life, config: TrainConfig, step: int) -> TrainedAgent:
    """The agent of a life as it is now."""
    info = {"env": config.env, "rule": config.rule, "seed": config.seed, "steps": step}
    params = {name: p.detach().clone() for name, p in life.state.params.items()}
    moments = None
    if isinstance(life.env, NormalizedEnvironment):
        moments = RunningMoments()
        moments.load_state_dict(life.env.moments.state_dict())
    return TrainedAgent(blueprint_of(life), life.mind.learner.agent, params, moments, info)


def agent_file(path: Path) -> Path | None:
    """The file with an agent alone that a path means: itself, or the one in a folder that `discorl
    pack` wrote; None if it is of a run."""
    if path.is_file() or path.suffix == ".safetensors":
        return path
    shared = path / SHARED_AGENT
    return shared if shared.is_file() and not (path / CONFIG_FILE).exists() else None


def read_agent_info(path: Path) -> dict[str, Any]:
    """Where the agent in a file comes from; nothing if the file holds none."""
    try:
        with safe_open(path, framework="pt") as file:
            info = json.loads((file.metadata() or {})["info"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def read_agent(path: Path, network: nn.Module | None = None) -> TrainedAgent:
    """The agent in a file that `TrainedAgent.save` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT or metadata.get("version") != _VERSION:
                raise DiscorlError(f"{path}: not an agent of discorl, or one of another version")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        blueprint = Blueprint.from_json(json.loads(metadata["blueprint"]))
        info = json.loads(metadata["info"])
    except FileNotFoundError:
        raise DiscorlError(f"{path}: no such file") from None
    except (OSError, SafetensorError, *DAMAGE) as error:
        raise DiscorlError(f"{path}: cannot be read as an agent: {error}") from error
    groups = split_groups(tensors)
    return assemble_agent(blueprint, groups["params"], groups.get("moments"), info, network)


def assemble_agent(
    blueprint: Blueprint,
    params: dict[str, Tensor],
    moments: dict[str, Tensor] | None,
    info: dict[str, Any],
    network: nn.Module | None = None,
) -> TrainedAgent:
    """An agent from its parts; raises DiscorlError, saying what does not fit."""
    try:
        agent = blueprint.build(network)
        template = agent.init(torch.Generator())
        params = unflatten(template, params)
    except DiscorlError:
        raise
    except ValueError as error:
        raise DiscorlError(f"the agent's parameters do not fit its network: {error}") from error
    except (TypeError, KeyError, AttributeError, RuntimeError, OverflowError) as error:
        line = str(error).partition("\n")[0]
        raise DiscorlError(
            f"the agent cannot be built as it is described: {type(error).__name__}: {line}"
        ) from error
    running = None
    if moments is not None:
        running = RunningMoments()
        running.load_state_dict(moments)
    return TrainedAgent(blueprint, agent, params, running, info)


def _shapes(spec: ObservationSpec) -> dict[str, list[int]]:
    return {name: list(entry.shape) for name, entry in sorted(spec_entries(spec).items())}
