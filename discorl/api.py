"""Training, discovery, distillation, comparison, search, analysis, and loading runs, each in one
call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
from torch import nn

from discorl.analysis.config import AnalyseConfig
from discorl.analysis.run import start_analysis
from discorl.discovery.config import DiscoverConfig
from discorl.discovery.handle import SHOWN as SHOWN_OF_DISCOVERY
from discorl.discovery.handle import Discovery
from discorl.discovery.start import start_discovery
from discorl.distillation.config import DistilConfig
from discorl.distillation.handle import SHOWN as SHOWN_OF_DISTILLATION
from discorl.distillation.handle import Distillation
from discorl.distillation.run import start_distillation
from discorl.envs.base import EnvironmentConfig
from discorl.envs.external import with_settings
from discorl.envs.sources import (
    AnyEnvironment,
    environment_name,
    find_environment,
    is_environment,
)
from discorl.envs.spaces import ObservationReader
from discorl.envs.tensor import TensorEnvironment
from discorl.library.catalogue import require_discovered
from discorl.processes import group_size
from discorl.rules.base import UpdateRule
from discorl.runs.display import shown_in_python
from discorl.runs.folder import run_kind, unused_folder
from discorl.runs.session import Callback
from discorl.settings import change
from discorl.training.handle import SHOWN, Run
from discorl.training.presets import (
    AUTO,
    Kind,
    PresetName,
    environment_config,
    make_config,
    observation_kind,
)
from discorl.training.start import Given, run_name, start_run

if TYPE_CHECKING:
    from discorl.comparison.summary import Summary
    from discorl.engines import EngineName
    from discorl.tuning.run import Tuning


def train(
    env: AnyEnvironment,
    rule: str | Path | UpdateRule = AUTO,
    out: str | Path | None = None,
    *,
    preset: PresetName = "default",
    network: nn.Module | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train an agent in a new run folder.

    Args:
      env: an environment's name, optionally with settings after a colon:
        `catch:rows=10,columns=7`. Or a Gymnasium environment, a function that makes one, or an
        environment of discorl. Objects are copied so that several copies can act.
      rule: a rule's name, optionally with settings after a colon:
        `actor_critic:entropy_cost=0.01`. Or a rule file, or a rule. By default the better of those
        that ship: sprout in discorl's own games, actor_critic elsewhere.
      out: the run folder, which must not hold a run yet; by default a new one under `runs/`.
      preset: where the defaults of settings come from: us, the published notebook, or the
        paper's table.
      network: a module that maps observations [..., *shape] to features [..., F], which the rule's
        heads are put on, or to a dictionary of all those heads.
      callbacks: called with a `Progress` after each record of metrics; one that returns True ends
        the run.
      progress: whether to show progress; by default in a terminal or a notebook.
      **settings: fields of `TrainConfig` by their flat names; they override the preset.

    Returns:
      The run, which reads like the dictionary in its `result.json` and holds the agent.
    """
    given_rule = None if isinstance(rule, str | Path) else rule
    name = environment_name(env)
    if "num_envs" not in settings and isinstance(getattr(env, "num_envs", None), int):
        # Every process brings its own copies.
        settings["num_envs"] = env.num_envs * group_size()  # type: ignore[union-attr]
    kind = None if isinstance(env, str) else _kind(env, environment_config(settings))
    config = make_config(name, given_rule or str(rule), preset, kind, **settings)
    source = None
    if not isinstance(env, str):
        source = find_environment(env, config.run.torch_device, config.life.environment)
    folder = Path(out) if out is not None else unused_folder(run_name(config))
    with shown_in_python(progress, SHOWN) as observer:
        start_run(config, folder, observer, callbacks, Given(given_rule, source, network))
    return Run(folder, None if isinstance(env, str) else env, given_rule, network)


