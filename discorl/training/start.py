"""How a training run begins in a folder, and how it is taken up again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from discorl.envs.sources import EnvironmentSource
from discorl.errors import DiscorlError
from discorl.files import write_json
from discorl.group import SOLO, Group
from discorl.library.catalogue import load_rule, parameter_count, save_rule
from discorl.library.formats import SUFFIXES
from discorl.processes import join_group
from discorl.rules.base import UpdateRule
from discorl.runs.checkpoint import Checkpoint, load_latest
from discorl.runs.folder import (
    CHECKPOINTS,
    CONFIG_FILE,
    RULE_FILE,
    check_new,
    discard,
    new_folder,
    read_settings,
    require_kind,
    writing_to,
)
from discorl.runs.session import Callback, Observer
from discorl.settings import change
from discorl.training.blueprint import AGENT_FILE, blueprint_of
from discorl.training.config import TrainConfig
from discorl.training.presets import without_preset
from discorl.training.run import TrainingRun
from discorl.training.trainer import Trainer


@dataclass(frozen=True)
class Given:
    """What a run is given as objects, which its settings can only name."""

    rule: UpdateRule | None = None
    source: EnvironmentSource | None = None
    network: nn.Module | None = None


def start_run(
    config: TrainConfig,
    folder: Path,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
) -> dict[str, Any]:
    """Train from scratch in a new folder and return what `result.json` holds.

    In a group of processes only the leading one writes, calls back and returns a result.
    """
    with (
        join_group(config.run.torch_device, config.run.process_timeout) as group,
        new_run(config, folder, observer, callbacks, given, group) as run,
    ):
        return run.run()


@contextmanager
def new_run(
    config: TrainConfig,
    folder: Path,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
    group: Group = SOLO,
) -> Iterator[TrainingRun]:
    """A run that has not begun, in a new folder that is its own as long as it is entered."""
    given = given or Given()
    check_new(folder)
    group.wait()  # Nobody may find the folder that the leading process now makes.
    with new_folder(folder) if group.leads else nullcontext():
        rule = given.rule or load_rule(config.rule)
        with closing(Trainer(config, rule, given.source, given.network, group)) as trainer:
            if group.leads:
                write_json(folder / AGENT_FILE, blueprint_of(trainer.life).to_json())
                if parameter_count(rule):
                    save_rule(rule, folder / RULE_FILE)
                # Last, because it says that all else is there.
                write_json(folder / CONFIG_FILE, config.to_json())
            try:
                yield TrainingRun(trainer, folder, observer or Observer(), callbacks)
            except DiscorlError:
                if not trainer.step and group.leads:
                    discard(folder)  # There is nothing to resume; the name may be used again.
                raise


def resume_run(
    folder: Path,
    steps: int | None = None,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    given: Given | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Resume a run from its newest intact checkpoint, or from its start if it has none; on any
    number of processes, exactly if it is the number that made the checkpoint.

    Args:
      steps: a new number of steps, to train longer than first planned.
      threads: another number of them; by default the run's own setting.
    """
    folder = Path(folder)
    config = read_config(folder)
    with (
        join_group(config.run.torch_device, config.run.process_timeout) as group,
        writing_to(folder) if group.leads else nullcontext(),
    ):
        wanted = {"steps": steps, "threads": threads}
        changed = change(config, {name: n for name, n in wanted.items() if n is not None})
        with closing(load_trainer(folder, changed, given, group=group)) as trainer:
            group.wait()  # All have read what is now written.
            if changed != config:
                _check_extension(config, changed, trainer.step)
            if group.leads and changed != config:
                write_json(folder / CONFIG_FILE, changed.to_json())
            if group.leads and not (folder / AGENT_FILE).exists():  # A run of version 0.1.
                write_json(folder / AGENT_FILE, blueprint_of(trainer.life).to_json())
            return TrainingRun(trainer, folder, observer or Observer(), callbacks).run()


def _check_extension(config: TrainConfig, changed: TrainConfig, step: int) -> None:
    """Raise DiscorlError unless a run at this step can have another end."""
    if changed.steps < step:
        raise DiscorlError(
            f"--steps {changed.steps}: the run is at step {step} of {config.steps} already"
        )


def load_trainer(
    folder: Path,
    config: TrainConfig | None = None,
    given: Given | None = None,
    checkpoint: Checkpoint | None = None,
    group: Group = SOLO,
) -> Trainer:
    """The trainer of a run folder as a checkpoint left it, by default its newest intact one; as it
    began if there is none."""
    config, given = config or read_config(folder), given or Given()
    rule = given.rule or _run_rule(folder, config)
    trainer = Trainer(config, rule, given.source, given.network, group)
    try:
        checkpoint = checkpoint or load_latest(folder / CHECKPOINTS)
        if checkpoint is not None:
            trainer.restore(checkpoint)
    except BaseException:
        trainer.close()
        raise
    return trainer


def read_config(folder: Path) -> TrainConfig:
    """The configuration of a run folder."""
    require_kind(folder, "train")
    return TrainConfig.from_json(read_settings(folder))


def run_name(config: TrainConfig) -> str:
    """What a training run's folder is called by default."""
    rule = config.rule
    rule = Path(rule).stem if rule.endswith(SUFFIXES) else without_preset(rule)
    return f"{config.env}-{rule}-s{config.seed}"


def _run_rule(folder: Path, config: TrainConfig) -> UpdateRule:
    """The rule as it was when the run began, if it was copied into the folder."""
    path = folder / RULE_FILE
    return load_rule(path if path.exists() else config.rule)
