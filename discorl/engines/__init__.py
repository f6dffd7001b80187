"""Where calls run that do not depend on each other: on this machine, on Ray, on Slurm."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from discorl.engines.base import Engine, Failure, run_calls
from discorl.errors import DiscorlError, UnknownNameError
from discorl.extras import install_line

__all__ = ["Engine", "EngineName", "Failure", "make_engine", "run_calls"]

EngineName = Literal["local", "ray", "slurm"]
_PACKAGES = {"ray": "ray", "slurm": "submitit"}
"""Engine, which is also the name of its extra -> the package that it needs."""


def make_engine(
    name: str,
    jobs: int | None,
    options: Mapping[str, str],
    folder: Path,
) -> Engine:
    """An engine by name; DiscorlError for a wrong option or a missing package.

    Args:
      jobs: how many calls run at once; by default as many as there is room for.
      options: the engine's own settings, as texts; docs/scaling.md lists them.
      folder: where the engine may keep files of its own.
    """
    if name not in get_args(EngineName):
        raise UnknownNameError("engine", name, get_args(EngineName))
    if jobs is not None and jobs < 1:
        raise DiscorlError("--jobs: expected at least 1")
    try:
        module = importlib.import_module(f"discorl.engines.{name}")
    except ModuleNotFoundError as error:
        if error.name != _PACKAGES.get(name):
            raise
        raise DiscorlError(f"--engine {name} needs {error.name}: {install_line(name)}") from error
    engine: Engine = module.make_engine(jobs, options, folder)
    return engine
