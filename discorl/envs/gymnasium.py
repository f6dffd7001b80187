"""Gymnasium environments: any vector environment, whichever way it resets."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from discorl.envs.masks import tells_by_method
from discorl.envs.outcomes import Outcomes
from discorl.envs.spaces import ActionWriter, ObservationReader
from discorl.envs.vector_envs import (
    NEXT_STEP,
    SAME_STEP,
    action_meanings,
    autoreset_mode,
    end_workers,
    first_of,
    first_wrapped,
    limit_waiting,
    step_limit,
    where_raised,
)
from discorl.errors import DiscorlError
from discorl.observations import (
    ACTION_MASK,
    Observation,
    ObservationSpec,
    observation_leaves,
    spec_entries,
)
from discorl.rollout import TimeStep
from discorl.tree import tree_map

_Flags = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float32]
_WHOLE = "biu"
"""Kinds of numbers that are always finite."""
_MASKS = "; it tells which actions are legal, and --mask-actions keeps to them"


class GymnasiumEnvironment:
    """B copies from a Gymnasium vector environment.

    How it begins new episodes is read from `metadata["autoreset_mode"]`. Where an episode was cut
    off, its value continues from its last observation. A vector environment that resets in the
    same step and gives no `final_obs` for a copy hides that observation: there the value cannot
    continue, and the cut counts as an ending.

    Args:
      name: what errors call it.
      timeout: seconds worker processes have for a step or a reset before they are ended.
      discretize_actions: values in each dimension of continuous actions.
      max_episode_steps: after how many steps episodes are cut off, if they do not say so
        themselves.
      fresh: its observations are in new memory at every step, and need not be copied.
    """

    def __init__(
        self,
        vector_env: VectorEnv[Any, Any, Any],
        name: str,
        device: torch.device | str = "cpu",
        *,
        timeout: float = 60.0,
        discretize_actions: int = 0,
        max_episode_steps: int | None = None,
        fresh: bool = False,
    ) -> None:
        self.name = name
        self.max_episode_steps = max_episode_steps or step_limit(vector_env)
        self.num_envs = vector_env.num_envs
        self._env = vector_env
        self._device = torch.device(device)
        self._timeout = timeout
        try:
            self._mode = autoreset_mode(vector_env)
            self._reader = ObservationReader(vector_env.single_observation_space, fresh)
            self._writer = ActionWriter(vector_env.single_action_space, discretize_actions)
        except DiscorlError as error:
            raise DiscorlError(f"environment '{name}': {error}") from error
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space
        self.num_actions = self._writer.num_actions
        self.observation_spec: ObservationSpec = self._reader.spec
        self._masked = _tells_legal_actions(self._reader.spec, self.num_actions)
        self.offers_masks = False
        """Whether it told legal actions beside its observations, where agents do not see them."""
        self._workers = limit_waiting(vector_env, timeout)
        self._seed, self._resumed, self._steps = 0, 0, 0
        self._outcomes = Outcomes(self.num_envs)
        self._done = self._nowhere()
        """[B]: copies whose last step ended an episode, and that reset themselves in the next."""

    def reset(self, seed: int) -> TimeStep:
        """See `Environment.reset`."""
        self._seed, self._resumed = seed, 0
        return self._begin(seed)

    def step(self, actions: Tensor) -> TimeStep:
        """See `Environment.step`."""
        if tuple(actions.shape) != (self.num_envs,):
            raise ValueError(f"actions: expected [{self.num_envs}], got {list(actions.shape)}")
        self._steps += 1
        space = self._env.single_action_space
        if not self._writer.fits(space):
            raise self._error(f"its action space changed to {space}")
        shown, rewards, terminated, truncated, info = self._call(
            self._env.step, self._writer.write(actions)
        )
        observation = self._read(shown)
        reward = self._rewards(rewards)
        terminated = self._flags("terminations", terminated)
        truncated = self._flags("truncations", truncated) & ~terminated
        self._check_masks(observation, terminated | truncated)
        self._outcomes.update(info, terminated | truncated)
        if self._mode == NEXT_STEP:
            return self._idle_resets(observation, reward, terminated, truncated)
        rows = np.flatnonzero(truncated)
        if self._mode == SAME_STEP:
            rows, last = self._final_observations(info, rows)
        else:
            last = tree_map(lambda leaf: leaf[self._tensor(rows)], observation)
            observation = self._reset_done(observation, terminated | truncated)
        return self._instant_resets(observation, reward, terminated, truncated, rows, last)

    @property
    def outcomes(self) -> Outcomes:
        """What episodes came to besides their return."""
        return self._outcomes

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """What the actions are called, if the environment says so."""
        names = getattr(self._env, "action_names", None) or action_meanings(self._env)
        return names if names is not None and len(names) == self.num_actions else None

    @property
    def frames_per_second(self) -> int | None:
        """How fast its pictures are meant to be shown, if it says so."""
        said = first_of(self._env).metadata.get("render_fps")
        return int(said) if isinstance(said, int | float) and said >= 1 else None

    @property
    def renders(self) -> bool:
        """Whether it was made to draw pictures."""
        return getattr(self._env, "render_mode", None) == "rgb_array"

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The picture that the first copy draws, [rows, columns, 3]; None if it is not one."""
        drawn = self._call(self._env.render)
        picture = np.asarray(drawn[0] if isinstance(drawn, tuple | list) else drawn)
        whole = picture.ndim == 3 and picture.shape[2] == 3
        return picture.astype(np.uint8) if whole else None

    def state_dict(self) -> dict[str, Tensor]:
        """See `Environment.state_dict`: simulators cannot be saved, so only their seed is."""
        numbers = {"seed": torch.tensor(self._seed), "resumed": torch.tensor(self._resumed)}
        return numbers | self._outcomes.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> TimeStep:
        """See `Environment.load_state_dict`: begins episodes that were not played before."""
        self._seed, self._resumed = int(state["seed"]), int(state["resumed"]) + 1
        self._outcomes.load_state_dict(state)
        entropy = np.random.SeedSequence([self._seed, self._resumed])
        # Copies get consecutive seeds from it on, and some simulators take at most 31 bits.
        return self._begin(int(entropy.generate_state(1)[0] >> 2))

    def close(self) -> None:
        """See `Environment.close`."""
        self._env.close()

    def _begin(self, seed: int) -> TimeStep:
        shown, info = self._call(self._env.reset, seed=seed)
        observation = self._read(shown)
        self._check_masks(observation, self._nowhere())
        offered = ACTION_MASK in info or tells_by_method(first_wrapped(self._env))
        self.offers_masks = offered and not self._masked
        self._done = self._nowhere()
        reward = torch.zeros(self.num_envs, device=self._device)
        terminated, truncated, reset = (self._tensor(self._nowhere()) for _ in range(3))
        resets = reset if self._mode == NEXT_STEP else None
        return TimeStep(observation, reward, terminated, truncated, resets)

    def _idle_resets(
        self, observation: Observation, reward: _Floats, terminated: _Flags, truncated: _Flags
    ) -> TimeStep:
        """The next step begins the new episode and does nothing else."""
        reset, self._done = self._done, terminated | truncated
        if reset.any():
            reward[reset] = 0
            terminated, truncated = terminated & ~reset, truncated & ~reset
        return TimeStep(
            observation,
            self._tensor(reward),
            terminated=self._tensor(terminated),
            truncated=self._tensor(truncated),
            reset=self._tensor(reset),
        )

    def _instant_resets(
        self,
        observation: Observation,
        reward: _Floats,
        terminated: _Flags,
        truncated: _Flags,
        rows: npt.NDArray[np.intp],
        last: Observation,
    ) -> TimeStep:
        """The new episode has begun already: the old one's `last` observations go into `rows`."""
        cut = self._nowhere()
        cut[rows] = True
        return TimeStep(
            observation,
            self._tensor(reward),
            terminated=self._tensor((terminated | truncated) & ~cut),
            truncated=self._tensor(cut),
            last=_with_rows(observation, rows, last) if len(rows) else None,
        )

    def _final_observations(
        self, info: dict[str, Any], rows: npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.intp], Observation]:
        """Those of the rows whose last observation is in `final_obs`, and the observations."""
        final, given = info.get("final_obs"), info.get("_final_obs")
        if given is not None:
            rows = rows[np.asarray(given, dtype=np.bool_)[rows]]
        if isinstance(final, np.ndarray) and final.dtype == object:
            rows = np.array([row for row in rows if final[row] is not None], dtype=np.intp)
            read = partial(self._reader.read_each, list(final[rows]))
        else:
            # Rows of copies whose episodes continue may hold anything.
            read = partial(self._reader.read, final, rows)
        if final is None or not len(rows):
            return rows[:0], {}
        return rows, self._checked(read)

    def _reset_done(self, observation: Observation, done: _Flags) -> Observation:
        if not done.any():
            return observation
        return self._read(self._call(self._env.reset, options={"reset_mask": done})[0])

    def _read(self, shown: Any) -> Observation:
        observation = self._checked(self._reader.read, shown)
        for leaf in observation_leaves(observation).values():
            if (copies := leaf.shape[0]) != self.num_envs:
                raise self._error(f"observations of {copies} copies instead of {self.num_envs}")
        return observation

    def _check_masks(self, observation: Observation, over: _Flags) -> None:
        """Where an episode goes on, something must be legal."""
        if not self._masked:
            return
        stuck = (observation_leaves(observation)[ACTION_MASK] == 0).all(dim=1).cpu().numpy()
        if (stuck & ~over).any():
            copy = int(np.flatnonzero(stuck & ~over)[0])
            raise self._error(f"no action is legal in copy {copy}: its action_mask is all zeros")

    def _checked(self, read: Callable[..., Observation], *args: Any) -> Observation:
        try:
            return tree_map(lambda leaf: send(leaf, self._device), read(*args))
        except DiscorlError as error:
            raise self._error(str(error)) from error

    def _rewards(self, rewards: Any) -> _Floats:
        given = np.asarray(rewards)
        array = given.astype(np.float32)
        if array.shape != (self.num_envs,):
            raise self._error(f"rewards: expected [{self.num_envs}], got {list(array.shape)}")
        if given.dtype.kind not in _WHOLE and not np.isfinite(array).all():
            raise self._error(f"reward: {array[~np.isfinite(array)][0]}")
        return array

    def _flags(self, what: str, flags: Any) -> _Flags:
        array = np.array(flags, dtype=np.bool_)
        if array.shape != (self.num_envs,):
            raise self._error(f"{what}: expected [{self.num_envs}], got {list(array.shape)}")
        return array

    def _nowhere(self) -> _Flags:
        return np.zeros(self.num_envs, dtype=np.bool_)

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """An array that nobody else keeps, as a tensor."""
        return send(torch.from_numpy(array), self._device)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the vector environment answers; after a failure no workers are left behind."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            problem = self._problem(error)
            if self._workers is not None:
                end_workers(self._workers)
            raise problem from error

    def _problem(self, error: Exception) -> DiscorlError:
        if isinstance(error, DiscorlError):
            return self._error(str(error))
        if isinstance(error, multiprocessing.TimeoutError) and self._workers is not None:
            pipes = enumerate(self._workers.parent_pipes)
            silent = [str(i) for i, pipe in pipes if pipe is not None and not pipe.poll(0)]
            return DiscorlError(
                f"environment '{self.name}': copy {', '.join(silent)} did not answer within "
                f"{self._timeout:g} seconds at step {self._steps}; its processes were ended. "
                "If it is slow rather than stuck, give a longer timeout"
            )
        if isinstance(error, EOFError | ConnectionError) and self._workers is not None:
            dead = [str(i) for i, p in enumerate(self._workers.processes) if not p.is_alive()]
            return DiscorlError(
                f"environment '{self.name}': the process of copy {', '.join(dead) or '?'} died at "
                f"step {self._steps}; without --env-workers its last words can be seen"
            )
        return DiscorlError(
            f"environment '{self.name}' raised {type(error).__name__}: {error}"
            f"{where_raised(error)} at step {self._steps}{_MASKS if self.offers_masks else ''}"
        )

    def _error(self, problem: str) -> DiscorlError:
        return DiscorlError(f"environment '{self.name}': {problem} at step {self._steps}")


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """What an environment on the host shows, on the agent's device.

    To a GPU, through memory that it can read by itself: nobody waits for the copy.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _with_rows(
    observation: Observation, rows: npt.NDArray[np.intp], last: Observation
) -> Observation:
    """A copy of [B, ...] with `last` [len(rows), ...] in some rows."""
    copy, parts = tree_map(torch.clone, observation), observation_leaves(last)
    for name, leaf in observation_leaves(copy).items():
        leaf[torch.as_tensor(rows, device=leaf.device)] = parts[name]
    return copy


def _tells_legal_actions(spec: ObservationSpec, num_actions: int) -> bool:
    entries = spec_entries(spec)
    mask = entries.get(ACTION_MASK)
    for name, entry in entries.items():
        if mask is None and name.endswith(f".{ACTION_MASK}") and entry.shape == (num_actions,):
            warnings.warn(
                f"observation entry '{name}': it masks no actions, because it is inside of another "
                f"one; a mask is an entry '{ACTION_MASK}' of the whole observation",
                stacklevel=2,
            )
    if mask is not None and mask.shape != (num_actions,):
        warnings.warn(
            f"observation entry '{ACTION_MASK}': it has the shape {list(mask.shape)}, but there "
            f"are {num_actions} actions, so it masks none of them",
            stacklevel=2,
        )
        return False
    return mask is not None
