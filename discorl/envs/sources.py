"""Where copies of an environment come from: a name, an object, or a function that makes one."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import gymnasium
import torch
from gymnasium.vector import VectorEnv

from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.external import make_gymnasium, with_settings, with_wrappers
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.masks import with_masks
from discorl.envs.registry import GIVEN, is_external, make_environment, name_game
from discorl.envs.tensor import TensorEnvironment
from discorl.errors import DiscorlError

AnyEnvironment = (
    str | Environment | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | Callable[[], Any]
)
"""What can be trained in: a name, an object, or a function without arguments that makes one."""


@dataclass(frozen=True)
class EnvironmentSource:
    """Makes environments of any number of copies."""

    name: str
    """What a run's settings call it. Names that begin with `given:` mean nothing to another
    process: the object must be passed again."""
    make: Callable[[int], Environment]
    cheap: bool = False
    """Whether many copies cost little."""
    num_envs: int | None = None
    """The number of copies, if it is fixed."""


def find_environment(
    env: AnyEnvironment,
    device: torch.device | str = "cpu",
    config: EnvironmentConfig | None = None,
) -> EnvironmentSource:
    """The source of an environment, however it is given."""
    config = config or EnvironmentConfig()
    if isinstance(env, str):
        make = partial(make_environment, env, device=device, config=config)
        return EnvironmentSource(env, make, cheap=not is_external(env))
    if isinstance(env, TensorEnvironment):
        return EnvironmentSource(
            name_game(env.game), partial(TensorEnvironment, env.game, device=device), cheap=True
        )
    name = environment_name(env)
    if not callable(env):
        _refuse_settings(env, config)
    if isinstance(env, VectorEnv):
        env = with_masks(env) if config.mask_actions else env
        env = GymnasiumEnvironment(
            env,
            name,
            device,
            timeout=config.env_timeout,
            discretize_actions=config.discretize_actions,
        )
    if is_environment(env):
        return EnvironmentSource(name, partial(_copy_of, env, name), num_envs=env.num_envs)
    if isinstance(env, gymnasium.Env):
        maker: Callable[[], Any] = with_wrappers(partial(_copied, env, name), config)
    elif callable(env):
        maker = with_settings(env, config)
    else:
        raise DiscorlError(
            f"env: expected a name, an environment or a function that makes one, got {name}"
        )
    return EnvironmentSource(name, partial(_make_from, name, maker, device, config))


def _refuse_settings(env: Any, config: EnvironmentConfig) -> None:
    """Raise DiscorlError for settings that would be ignored."""
    if config.env_kwargs:
        raise DiscorlError("env_kwargs: the environment is made already; give what makes it")
    if config.env_wrappers and not isinstance(env, gymnasium.Env):
        raise DiscorlError("env_wrappers: they go around single environments; give a function")


def environment_name(env: AnyEnvironment) -> str:
    """A name from which the environment can be made again, or one that says that it cannot."""
    if isinstance(env, str):
        return env
    if isinstance(env, TensorEnvironment):
        return name_game(env.game)
    if isinstance(env, gymnasium.Env | VectorEnv):
        # An id would not tell of wrappers and changes; the object must be passed again.
        spec = getattr(env.unwrapped, "spec", None)
        return GIVEN + (spec.id if spec is not None else type(env.unwrapped).__name__)
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", "")
    if module not in (None, "__main__") and name.isidentifier() and callable(env):
        found = getattr(sys.modules.get(module), name, None)
        if found is env:
            return f"{module}:{name}"
    return GIVEN + (name.rpartition(".")[2].strip("<>") or type(env).__name__)


def is_environment(env: Any) -> TypeGuard[Environment]:
    """Whether it is one of our environments: B copies at once."""
    return hasattr(env, "observation_spec") and hasattr(env, "num_actions")


def _copy_of(env: Environment, name: str, num_envs: int) -> Environment:
    """A copy of an environment, which the user may still need as it is."""
    if num_envs != env.num_envs:
        raise DiscorlError(
            f"env: it has {env.num_envs} copies, expected {num_envs}; give num_envs={env.num_envs}"
        )
    copied: Environment = _copied(env, name)
    return copied


def _copied(env: Any, name: str) -> Any:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise DiscorlError(
            f"env: {name.removeprefix(GIVEN)} cannot be copied, and several copies are needed, for "
            f"evaluations too ({type(error).__name__}: {error}): give a function that makes it"
        ) from error


def _make_from(
    name: str,
    make: Callable[[], Any],
    device: torch.device | str,
    config: EnvironmentConfig,
    num_envs: int,
) -> Environment:
    """What a function makes, once or `num_envs` times."""
    made = [make()]
    if is_environment(made[0]):
        if made[0].num_envs != num_envs:
            raise DiscorlError(
                f"env: {name} makes {made[0].num_envs} copies, expected {num_envs}; give "
                f"num_envs={made[0].num_envs}"
            )
        return made[0]
    return make_gymnasium(name, lambda: made.pop() if made else make(), num_envs, device, config)
