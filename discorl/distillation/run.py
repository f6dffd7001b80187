"""A distillation on disk: discovery's loop and folder, around another kind of lesson.

`teacher.safetensors` is a copy of the teacher, and `teacher_evaluation.json` says how its fresh
agents do, in the environments that the student's are evaluated in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from discorl.discovery.discoverer import Discoverer, MetaStepReport
from discorl.discovery.evaluation import RuleEvaluation
from discorl.discovery.member import SeatMaker
from discorl.discovery.records import mean_metric, summarise_population
from discorl.discovery.run import RuleRun, final_returns
from discorl.discovery.start import resume_rule_run, rule_of_run, start_rule_run, with_meta_steps
from discorl.distillation.config import DistilConfig
from discorl.distillation.member import METRICS, Pupil
from discorl.distillation.merging import find_merging
from discorl.distillation.plots import TEACHER_EVALUATION, plot_distillation, read_teacher
from discorl.distillation.student import cut_student, student_config
from discorl.errors import DiscorlError
from discorl.files import write_json
from discorl.group import Group
from discorl.library.catalogue import load_rule, parameter_count, require_discovered, save_rule
from discorl.rules.disco import DiscoRule
from discorl.runs.checkpoint import Checkpoint
from discorl.runs.folder import read_settings, require_kind
from discorl.runs.session import Callback, Observer

TEACHER_FILE = "teacher.safetensors"
_KLS = ("policy_kl", "y_kl", "z_kl")


def start_distillation(
    config: DistilConfig,
    folder: Path,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    teacher: DiscoRule | None = None,
) -> dict[str, Any]:
    """Distil a rule in a new folder and return what `result.json` holds.

    Args:
      teacher: the rule itself, if it is not to be found by the name in the configuration.
    """
    master = teacher or find_teacher(config)

    def make(_: Checkpoint | None, group: Group) -> Discoverer:
        return make_distiller(config, master, initial_student(config, master), group)

    def run(distiller: Discoverer) -> RuleRun:
        return DistillationRun(distiller, folder, observer, callbacks, master)

    return start_rule_run(config, folder, make, run)


def resume_distillation(
    folder: Path,
    meta_steps: int | None = None,
    observer: Observer | None = None,
    callbacks: Sequence[Callback] = (),
    threads: int | None = None,
) -> dict[str, Any]:
    """Resume a run from its newest intact checkpoint, on any number of processes and threads."""
    folder = Path(folder)
    config = with_meta_steps(read_distillation_config(folder), folder, meta_steps, threads)
    kept = folder / TEACHER_FILE
    master = _read_copy(kept) if kept.exists() else find_teacher(config)

    def make(checkpoint: Checkpoint | None, group: Group) -> Discoverer:
        student = rule_of_run(folder, checkpoint, partial(initial_student, config, master))
        return make_distiller(config, master, student, group)

    def run(distiller: Discoverer) -> RuleRun:
        return DistillationRun(distiller, folder, observer, callbacks, master)

    return resume_rule_run(config, folder, make, run)


def read_distillation_config(folder: Path) -> DistilConfig:
    """The configuration of a distillation's folder."""
    require_kind(folder, "distil")
    return DistilConfig.from_json(read_settings(folder))


def find_teacher(config: DistilConfig) -> DiscoRule:
    """The rule to distil."""
    return require_discovered(load_rule(config.teacher))


def _read_copy(path: Path) -> DiscoRule:
    """The run's own copy of its teacher, with the digest of the file it was copied from."""
    teacher = require_discovered(load_rule(path))
    provenance = dict(teacher.provenance)
    digest = provenance.pop("saved_from_sha256", None)
    provenance = {k: v for k, v in provenance.items() if k not in ("path", "sha256")}
    if digest is not None:
        provenance["sha256"] = digest
    return replace(teacher, provenance=provenance)


def initial_student(config: DistilConfig, teacher: DiscoRule) -> DiscoRule:
    """The student that a run begins with."""
    wanted = student_config(teacher, config.sizes, config.num_bins, config.max_abs_value)
    most, given = teacher.config.sizes.predictions, config.sizes.predictions
    if given > most:
        raise DiscorlError(
            f"--predictions {given}: the teacher has {most}, and a student can have as many or "
            "fewer"
        )
    if config.init == "random":
        return DiscoRule.random(wanted, seed=config.seed)
    if config.init == "teacher":
        return cut_student(teacher, wanted, find_merging(teacher, given), config.seed)
    student = require_discovered(load_rule(config.init))
    if student.config != wanted:
        raise DiscorlError(
            f"--init {config.init}: its sizes or settings are not those of the student asked for"
        )
    return student


