"""An analysis from beginning to end: train the agents, look, draw, write."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from discorl.analysis import figures, learning_figures
from discorl.analysis.closest import closest_updates
from discorl.analysis.config import PARTS, AnalyseConfig, Part
from discorl.analysis.figures import Style
from discorl.analysis.probes import probes
from discorl.analysis.reliance import reliance
from discorl.analysis.report import PAGE, SUMMARY, Tables, page, plain, summarise, write_table
from discorl.analysis.responses import Row, bootstrapping, input_sensitivity, reward_credit, sweep
from discorl.analysis.robustness import robustness
from discorl.analysis.subjects import AnyRule, Candidate, Subject, find_candidates, make_subject
from discorl.analysis.traces import traces
from discorl.errors import DiscorlError
from discorl.files import write_atomically, write_json
from discorl.rules.actor_critic import ActorCritic
from discorl.rules.base import UpdateRule
from discorl.runs.folder import check_empty
from discorl.runs.session import Observer, Progress
from discorl.settings import flag


def start_analysis(
    rules: Sequence[AnyRule], config: AnalyseConfig, folder: Path, observer: Observer | None = None
) -> dict[str, Any]:
    """Look inside rules, and write what is found to a new folder; returns its `analysis.json`."""
    observer = observer or Observer()
    check_empty(folder)
    candidates = find_candidates(rules, config)
    parts = _possible(config, candidates)
    work = _Work(candidates, config, parts, folder, observer)
    names = ", ".join(candidate.label for candidate in candidates)
    observer.start(f"{names} on {config.env} -> {folder}", work.stages, [])
    result: dict[str, Any] = plain(work.run() | {"command": _command(rules, config)})
    write_json(folder / SUMMARY, result)
    text = page(result, list(work.drawn))
    write_atomically(folder / PAGE, lambda path: path.write_text(text, encoding="utf-8"))
    return result | {"folder": str(folder)}


def _possible(config: AnalyseConfig, candidates: Sequence[Candidate]) -> list[Part]:
    """The analyses asked for that apply to these rules."""
    parts = [part for part in PARTS if part in config.only]
    if any(candidate.rule.params for candidate in candidates if not candidate.null):
        return parts
    if parts == ["reliance"]:
        raise DiscorlError(
            "--only reliance: these rules read no y and z; name a discovered rule, or drop --only"
        )
    return [part for part in parts if part != "reliance"]


def _command(rules: Sequence[AnyRule], config: AnalyseConfig) -> str:
    """What repeats this analysis from the command line."""
    names = [rule.name if isinstance(rule, UpdateRule) else str(rule) for rule in rules]
    words, default = ["discorl", "analyse", *names], AnalyseConfig().to_json()
    for name, value in config.to_json().items():
        if value != default[name]:
            words += [flag(name), *map(str, value if isinstance(value, tuple) else [value])]
    return shlex.join(words)


class _Work:
    """The agents, and what was found with them so far."""

    def __init__(
        self,
        candidates: list[Candidate],
        config: AnalyseConfig,
        parts: list[Part],
        folder: Path,
        observer: Observer,
    ) -> None:
        self.candidates, self.config, self.parts = candidates, config, parts
        self.folder, self.observer = folder, observer
        self.style = Style([c.label for c in candidates], [c.label for c in candidates if c.null])
        self.drawn: Tables = {}
        self._done, self._begun = 0, time.monotonic()

    @property
    def stages(self) -> int:
        """How many times `_finish` is called."""
        agents = len(self.candidates) if self._looks else 0
        return agents + len(self.parts)

    @property
    def _looks(self) -> bool:
        """Whether agents are looked at, rather than only trained."""
        return bool(set(self.parts) - {"reliance", "robustness"})

    def run(self) -> dict[str, Any]:
        """Everything; returns what goes into `analysis.json`."""
        subjects = []
        if self._looks:
            for candidate in self.candidates:
                subjects.append(make_subject(candidate, self.observer.evaluating))
                self._finish()
        for part in self.parts:
            getattr(self, f"_{part}")(subjects)
            self._finish()
        returns = {subject.label: subject.episode_return for subject in subjects}
        return {
            "settings": self.config.to_json(),
            "rules": {
                c.label: {
                    "null": c.null,
                    "discovered": bool(c.rule.params),
                    "episode_return": returns.get(c.label),
                    **summarise(self.drawn, c.label),
                }
                for c in self.candidates
            },
        }

    def _responses(self, subjects: list[Subject]) -> None:
        told = self.observer.evaluating
        responses: list[Row] = []
        credit: list[Row] = []
        sensitivity: list[Row] = []
        for subject in subjects:
            responses += sweep(subject, told)
            own = input_sensitivity(subject, told)
            sensitivity += own
            credit += reward_credit(subject) + bootstrapping(subject, own)
        decays = {subject.label: _decay(subject) for subject in subjects}
        self._keep("responses", responses, figures.draw_responses)
        self._keep("credit", credit, partial(figures.draw_credit, decays=decays))
        self._keep("sensitivity", sensitivity, figures.draw_sensitivity)

    def _closest(self, subjects: list[Subject]) -> None:
        rows = [row for subject in subjects for row in closest_updates(subject)]
        self._keep("closest", rows, figures.draw_closest)

    def _traces(self, subjects: list[Subject]) -> None:
        rows = [row for subject in subjects for row in traces(subject)]
        self._keep("traces", rows, figures.draw_traces)

    def _probes(self, subjects: list[Subject]) -> None:
        rows: list[Row] = []
        for done, subject in enumerate(subjects):
            self.observer.evaluating("probes", done, len(subjects))
            rows += probes(subject)
        if not rows:
            self.observer.message(
                "probes: left out, because no episode ended in the experience looked at"
            )
            return
        self._keep("probes", rows, figures.draw_probes)

    def _reliance(self, subjects: list[Subject]) -> None:
        rows = reliance(self.candidates, self.config, self.observer.evaluating)
        self._keep("reliance", rows, learning_figures.draw_reliance)

    def _robustness(self, subjects: list[Subject]) -> None:
        place = self.folder / "robustness"
        rows, problems = robustness(self.candidates, self.config, place, self.observer.evaluating)
        for problem in problems:
            self.observer.message(problem)
        self._keep("robustness", rows, learning_figures.draw_robustness)

    def _keep(
        self, name: str, rows: list[Row], draw: Callable[[list[Row], Style, Path], None]
    ) -> None:
        """Write a table and its figure."""
        write_table(rows, self.folder / f"{name}.csv")
        draw(rows, self.style, self.folder / f"{name}.png")
        self.drawn[name] = rows

    def _finish(self) -> None:
        """A stage is over."""
        self._done += 1
        rate = self._done / max(time.monotonic() - self._begun, 1e-9)
        metrics = {"time/steps_per_second": rate}
        self.observer.progress(Progress(self._done, self.stages, metrics, self.folder))


def _decay(subject: Subject) -> float:
    """What a reward loses with each step on its way into a rule's advantages."""
    rule = subject.rule
    if isinstance(rule, ActorCritic):
        return rule.discount * rule.vtrace_lambda
    return rule.config.discount * rule.config.retrace_lambda
