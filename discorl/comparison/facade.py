"""An environment of ours as a `gymnasium.Env`, for learners from other packages."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from discorl.agents.bodies import choose_body
from discorl.envs.base import Environment
from discorl.life.episodes import Episode
from discorl.observations import ACTION_MASK, ArraySpec, Observation, ObservationSpec, spec_entries
from discorl.rollout import TimeStep

_LARGEST_SEED = 2**31 - 1


class SingleEnv(gymnasium.Env[Any, Any]):
    """One copy of an environment. It counts its episodes, as `EpisodeLog` does.

    An episode that is cut off ends with its true last observation. One that ends by itself may
    show the next one's first instead: our environments that restart in the same step keep no
    other, and a learner multiplies its value by zero.

    Entries of a dictionary keep their names unless learners cannot take them: see
    `observation_spec`.

    Args:
      env: must have one copy; `close` closes it.
      episodes: finished episodes are added here.
    """

    def __init__(self, env: Environment, episodes: list[Episode]) -> None:
        if env.num_envs != 1:
            raise ValueError(f"env: expected 1 copy, got {env.num_envs}")
        self._names = _safe_names(env.observation_spec)
        self.observation_spec = _renamed(env.observation_spec, self._names)
        """What it shows, by the names that it gives to entries."""
        self.observation_space = _space(self.observation_spec)
        self.action_space = spaces.Discrete(env.num_actions)
        self.played = env
        self._episodes = episodes
        self._last: TimeStep | None = None
        self._return, self._length = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: the next one, or, with a seed, as if nothing had been played yet."""
        super().reset(seed=seed)
        if seed is not None or self._last is None or not bool(self._last.ended):
            begun = int(self.np_random.integers(_LARGEST_SEED)) if seed is None else seed
            self._last = self.played.reset(begun)
        elif self._last.reset is not None:  # The next step does nothing but begin the episode.
            self._last = self.played.step(torch.zeros(1, dtype=torch.int64))
        self._return, self._length = 0.0, 0
        return self._array(self._last.observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act; after the end of an episode, `reset` must follow."""
        self._last = step = self.played.step(torch.tensor([int(action)]))
        reward, ended = float(step.reward), bool(step.ended)
        self._return += reward
        self._length += 1
        if ended:
            self._episodes.append(Episode(self._return, self._length))
        outcome = step.observation if step.last is None else step.last
        cut = step.truncated is not None and bool(step.truncated)
        return self._array(outcome), reward, bool(step.terminated), cut, {}

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """[A]: which actions are legal; all of them, unless the environment tells."""
        assert isinstance(self.action_space, spaces.Discrete)
        legal = np.ones(int(self.action_space.n), dtype=np.bool_)
        shown = self._last.observation if self._last is not None else {}
        if isinstance(shown, dict) and ACTION_MASK in shown:
            mask = shown[ACTION_MASK][0].cpu().numpy() > 0
            return mask if mask.shape == legal.shape else legal
        return legal

    def close(self) -> None:
        """Free what the environment holds."""
        self.played.close()

    def _array(self, observation: Observation) -> Any:
        if isinstance(observation, Tensor):
            return _leaf_array(observation)
        return {self._names[name]: _leaf_array(leaf) for name, leaf in observation.items()}


def _safe_names(spec: ObservationSpec) -> dict[str, str]:
    """Entry -> its name as a module of PyTorch's, which learners read it by: that has no dots, as
    nested entries have, and is not what a dictionary of modules calls something of its own."""
    modules, names = nn.ModuleDict(), {}
    taken = set(spec_entries(spec))
    for name in spec_entries(spec):
        safe = name
        if "." in name or hasattr(modules, name):
            safe = f"entry_{name.replace('.', '_')}"
            while safe in taken:
                safe += "_"
        taken.add(safe)
        names[name] = safe
    return names


def _renamed(spec: ObservationSpec, names: dict[str, str]) -> ObservationSpec:
    if isinstance(spec, ArraySpec):
        return spec
    return {names[name]: entry for name, entry in spec.items()}


def _leaf_array(leaf: Tensor) -> Any:
    leaf = leaf[0]
    return (leaf if leaf.dtype == torch.uint8 and leaf.dim() >= 3 else leaf.float()).cpu().numpy()


def tells_legal_actions(spec: ObservationSpec, num_actions: int) -> bool:
    """Whether observations say which actions are legal."""
    mask = None if isinstance(spec, ArraySpec) else spec.get(ACTION_MASK)
    return mask is not None and mask.shape == (num_actions,)


def is_for_our_body(spec: ObservationSpec) -> bool:
    """Whether learners of other packages cannot read it well by themselves: names of things would
    be quantities to them, and stacks of images in colour are no images."""
    return any(entry.kinds or len(entry.shape) == 4 for entry in spec_entries(spec).values())


def _space(spec: ObservationSpec) -> spaces.Space[Any]:
    plain = not is_for_our_body(spec)
    if isinstance(spec, ArraySpec):
        return _leaf_space(spec, plain)
    # Learners give every image of a dictionary large convolutions, which small ones do not fit.
    return spaces.Dict(
        {
            name: _leaf_space(entry, plain and choose_body(entry) == "nature")
            for name, entry in spec.items()
        }
    )


def _leaf_space(spec: ArraySpec, image: bool = True) -> spaces.Box:
    """Byte images stay bytes, everything else is float32."""
    if spec.dtype != torch.uint8 or not spec.is_image:
        return spaces.Box(-np.inf, np.inf, spec.shape, np.float32)
    # Learners divide images by 255 if that is their maximum, but a board's cells are not colours.
    return spaces.Box(0, 255 if image and spec.scale != 1 else 254, spec.shape, np.uint8)
