"""External environments, by Gymnasium id or by the name of a function that makes one."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import torch
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from discorl.envs.base import Environment, EnvironmentConfig
from discorl.envs.checked import CheckedEnv
from discorl.envs.gymnasium import GymnasiumEnvironment
from discorl.envs.masks import with_masks
from discorl.envs.vector_envs import step_limit, where_raised
from discorl.envs.worlds import hint_of_world
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line
from discorl.settings import guess_value, split_settings

_EXTRAS = {"ALE": ("ale_py", "atari"), "MinAtar": ("minatar", "minatar")}
"""Namespaces of environments in packages of their own -> package, and the extra that brings it."""
_PACKAGES = {
    "MiniGrid": "minigrid",
    "BabyAI": "minigrid",
    "MiniWorld": "miniworld",
    "highway": "highway_env",
    "merge": "highway_env",
    "PyBulletEnv": "pybullet_envs_gymnasium",
}
"""How ids of well-known packages begin -> the module that registers them."""


def make_gymnasium(
    spec: str,
    make: Callable[[], Any],
    num_envs: int,
    device: torch.device | str = "cpu",
    config: EnvironmentConfig | None = None,
) -> Environment:
    """Build `num_envs` copies of a Gymnasium environment.

    Args:
      spec: what errors call it.
      make: returns a `gymnasium.Env`, or a `VectorEnv` of `num_envs` copies.
    """
    config = config or EnvironmentConfig()
    if num_envs < 1:
        raise DiscorlError(f"environment '{spec}': expected at least 1 copy, got {num_envs}")
    if config.mask_actions:
        make = partial(_make_masked, make, config.discretize_actions)
    vector_env, limit = _made(spec, lambda: _vectorise(spec, make, num_envs, config.env_workers))
    try:
        return GymnasiumEnvironment(
            vector_env,
            spec,
            device,
            timeout=config.env_timeout,
            discretize_actions=config.discretize_actions,
            max_episode_steps=limit,
        )
    except DiscorlError:
        vector_env.close()
        raise


def _vectorise(
    spec: str, make: Callable[[], Any], num_envs: int, workers: bool
) -> tuple[VectorEnv[Any, Any, Any], int | None]:
    """All copies, and the time limit of one, which cannot be asked once it is in a worker."""
    first = _make_one(spec, make)
    if isinstance(first, VectorEnv):
        if first.num_envs != num_envs:
            first.close()
            raise DiscorlError(
                f"environment '{spec}' has {first.num_envs} copies, expected {num_envs}; give "
                f"--num-envs {first.num_envs}, or return a single environment"
            )
        return first, None  # It can be asked itself.
    limit = step_limit(first)
    if workers:
        first.close()
        make_one = partial(_make_in_worker, os.getpid(), spec, make)
        return AsyncVectorEnv([make_one] * num_envs), limit
    envs = [first, *(_make_one(spec, make) for _ in range(num_envs - 1))]
    if len({id(env.unwrapped) for env in envs}) < num_envs:
        raise DiscorlError(f"environment '{spec}': it must return a new environment at each call")
    return SyncVectorEnv([partial(_given, env) for env in envs]), limit


def _make_masked(make: Callable[[], Any], discretize_actions: int) -> Any:
    return with_masks(make(), discretize_actions)


def _make_in_worker(main: int, spec: str, make: Callable[[], Any]) -> Any:
    """One environment in a worker process; the main process makes one too, to see its spaces."""
    if os.getpid() != main:
        # Ctrl-C goes to all processes, but it is the main one that stops, after its step. Its
        # signal handlers are inherited, and would keep workers from being ended.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return _PlaceOfErrors(_make_one(spec, make))
    return _make_one(spec, make)


class _PlaceOfErrors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Errors say where they were raised: their tracebacks stay behind in the worker."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        with _place_told():
            return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        with _place_told():
            return super().step(action)


@contextmanager
def _place_told() -> Iterator[None]:
    try:
        yield
    except DiscorlError:
        raise
    except Exception as error:
        error.args = (f"{error}{where_raised(error)}",)
        raise


def _given(env: CheckedEnv) -> CheckedEnv:
    return env


def _make_one(spec: str, make: Callable[[], Any]) -> Any:
    """What the function makes: a vector environment, or a single one with checks around it."""
    env = make()
    if isinstance(env, VectorEnv):
        return env
    if not isinstance(env, gymnasium.Env):
        raise DiscorlError(
            f"environment '{spec}': expected a gymnasium.Env or VectorEnv, got {type(env).__name__}"
        )
    try:
        return CheckedEnv(env)
    except DiscorlError as error:
        raise DiscorlError(f"environment '{spec}': {error}") from error


def _hint(spec: str) -> str:
    """What may be missing, if Gymnasium does not know an id."""
    package = _PACKAGES.get(re.split(r"[-/]", spec.partition(":")[0])[0])
    if ":" in spec:
        return ""
    if package:
        return f"It is of another package: pip install {package}, and give {package}:{spec}."
    return hint_of_world(spec) or "If another package registers it, give package:id."


def _made(spec: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except DiscorlError:
        raise
    except gymnasium.error.UnregisteredEnv as error:
        raise UnknownNameError("environment", spec, [], f"{error} {_hint(spec)}") from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise DiscorlError(f"environment '{spec}': a package is missing: {error}") from error
    except Exception as error:
        raise DiscorlError(
            f"environment '{spec}' could not be made: {type(error).__name__}: {error}"
            f"{where_raised(error)}"
        ) from error


def find_maker(spec: str, config: EnvironmentConfig | None = None) -> Callable[[], Any]:
    """What makes the environment that `spec` names.

    Args:
      spec: an id that Gymnasium knows, `CartPole-v1`, with the module that registers it before a
        colon where needed, `minigrid:MiniGrid-Empty-5x5-v0`; or `module:function`. Modules are
        looked for in the current directory too.
      config: its keyword arguments and wrappers.
    """
    return with_settings(_find(spec), config or EnvironmentConfig())


def with_settings(make: Callable[..., Any], config: EnvironmentConfig) -> Callable[[], Any]:
    """What makes the environment with the configured keyword arguments and wrappers."""
    texts = split_settings(config.env_kwargs, "--env-kwargs")
    kwargs = {name: guess_value(text) for name, text in texts.items()}
    if kwargs:
        _check_kinds(make, kwargs)
    return with_wrappers(partial(make, **kwargs) if kwargs else make, config)


def _check_kinds(make: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Raise DiscorlError for a text where the default is a truth value or a number: `fals` would
    count as true."""
    for name, default in _defaults(make).items():
        given = kwargs.get(name)
        if not isinstance(given, str) or not isinstance(default, bool | int | float):
            continue
        expected = "true or false" if isinstance(default, bool) else "a number"
        raise DiscorlError(f"--env-kwargs {name}={given}: expected {expected}")


