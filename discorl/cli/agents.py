"""Which agent a path on the command line means."""

from __future__ import annotations

from pathlib import Path

from discorl.errors import DiscorlError
from discorl.runs.config import RunConfig
from discorl.runs.folder import CHECKPOINTS
from discorl.training.agent import TrainedAgent, agent_file
from discorl.training.handle import Run, load_agent


def find_run(path: Path, checkpoint: str) -> tuple[Run | None, str]:
    """The run, and which of its agents is meant; no run if the path is of a file with one agent."""
    chosen = checkpoint != "newest"
    if agent_file(path) is not None:
        if chosen:
            raise DiscorlError("--checkpoint: a file holds one agent; drop it")
        return None, checkpoint
    if path.parent.name == CHECKPOINTS:
        if chosen:
            raise DiscorlError("--checkpoint: the path names one already; drop it")
        return Run(path.parent.parent), path.name
    return Run(path), checkpoint


def find_agent(path: Path, checkpoint: str, device: str | None = None) -> TrainedAgent:
    """The agent, on a device; by default where its run computed."""
    run, checkpoint = find_run(path, checkpoint)
    if run is not None:
        return run.load_agent(checkpoint, device)
    agent = load_agent(path)
    return agent if device is None else agent.to(RunConfig(device=device).torch_device)
