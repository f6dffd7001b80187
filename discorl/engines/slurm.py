"""Slurm, through submitit: each call is a job of an array."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import submitit
from submitit.core.utils import FailedSubmissionError
from submitit.helpers import Checkpointable

from discorl.engines.base import Failure, WorkerDied
from discorl.engines.options import RETRIES, cores, read_options
from discorl.errors import DiscorlError
from discorl.settings import Natural, field_types, guess_value

_DEFAULTS = {"name": "discorl", "timeout_min": 240, "mem_gb": 4, "cpus_per_task": 1}
_SECONDS_FOR_RESULTS = 15.0
"""A shared disk may show a job's result a while after its end."""


@dataclass(frozen=True)
class SlurmOptions:
    """What can be set, beside submitit's own parameters."""

    cluster: str = "slurm"
    """`local` runs the jobs on this machine."""
    folder: str | None = None
    """Where submitit keeps jobs, logs and results; all machines must see it."""
    retries: Natural = RETRIES


def make_engine(jobs: int | None, options: Mapping[str, str], folder: Path) -> SlurmEngine:
    """What is no option of ours is a parameter of submitit, under its name there."""
    known = field_types(SlurmOptions)
    ours = {name: text for name, text in options.items() if name in known}
    read = read_options(SlurmOptions, ours, "slurm")
    theirs = {name: guess_value(text) for name, text in options.items() if name not in known}
    if jobs is not None:
        theirs.setdefault("slurm_array_parallelism", jobs)
    place = Path(read.folder) if read.folder else folder / "jobs"
    return SlurmEngine(jobs, read.cluster, place, _DEFAULTS | theirs, read.retries)


class SlurmEngine:
    """Slurm queues the jobs; without it, they are handed out one for each core."""

    def __init__(
        self,
        jobs: int | None,
        cluster: str,
        folder: Path,
        parameters: Mapping[str, Any],
        retries: int,
    ) -> None:
        self.retries = retries
        self._jobs = jobs or (cores() if cluster == "local" else None)
        self._cluster, self._folder = cluster, folder
        self._parameters = parameters
        self._executor: submitit.AutoExecutor | None = None
        self._unfinished: set[Any] = set()
        self._ended: dict[Any, float] = {}
        with TemporaryDirectory() as elsewhere:  # Mistakes are told before any work begins.
            self._make_executor(Path(elsewhere))

    def _make_executor(self, folder: Path) -> submitit.AutoExecutor:
        try:
            # A job begins anew after a preemption, but not if it takes too long: it would again.
            executor = submitit.AutoExecutor(folder, self._cluster, slurm_max_num_timeout=0)
            executor.update_parameters(**self._parameters)
        except (AssertionError, NameError, RuntimeError, ValueError) as error:
            raise DiscorlError(f"--engine slurm: {error}") from error
        return executor

    @property
    def room(self) -> int | None:
        """See `Engine`."""
        return self._jobs if self._cluster == "local" else None

    @property
    def title(self) -> str:
        """See `Engine`."""
        return f"as jobs of {self._cluster}" + (f", {self._jobs} at once" if self._jobs else "")

    def open(self) -> None:
        """Make the folder."""
        self._executor = self._make_executor(self._folder)

    def submit(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        """See `Engine`."""
        assert self._executor is not None
        try:
            jobs = self._executor.map_array(_Call(function), tasks)
        except FailedSubmissionError as error:
            raise DiscorlError(f"--engine slurm: {error}") from error
        self._unfinished.update(jobs)
        return list(jobs)

    def wait(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        """See `Engine`."""
        ended = [job for job in calls if self._has_ended(job)]
        if not ended:
            time.sleep(seconds)
        return ended

    def _has_ended(self, job: Any) -> bool:
        """Whether a job is over, and its result here or given up."""
        if not job.done():
            return False
        patience = 0.0 if self._cluster == "local" else _SECONDS_FOR_RESULTS
        since = self._ended.setdefault(job, time.monotonic())
        return _has_result(job) or time.monotonic() - since >= patience

    def result(self, call: Any) -> Any:
        """See `Engine`."""
        self._unfinished.discard(call)
        self._ended.pop(call, None)
        if not _has_result(call):
            raise WorkerDied(f"the job died, {call.state.lower()}: see {call.paths.stderr}")
        error = call.exception()
        if error is None:
            return call.result()
        return Failure(f"the job failed: see {call.paths.stderr}", str(error))

    def close(self) -> None:
        """See `Engine`."""
        jobs, self._unfinished = self._unfinished, set()
        for job in jobs:
            job.cancel(check=False)
        deadline = time.monotonic() + _SECONDS_FOR_RESULTS
        while self._cluster == "local" and jobs and time.monotonic() < deadline:
            jobs = {job for job in jobs if not job.done()}
            time.sleep(0.05)


class _Call(Checkpointable):
    """A function that Slurm may interrupt: it is then queued once more."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, task: Any) -> Any:
        return self._function(task)


def _has_result(job: Any) -> bool:
    return bool(job.paths.result_pickle.exists())