def make_distiller(
    config: DistilConfig, teacher: DiscoRule, student: DiscoRule, group: Group | None = None
) -> Discoverer:
    """The student, its optimiser and this process's share of the population."""
    own = student.config
    # How action values are read is a setting: all agents have the student's.
    settings = replace(teacher.config, num_bins=own.num_bins, max_abs_value=own.max_abs_value)
    teacher = replace(teacher, config=settings)
    merging = find_merging(teacher, own.sizes.predictions)

    def make_member(
        config: DistilConfig, index: int, env: str, rule: DiscoRule, _seat: SeatMaker | None
    ) -> Pupil:
        example = next(iter(rule.params.values()))
        # Copies, because tensors read from a file lie at any address, and rounding depends on it.
        params = {n: p.to(example.device, example.dtype, copy=True) for n, p in master.items()}
        return Pupil(config, index, env, rule, teacher.with_params(params), merging)

    master = teacher.params
    return Discoverer(config, student, group, make_member, METRICS)


class DistillationRun(RuleRun):
    """Discovery's loop, with a teacher to compare with."""

    config: DistilConfig

    def __init__(
        self,
        discoverer: Discoverer,
        folder: Path,
        observer: Observer | None,
        callbacks: Sequence[Callback],
        teacher: DiscoRule,
    ) -> None:
        super().__init__(discoverer, folder, observer, callbacks)
        self.teacher = teacher
        self.teacher_returns: dict[str, float] = {}

    def _before(self) -> None:
        """The teacher is kept, and the student evaluated as it is born."""
        if self.leads and not (self.folder / TEACHER_FILE).exists():
            save_rule(self.teacher, self.folder / TEACHER_FILE)
        if self.config.run.eval_every and self.discoverer.step == 0 and not self.evaluations:
            self._evaluate()

    def _evaluate_alone(self) -> None:
        """The teacher once, and the student."""
        self._evaluate_teacher()
        super()._evaluate_alone()

    def _evaluate_teacher(self) -> None:
        results = [RuleEvaluation(**agent) for agent in read_teacher(self.folder)]
        known = bool(results)
        if not known:
            results = self._fresh_agents(self.teacher, "the teacher")
            write_json(self.folder / TEACHER_EVALUATION, [asdict(result) for result in results])
        returns = final_returns(results)
        self.teacher_returns = {env: sum(own) / len(own) for env, own in returns.items()}
        if not known:
            parts = ", ".join(f"{env} {mean:.3f}" for env, mean in self.teacher_returns.items())
            self.observer.message(f"fresh agents of the teacher reach {parts}")

    def _score(self, results: list[RuleEvaluation]) -> float:
        """The mean over environments; a return counts by the teacher's if that is above one."""
        return self._scaled_mean([(r.env, r.final_return) for r in results])

    def _scaled_mean(self, returns: Sequence[tuple[str, float]]) -> float:
        scaled = [value / max(abs(self.teacher_returns[env]), 1.0) for env, value in returns]
        return sum(scaled) / len(scaled)

    def _summarise(self, report: MetaStepReport) -> dict[str, float]:
        agents = report.agents
        names = ("loss", *_KLS, "policy_step")
        record = {f"distil/{name}": mean_metric(name, agents) for name in names}
        for leader in (0, 1):
            led = [a for a in agents if a.metrics["student_led"] == leader]
            word = ("teacher", "student")[leader]
            if led:
                record |= {f"distil/{name}/{word}_led": mean_metric(name, led) for name in _KLS}
        record["distil/student_led"] = mean_metric("student_led", agents)
        return record | summarise_population(report)

    def _origin(self) -> dict[str, str]:
        teacher, known = self.teacher, self.teacher.provenance
        provenance = {
            "origin": f"distilled from {teacher.name} by discorl {version('discorl')}",
            "teacher": teacher.name,
        }
        kept = ("origin", "paper", "licence", "teacher", "sha256")
        return provenance | {f"teacher_{name}": known[name] for name in kept if name in known}

    def _more_results(self) -> dict[str, Any]:
        self._evaluate_teacher()
        return {
            "teacher": self.config.teacher,
            "teacher_fresh_agents_return": self._scaled_mean(list(self.teacher_returns.items())),
            "parameters": parameter_count(self.discoverer.rule),
            "teacher_parameters": parameter_count(self.teacher),
        }

    def _draw(self, path: Path) -> None:
        plot_distillation([self.folder], path)

    def _title(self) -> str:
        return f"distilling {self.config.teacher}, seed {self.config.seed} -> {self.folder}"

    def _notes(self) -> list[str]:
        parameters = parameter_count(self.teacher)
        return [*super()._notes(), f"the teacher has {parameters:,} parameters"]
