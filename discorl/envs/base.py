"""What training needs from an environment: many copies at once, which reset themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from discorl.observations import ObservationSpec
from discorl.rollout import TimeStep
from discorl.settings import Natural, Positive, check_fields

MAX_STEPS = 3_000
"""After how many steps whoever plays gives an episode up, where no time limit is known."""


@dataclass(frozen=True)
class EnvironmentConfig:
    """How an environment is run."""

    normalize_observations: bool = False
    """Shift and scale observations other than images to mean 0 and deviation 1, as seen so far."""
    discretize_actions: Natural = 0
    """Values to choose from in each dimension of continuous actions; 0 refuses such actions."""
    env_workers: bool = False
    """Run each copy of a Gymnasium environment in its own process; worth it if steps are slow."""
    env_kwargs: tuple[str, ...] = ()
    """Keyword arguments of a Gymnasium environment, or of the function that makes it:
    is_slippery=false map_name=8x8."""
    env_wrappers: tuple[str, ...] = ()
    """Wrappers of a Gymnasium environment, innermost first: module:Class, called with the
    environment."""
    mask_actions: bool = False
    """Take only actions that the environment calls legal, in info["action_mask"] or by a method
    action_masks(). An entry `action_mask` among the observations always counts."""
    env_timeout: Positive = 60.0
    """Seconds that a process of --env-workers has to answer before it is ended."""

    def __post_init__(self) -> None:
        check_fields(self)


class Environment(Protocol):
    """B copies of a task with A discrete actions."""

    num_envs: int
    num_actions: int
    observation_spec: ObservationSpec

    def reset(self, seed: int) -> TimeStep:
        """Start afresh, with every random choice fixed by the seed; nothing has ended."""
        ...

    def step(self, actions: Tensor) -> TimeStep:
        """Act in every copy: integer actions [B]."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Everything needed to resume exactly from here, or as nearly as possible."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> TimeStep | None:
        """Resume from what `state_dict` returned.

        Returns None if everything is as it was. An environment that cannot be restored begins new
        episodes and returns their first step.
        """
        ...

    def close(self) -> None:
        """Free what the environment holds: processes, windows."""
        ...