def _defaults(make: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of what makes an environment, as far as they can be known."""
    try:
        if isinstance(make, partial) and make.func is _make_registered:
            entry: Any = gymnasium.spec(*make.args).entry_point
            make = load_env_creator(entry) if isinstance(entry, str) else entry
        parameters = inspect.signature(make).parameters
    except Exception:  # Whatever is wrong with it is told when it is made.
        return {}
    return {name: parameter.default for name, parameter in parameters.items()}


def with_wrappers(make: Callable[[], Any], config: EnvironmentConfig) -> Callable[[], Any]:
    """What makes the same environment with the configured wrappers around it."""
    wrappers = [_import("--env-wrappers", *_split_name(name)) for name in config.env_wrappers]
    return partial(_make_wrapped, make, wrappers) if wrappers else make


def _make_wrapped(make: Callable[[], Any], wrappers: list[Callable[[Any], Any]]) -> Any:
    env = make()
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def _split_name(name: str) -> tuple[str, str]:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise DiscorlError(f"--env-wrappers {name}: expected module:Class")
    return module, attribute


def _find(spec: str) -> Callable[..., Any]:
    _look_here()
    module, _, function = spec.partition(":")
    if function.isidentifier():
        return _import(spec, module, function)
    return partial(_make_registered, spec)


def _make_registered(env_id: str, **kwargs: Any) -> Any:
    """One environment by its id; in a worker too, which may have imported nothing yet."""
    package, extra = _EXTRAS.get(env_id.partition("/")[0], (None, None))
    if package is not None:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise DiscorlError(
                f"environment '{env_id}' needs a package: {install_line(extra)}"
            ) from error
    return gymnasium.make(env_id, **kwargs)


def _look_here() -> None:
    """Let modules in the current directory be found, by worker processes too."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)


def _import(spec: str, module: str, function: str) -> Callable[..., Any]:
    _look_here()
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise DiscorlError(
            f"environment '{spec}': module '{module}' could not be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(found, function, None)):
        known = [k for k, v in vars(found).items() if callable(v) and not k.startswith("_")]
        raise UnknownNameError(f"function of module {module}", function, known)
    return getattr(found, function)  # type: ignore[no-any-return]
