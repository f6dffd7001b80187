"""A training run in Python: its agent, resuming, evaluating, plotting."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import nn

from discorl.envs.sources import AnyEnvironment, EnvironmentSource, find_environment
from discorl.errors import DiscorlError
from discorl.files import read_json
from discorl.life.playing import AgentPolicy, Evaluation, Watch, evaluate_policy
from discorl.rules.base import UpdateRule
from discorl.runs.checkpoint import (
    Checkpoint,
    find_checkpoint,
    load_latest,
    read_checkpoint,
)
from discorl.runs.config import RunConfig
from discorl.runs.display import counting_in_python, shown_in_python
from discorl.runs.folder import CHECKPOINTS, CURVE_FILE
from discorl.runs.handle import RunFolder
from discorl.runs.plots import EPISODE_RETURN, plot_curves, read_curve
from discorl.runs.session import Callback
from discorl.settings import Count, Seed, check_value
from discorl.training.agent import (
    BEST_AGENT_FILE,
    TrainedAgent,
    agent_file,
    agent_of,
    assemble_agent,
    read_agent,
    video_settings,
)
from discorl.training.blueprint import AGENT_FILE, DAMAGE, Blueprint
from discorl.training.config import TrainConfig
from discorl.training.start import Given, load_trainer, read_config, resume_run
from discorl.training.trainer import EVALUATION_SEED
from discorl.tree import split_groups
from discorl.watching.recording import Show
from discorl.watching.video import Video

SHOWN = {
    "charts/episode_return": "return",
    "rule/entropy": "entropy",
    "losses/total_loss": "loss",
    "losses/pi_loss": "policy loss",
    "losses/pg_loss": "policy-gradient loss",
    "losses/value_loss": "value loss",
    "losses/q_loss": "value loss",
    "eval/return_greedy": "evaluation, greedy",
    "eval/return_sampled": "evaluation, sampled",
    "charts/env_steps": "environment steps",
    "time/steps_per_second": "steps/s",
}
"""Metrics that a display shows, and what it calls them."""


class Run(RunFolder):
    """A training run.

    Args:
      folder: its folder.
      env: what was passed to `discorl.train` as an object, and cannot be made again from the run's
        settings.
      rule: likewise.
      network: likewise.
    """

    def __init__(
        self,
        folder: str | Path,
        env: AnyEnvironment | None = None,
        rule: UpdateRule | None = None,
        network: nn.Module | None = None,
    ) -> None:
        super().__init__(folder)
        self._env, self._rule, self._network = env, rule, network

    @property
    def config(self) -> TrainConfig:
        """Its settings."""
        return read_config(self.folder)

    @property
    def agent(self) -> TrainedAgent:
        """The agent of the newest checkpoint."""
        return load_agent(self.folder, self._network)

    def resume(
        self,
        steps: int | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Run:
        """Resume from the newest checkpoint, optionally to a new number of steps."""
        with shown_in_python(progress, SHOWN) as observer:
            resume_run(self.folder, steps, observer, callbacks, self._given())
        return self

    @property
    def best_agent(self) -> TrainedAgent:
        """The agent that did best in the run's own evaluations, which `eval_every` asks for."""
        return self.load_agent("best")

    def load_agent(
        self, checkpoint: str | int = "newest", device: str | None = None
    ) -> TrainedAgent:
        """One of the run's agents.

        Args:
          checkpoint: `newest`, `best`, or the step of a checkpoint.
          device: where it is to compute; by default where the run did.
        """
        path = self.folder
        if checkpoint == "best":
            path = self.folder / BEST_AGENT_FILE
            if not path.exists():
                raise DiscorlError(
                    f"{self.folder} has no best agent: its run made no evaluations on the way; "
                    "--eval-every asks for them"
                )
        elif checkpoint != "newest":
            path = find_checkpoint(self.folder / CHECKPOINTS, checkpoint)
        run = self.config.run
        agent = load_agent(path, self._network)
        return agent.to((run if device is None else RunConfig(device=device)).torch_device)

    def evaluate(
        self,
        episodes: int | None = None,
        deterministic: bool = False,
        *,
        checkpoint: str | int = "newest",
        seed: int | None = None,
        device: str | None = None,
        max_steps: int | None = None,
        watch: Watch | None = None,
        env: AnyEnvironment | None = None,
    ) -> Evaluation:
        """Play whole episodes with one of the run's agents, in environments of their own.

        Args:
          env: another environment than the run's, such as one with levels to test on.
          deterministic: always the likeliest action.
          checkpoint: see `load_agent`.
          device: see `load_agent`.
          seed: by default as in the run's own evaluations.
          max_steps: of an episode; by default as in the run's own evaluations.
          watch: called after each step with the number of finished episodes and the total; True
            ends the evaluation.
        """
        episodes = check_value("episodes", Count | None, episodes)
        seed = check_value("seed", Seed | None, seed)
        max_steps = check_value("max_steps", Count | None, max_steps)
        config, agent = self.config, self.load_agent(checkpoint, device)
        own = self._given().source if env is None else None
        source = own or find_environment(
            config.env if env is None else env, agent.device, config.life.environment
        )
        episodes = episodes or config.eval_episodes
        copies = episodes if source.cheap else config.life.experience.num_envs
        with closing(agent.watching(source.make(copies))) as env:
            agent.check_fits(env)
            return evaluate_policy(
                AgentPolicy(agent.agent, agent.params, deterministic),
                env,
                EVALUATION_SEED + config.seed if seed is None else seed,
                episodes,
                max_steps or config.eval_max_steps,
                watch,
            )

    def watch(
        self,
        episodes: int = 1,
        deterministic: bool = False,
        *,
        progress: bool | None = None,
        checkpoint: str | int = "newest",
        seed: int | None = None,
        device: str | None = None,
        max_steps: int | None = None,
        **settings: Any,
    ) -> Video:
        """A video of one of the run's agents at play, in the run's environment.

        Args:
          progress: whether to show it; by default in a terminal or a notebook.
          **settings: as for `TrainedAgent.watch`; the other arguments are as for `evaluate`.
        """
        episodes = check_value("episodes", Count, episodes)
        chosen = video_settings(settings)
        show = self.show(deterministic, checkpoint, seed, device, max_steps)
        with counting_in_python(progress, "recording") as tell:
            return show.film(episodes, chosen, tell)

    def show(
        self,
        deterministic: bool = False,
        checkpoint: str | int = "newest",
        seed: int | None = None,
        device: str | None = None,
        max_steps: int | None = None,
    ) -> Show:
        """One of the run's agents, ready to be watched; arguments as for `evaluate`."""
        config, agent = self.config, self.load_agent(checkpoint, device)
        return agent.show(
            config.env if self._env is None else self._env,
            config.life.environment,
            seed=EVALUATION_SEED + config.seed if seed is None else seed,
            deterministic=deterministic,
            max_steps=max_steps or config.eval_max_steps,
        )

    def plot(self, out: str | Path | None = None, metric: str = EPISODE_RETURN) -> Path:
        """Draw the learning curve, by default in the run's `curve.png`; returns its path."""
        path = self.folder / CURVE_FILE if out is None else Path(out)
        plot_curves([read_curve(self.folder, metric)], path, metric)
        return path

    def _given(self) -> Given:
        source: EnvironmentSource | None = None
        if self._env is not None:
            config = self.config
            source = find_environment(self._env, config.run.torch_device, config.life.environment)
        return Given(self._rule, source, self._network)


