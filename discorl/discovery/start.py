"""How a run that makes a rule begins in a folder, and how it is taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from discorl.discovery.config import DiscoverConfig, PopulationConfig
from discorl.discovery.curriculum import Curriculum
from discorl.discovery.discoverer import AGENT_METRICS, Discoverer
from discorl.discovery.evolution import EVOLUTION_METRICS, Place
from discorl.discovery.member import Member
from discorl.discovery.run import RuleRun
from discorl.errors import DiscorlError
from discorl.files import write_json
from discorl.group import Group
from discorl.library.catalogue import load_rule, require_discovered
from discorl.processes import join_group
from discorl.rules.disco import DiscoConfig, DiscoRule
from discorl.runs.checkpoint import Checkpoint, load_latest
from discorl.runs.folder import (
    CHECKPOINTS,
    CONFIG_FILE,
    RULE_FILE,
    check_new,
    new_folder,
    read_settings,
    require_kind,
    writing_to,
)
from discorl.runs.session import Callback, Observer
from discorl.settings import change


def start_discovery(
    config: DiscoverConfig,
    folder: Path,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Discover a rule in a new folder and return what `result.json` holds."""

    def make(_: Checkpoint | None, group: Group) -> Discoverer:
        return make_discoverer(config, initial_rule(config), group)

    def run(discoverer: Discoverer) -> RuleRun:
        return RuleRun(discoverer, folder, observer, callbacks)

    return start_rule_run(config, folder, make, run)


def resume_discovery(
    folder: Path,
    meta_steps: int | None = None,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    threads: int | None = None,
) -> dict[str, Any]:
    """Resume a run from its newest intact checkpoint, on any number of processes and threads."""
    folder = Path(folder)
    config = with_meta_steps(read_discovery_config(folder), folder, meta_steps, threads)

    def make(checkpoint: Checkpoint | None, group: Group) -> Discoverer:
        rule = rule_of_run(folder, checkpoint, partial(initial_rule, config))
        return make_discoverer(config, rule, group)

    def run(discoverer: Discoverer) -> RuleRun:
        return RuleRun(discoverer, folder, observer, callbacks)

    return resume_rule_run(config, folder, make, run)


Make = Callable[[Checkpoint | None, Group], Discoverer]
"""Makes a run's population, given the checkpoint to resume from."""


def start_rule_run(
    config: PopulationConfig, folder: Path, make: Make, run: Callable[[Discoverer], RuleRun]
) -> dict[str, Any]:
    """A run in a new folder, on any number of processes."""
    run_config = config.run
    with join_group(run_config.torch_device, run_config.process_timeout) as group:
        check_new(folder)
        group.wait()  # Nobody may find the folder that the leading process now makes.
        with (
            new_folder(folder) if group.leads else nullcontext(),
            closing(make(None, group)) as discoverer,
        ):
            if group.leads:
                write_json(folder / CONFIG_FILE, config.to_json())
            return run(discoverer).run()


def resume_rule_run(
    config: PopulationConfig, folder: Path, make: Make, run: Callable[[Discoverer], RuleRun]
) -> dict[str, Any]:
    """A run from its newest intact checkpoint, on any number of processes."""
    with (
        join_group(config.run.torch_device, config.run.process_timeout) as group,
        writing_to(folder) if group.leads else nullcontext(),
    ):
        checkpoint = load_latest(folder / CHECKPOINTS)
        with closing(make(checkpoint, group)) as discoverer:
            if checkpoint is not None:
                discoverer.restore(checkpoint)
            group.wait()
            if group.leads:
                write_json(folder / CONFIG_FILE, config.to_json())
            return run(discoverer).run()


AnyConfig = TypeVar("AnyConfig", bound=PopulationConfig)


def with_meta_steps(
    config: AnyConfig, folder: Path, meta_steps: int | None, threads: int | None = None
) -> AnyConfig:
    """The configuration of a run that is resumed, to another number of meta-steps or on another
    number of threads if one is given; DiscorlError if it cannot end there."""
    if threads is not None:
        config = change(config, {"threads": threads})
    if meta_steps is None or meta_steps == config.meta_steps:
        return config
    if config.meta.meta_learning_rate_schedule != "constant":
        raise DiscorlError("--meta-steps: a run with a schedule cannot be extended")
    changed = change(config, {"meta_steps": meta_steps})
    newest = load_latest(folder / CHECKPOINTS)
    if newest is not None and changed.meta_steps < newest.step:
        raise DiscorlError(
            f"--meta-steps {meta_steps}: the run is at meta-step {newest.step} of "
            f"{config.meta_steps} already"
        )
    return changed


def read_discovery_config(folder: Path) -> DiscoverConfig:
    """The configuration of a discovery folder."""
    require_kind(folder, "discover")
    return DiscoverConfig.from_json(read_settings(folder))


def make_discoverer(
    config: DiscoverConfig, rule: DiscoRule, group: Group | None = None
) -> Discoverer:
    """The rule, its optimiser and this process's share of the population."""
    evolves = config.meta.meta_optimiser == "es"
    metrics = EVOLUTION_METRICS if evolves else AGENT_METRICS
    curriculum = Curriculum(config) if config.curriculum == "learnability" else None
    choose = curriculum.choose if curriculum else None
    make_member = partial(Place if evolves else Member, choose=choose)
    return Discoverer(config, rule, group, make_member, metrics, curriculum)


def initial_rule(config: DiscoverConfig) -> DiscoRule:
    """The rule that a run begins with."""
    if config.init == "random":
        fixed = DiscoConfig(
            sizes=config.sizes, num_bins=config.num_bins, max_abs_value=config.max_abs_value
        )
        return DiscoRule.random(fixed, seed=config.seed)
    return require_discovered(load_rule(config.init))


def rule_of_run(
    folder: Path, checkpoint: Checkpoint | None, initial: Callable[[], DiscoRule]
) -> DiscoRule:
    """The form of a resumed run's rule, whose parameters are in the checkpoint. Once there is one,
    the rule that the run began with may be gone."""
    if checkpoint is not None and (folder / RULE_FILE).exists():
        return require_discovered(load_rule(folder / RULE_FILE))
    return initial()
