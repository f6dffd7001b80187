"""Playing before a camera: episodes moment by moment, and as a video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from discorl.agents.base import Agent, initial_memory
from discorl.envs.base import MAX_STEPS, Environment, EnvironmentConfig
from discorl.envs.sources import EnvironmentSource
from discorl.envs.tensor import TensorEnvironment
from discorl.envs.wrappers import RunningMoments
from discorl.layers import Params
from discorl.life.acting import choose, policy_step
from discorl.observations import Observation
from discorl.rollout import Memory, TimeStep, Window
from discorl.tree import tree_map
from discorl.values import ValueReading
from discorl.watching.frames import Composer, Moment
from discorl.watching.scenes import Picture, Scene, find_scene, open_environment
from discorl.watching.video import Video, VideoSettings

Tell = Callable[[int, int], bool]
"""Called after each frame with their number and the most there may be; True ends the recording."""


@dataclass(frozen=True)
class Player:
    """An agent as it plays."""

    agent: Agent
    params: Params
    moments: RunningMoments | None = None
    """What observations are shifted and scaled by, if they are."""
    greedy: bool = False
    """Always take the likeliest action."""

    def sees(self, step: TimeStep) -> TimeStep:
        """The step as the agent reads it."""
        if self.moments is None:
            return step
        return replace(step, observation=self.moments.normalize(step.observation))

    def value(self, step: TimeStep, memory: Memory | None) -> Tensor | None:
        """[B]: what it expects from here on; None if it has no head that says so."""
        heads = self.agent.heads
        if not heads.squashed:
            return None
        name, squashed = next(iter(heads.squashed.items()))
        read = ValueReading(heads.value_range.get(name), squashed)
        seen = tree_map(_one_step, step.observation)
        inputs = seen if memory is None else Window(seen, _one_step(step.first), memory)
        outputs = self.agent.outputs(self.params, inputs)
        if name in outputs.state:
            return read(outputs.state[name])[0]
        policy = torch.softmax(outputs.logits, dim=-1)
        return (policy * read(outputs.action[name])).sum(dim=-1)[0]


@torch.no_grad()
def play_moments(
    player: Player,
    env: Environment,
    seed: int,
    max_steps: int | None = None,
    episode: int = 0,
) -> Iterator[Moment]:
    """One episode in the environment's first copy, as `discorl.play` plays it with this seed.

    The environment shows a moment until the next one is asked for.

    Args:
      episode: its number, to be shown.
    """
    max_steps = max_steps or getattr(env, "max_episode_steps", None) or MAX_STEPS
    device = next(iter(player.params.values())).device
    generator = torch.Generator(device).manual_seed(seed)
    memory = initial_memory(player.agent, env.num_envs, device)
    step, reward, total, ended = env.reset(seed), 0.0, 0.0, False
    for number in range(max_steps):
        seen = player.sees(step)
        value = player.value(seen, memory)
        logits, memory = policy_step(player.agent, player.params, seen, memory)
        actions = choose(logits, generator, player.greedy)
        yield Moment(
            episode,
            number,
            reward,
            total,
            tree_map(_first_row, step.observation),
            torch.softmax(logits[0].double(), dim=-1).cpu().numpy(),
            int(actions[0]),
            None if value is None else float(value[0]),
        )
        step = env.step(actions)
        reward = float(step.reward[0])
        total += reward
        ended = bool(step.ended[0])
        if ended:
            break
    yield Moment(episode, number + 1, reward, total, _final(env, step, ended))


def record(
    player: Player,
    env: Environment,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int | None = None,
    settings: VideoSettings | None = None,
    tell: Tell | None = None,
) -> Video:
    """A video of episodes, with seeds counting up.

    Args:
      max_steps: of an episode; by default the environment's own limit, or 3,000.
      tell: see `Tell`.
    """
    settings = settings or VideoSettings()
    scene = find_scene(env, settings.size)
    film = _Film(scene, Composer(getattr(env, "action_names", None), env.num_actions), settings)
    for episode in range(episodes):
        for moment in play_moments(player, env, seed + episode, max_steps, episode):
            film.take(moment)
            stopped = tell is not None and tell(len(film.frames), settings.max_frames)
            if stopped or film.is_full:
                whole = moment.last and episode == episodes - 1
                return film.video(cut=not whole)
    return film.video(cut=False)


@dataclass(frozen=True)
class Show:
    """Who plays, where, and with which seeds."""

    player: Player
    source: EnvironmentSource
    config: EnvironmentConfig
    check: Callable[[Environment], None]
    """Raises DiscorlError if the player cannot play in an environment."""
    seed: int = 0
    max_steps: int | None = None

    def open(self) -> AbstractContextManager[Environment]:
        """The environment, for as long as it is needed."""
        device = next(iter(self.player.params.values())).device
        env = open_environment(self.source, self.config, device)
        try:
            self.check(env)
        except BaseException:
            env.close()
            raise
        return closing(env)

    def film(
        self, episodes: int = 1, settings: VideoSettings | None = None, tell: Tell | None = None
    ) -> Video:
        """See `record`."""
        with self.open() as env:
            return record(self.player, env, episodes, self.seed, self.max_steps, settings, tell)


class _Film:
    """What has been recorded so far."""

    def __init__(self, scene: Scene, composer: Composer, settings: VideoSettings) -> None:
        self._scene, self._composer, self._settings = scene, composer, settings
        self.frames: list[Picture] = []
        self._ends: list[int] = []
        self._returns: dict[int, float] = {}
        self._picture: Picture | None = None

    @property
    def is_full(self) -> bool:
        return len(self.frames) >= self._settings.max_frames

    def take(self, moment: Moment) -> None:
        """Record a moment, unless it is one of those that are skipped."""
        self._returns[moment.episode] = moment.total
        if moment.step % self._settings.every and not moment.last:
            return
        if moment.observation is not None:
            self._picture = self._scene.draw(moment.observation)
        assert self._picture is not None  # Only what an episode ended on may be hidden.
        if moment.last:
            self._ends.append(len(self.frames))
        self.frames.append(self._composer.compose(self._picture, moment))

    def video(self, cut: bool) -> Video:
        fps = self._settings.fps or min(self._scene.fps, 50)
        return Video(self.frames, self._ends, list(self._returns.values()), fps, cut)


def _final(env: Environment, step: TimeStep, ended: bool) -> Observation | None:
    """What an episode ended on in the first copy; None if it cannot be seen any more."""
    if isinstance(env, TensorEnvironment):
        played = env.played()
        return None if played is None else _first_row(played)
    if not ended or step.reset is not None:  # The next episode has not begun.
        return tree_map(_first_row, step.observation)
    if step.last is not None and step.truncated is not None and bool(step.truncated[0]):
        return tree_map(_first_row, step.last)
    return None


def _first_row(tensor: Tensor) -> Tensor:
    return tensor[0]


def _one_step(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0)