def load_agent(path: str | Path, network: nn.Module | None = None) -> TrainedAgent:
    """A trained agent, ready to act.

    Args:
      path: a run folder, for its newest checkpoint; or one of its checkpoints; or a file that
        `TrainedAgent.save` wrote; or a folder that `discorl pack` wrote.
      network: the module, if the agent's network is one of your own.
    """
    path = Path(path)
    if (file := agent_file(path)) is not None:
        return read_agent(file, network)
    folder, checkpoint = _find_checkpoint(path)
    config = read_config(folder)
    if not (folder / AGENT_FILE).exists():  # A run of version 0.1.
        with closing(load_trainer(folder, config, checkpoint=checkpoint)) as trainer:
            return agent_of(trainer.life, config, trainer.step)
    try:
        blueprint = Blueprint.from_json(read_json(folder / AGENT_FILE))
    except DAMAGE as error:
        raise DiscorlError(f"{folder / AGENT_FILE} is damaged: {error!r}") from error
    groups = split_groups(checkpoint.tensors)
    info = {"env": config.env, "rule": config.rule, "seed": config.seed, "steps": checkpoint.step}
    normalizer = split_groups(groups.get("env", {})).get("normalizer")
    params = split_groups(groups.get("learner", {})).get("params", {})
    return assemble_agent(blueprint, params, normalizer, info, network)


def _find_checkpoint(path: Path) -> tuple[Path, Checkpoint]:
    """The run folder, and the checkpoint that is meant."""
    if path.parent.name == CHECKPOINTS:
        return path.parent.parent, read_checkpoint(path)
    read_config(path)  # Raises if the folder holds no run.
    checkpoint = load_latest(path / CHECKPOINTS)
    if checkpoint is None:
        raise DiscorlError(f"{path} has no intact checkpoint yet")
    return path, checkpoint