def discover(
    out: str | Path | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Discovery:
    """Discover a rule in a new run folder.

    At the end, fresh agents try the rule for `eval_steps` updates. The folder then holds
    `rule.safetensors`, the newest rule, and `best_rule.safetensors`, the one whose fresh agents did
    best; you can train with either.

    Args:
      out: the run folder, which must not hold a run yet; by default a new one under `runs/`.
      callbacks: as for `train`.
      progress: as for `train`.
      **settings: fields of `DiscoverConfig` by their flat names.

    Returns:
      The run, which reads like the dictionary in its `result.json` and holds the rule.
    """
    config = DiscoverConfig.from_json(settings)
    folder = Path(out) if out is not None else unused_folder(f"discover-s{config.seed}")
    with shown_in_python(progress, SHOWN_OF_DISCOVERY) as observer:
        start_discovery(config, folder, observer, callbacks)
    return Discovery(folder)


def distil(
    teacher: str | Path | UpdateRule = "disco103",
    out: str | Path | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Distillation:
    """Distil a discovered rule into a smaller one, in a new run folder.

    The folder ends up with `rule.safetensors`, the newest student, and `best_rule.safetensors`, the
    one whose fresh agents did best; you can train with either.

    Args:
      teacher: the rule's name, its file, or itself.
      out: the run folder, which must not hold a run yet; by default a new one under `runs/`.
      callbacks: as for `train`.
      progress: as for `train`.
      **settings: fields of `DistilConfig` by their flat names: `hidden`, `predictions` and
        `meta_hidden` are the student's.

    Returns:
      The run, which reads like the dictionary in its `result.json` and holds the student.
    """
    given = None if isinstance(teacher, str | Path) else require_discovered(teacher)
    name = given.name if given is not None else str(teacher)
    config = DistilConfig.from_json(settings | {"teacher": name})
    place = f"distil-{Path(name).stem}-s{config.seed}"
    folder = Path(out) if out is not None else unused_folder(place)
    with shown_in_python(progress, SHOWN_OF_DISTILLATION) as observer:
        start_distillation(config, folder, observer, callbacks, given)
    return Distillation(folder)


def analyse(
    rules: str | Path | UpdateRule | Sequence[str | Path | UpdateRule],
    out: str | Path | None = None,
    *,
    progress: bool | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Look inside one or more rules, with a random rule beside them.

    The folder ends up with a figure and a table for each analysis, `analysis.json`, and a page,
    `README.md`, that shows the figures.

    Args:
      rules: their names, their files, or themselves: discovered rules and actor-critic.
      out: the folder, which must be empty or new; by default a new one under `runs/`.
      progress: as for `train`.
      **settings: fields of `AnalyseConfig`.

    Returns:
      What `analysis.json` holds, and the `folder`.
    """
    several = [rules] if isinstance(rules, str | Path | UpdateRule) else list(rules)
    config = change(AnalyseConfig(), settings)
    folder = Path(out) if out is not None else unused_folder("analyse")
    with shown_in_python(progress, {}) as observer:
        return start_analysis(several, config, folder, observer)


def compare(
    rules: str | Sequence[str],
    envs: str | Sequence[str],
    out: str | Path | None = None,
    *,
    jobs: int | None = None,
    engine: EngineName = "local",
    engine_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Summary:
    """Compare rules over environments and seeds, in a new folder or in one to be completed.

    In a script, call it under `if __name__ == "__main__":`, because processes of the local engine
    import the script too.

    Args:
      rules: names or files, optionally with settings after a colon.
      envs: names, optionally with settings after a colon.
      out: the folder; by default a new one under `runs/`.
      jobs: how many runs work at once; by default one for each core, or as many as a cluster has
        room for.
      engine: where they work: `local`, `ray` or `slurm`. The results are the same on all.
      engine_options: settings of the engine.
      progress: as for `train`.
      **settings: fields of `CompareConfig`: `seeds`, `steps`, `env_steps` and others.

    Returns:
      Scores, their intervals, and the runs.
    """
    from discorl.comparison.config import CompareConfig
    from discorl.comparison.display import comparison_shown_in_python
    from discorl.comparison.run import start_comparison

    several = {"rules": _several(rules), "envs": _several(envs)}
    config = CompareConfig.from_json(several | settings)
    folder = Path(out) if out is not None else unused_folder("compare")
    texts = {name: str(value) for name, value in (engine_options or {}).items()}
    with comparison_shown_in_python(progress) as observer:
        return start_comparison(config, folder, jobs, observer, engine, texts)


def tune(
    env: str,
    rule: str | Path = AUTO,
    out: str | Path | None = None,
    *,
    progress: bool | None = None,
    **settings: Any,
) -> Tuning:
    """Search for settings with which a rule does well in an environment.

    Several processes that call this with the same `out` and settings share the trials.

    Args:
      env: an environment's name, optionally with settings after a colon.
      rule: a rule's name or file, optionally with settings after a colon.
      out: the folder, new or of this very search; by default a new one under `runs/`.
      progress: as for `train`.
      **settings: fields of `TuneConfig`: `search`, `trials`, `seeds`, `steps` and others.

    Returns:
      All trials, the best first, and the path of a preset file with the best one's settings.
    """
    from discorl.tuning.config import TuneConfig, require_optuna
    from discorl.tuning.display import tuning_shown_in_python

    require_optuna()
    from discorl.tuning.run import start_tuning

    config = TuneConfig.from_json({"env": env, "rule": str(rule)} | settings)
    folder = Path(out) if out is not None else unused_folder(f"tune-{env}-{Path(rule).stem}")
    with tuning_shown_in_python(progress) as observer:
        return start_tuning(config, folder, observer)


def load_run(
    folder: str | Path,
    env: AnyEnvironment | None = None,
    rule: UpdateRule | None = None,
    network: nn.Module | None = None,
) -> Run | Discovery | Distillation:
    """A run made earlier, from Python or the command line.

    Args:
      folder: its folder.
      env: what was passed to `train` as an object, if the run is to be resumed or evaluated.
      rule: likewise.
      network: likewise; needed for the agent too.
    """
    kind = run_kind(Path(folder))
    if kind == "discover":
        return Discovery(folder)
    if kind == "distil":
        return Distillation(folder)
    run = Run(folder, env, rule, network)
    _ = run.config  # Raises if the folder holds no run.
    return run


def _several(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _kind(env: Any, config: EnvironmentConfig) -> Kind | None:
    """What an agent sees in an environment that is given as an object, where that can be told."""
    if isinstance(env, TensorEnvironment):
        return None
    if is_environment(env):
        return observation_kind(env.observation_spec)
    space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
    if isinstance(space, gymnasium.Space):
        return observation_kind(ObservationReader(space).spec)
    if not callable(env):
        return None
    made = with_settings(env, config)()
    try:
        return _kind(made, config)
    finally:
        if hasattr(made, "close"):
            made.close()
