"""A discovery run on disk: the loop around the discoverer, its records, and how it stops.

The folder is laid out like a training run's. `rule.safetensors` is the newest rule,
`best_rule.safetensors` the one whose fresh agents did best; `evaluations.json` says how all did.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from discorl.discovery.discoverer import Discoverer, MetaStepReport
from discorl.discovery.evaluation import RuleEvaluation, evaluate_agents
from discorl.discovery.member import Resident
from discorl.discovery.plots import EVALUATIONS_FILE, plot_discovery, read_evaluations
from discorl.discovery.records import check_finite, summarise
from discorl.discovery.stack import is_one_computation
from discorl.files import write_json
from discorl.library.catalogue import save_rule
from discorl.life.playing import EvaluationStopped
from discorl.rules.disco import DiscoRule
from discorl.runs.checkpoint import Checkpoint, save_checkpoint
from discorl.runs.folder import CHECKPOINTS, CURVE_FILE, RESULT_FILE, RULE_FILE
from discorl.runs.metrics import MetricsWriter
from discorl.runs.session import (
    Callback,
    Interrupted,
    Observer,
    Progress,
    Turn,
    seen_enough,
    stop_signals,
)
from discorl.runtime import SMALL_WORK, computing_on
from discorl.statistics import mean_estimate

BEST_FILE = "best_rule.safetensors"


T = TypeVar("T")


class RuleRun:
    """The loop and its files. Only the leading process writes.

    What a run is called, records, and judges by can be another's: see `distillation`.
    """

    def __init__(
        self,
        discoverer: Discoverer,
        folder: Path,
        observer: Observer | None,
        callbacks: Sequence[Callback],
    ) -> None:
        self.discoverer = discoverer
        self.config = discoverer.config
        self.folder = folder
        self.leads = discoverer.group.leads
        self.observer = (observer if self.leads else None) or Observer()
        self.callbacks = callbacks
        self.stop: list[int] = []
        self.turn = Turn(discoverer.group, self.stop)
        self.evaluations = self._earlier_evaluations()
        wandb = self.config.run.wandb
        self.writer = (
            MetricsWriter(folder, discoverer.step, wandb, self.config.to_json())
            if self.leads
            else None
        )

    def run(self) -> dict[str, Any]:
        """Discover until the last meta-step, or until a callback has seen enough."""
        try:
            self.observer.start(self._title(), self.config.meta_steps, self._notes())
            with computing_on(self.config.run.threads, self._work()), stop_signals() as self.stop:
                self._loop(self.stop)
                return self._finish()
        finally:
            if self.writer is not None:
                self.writer.close()

    def _work(self) -> int:
        """Of the largest computation, where agents are stacked of all; of evolution's it is not
        known, and never small."""
        if self.config.meta.meta_optimiser == "es":
            return SMALL_WORK
        own = [m.life.work for m in self.discoverer.members if isinstance(m, Resident)]
        together = sum if is_one_computation(self.config) else max
        return together(own) if own else SMALL_WORK

    def _loop(self, stop: list[int]) -> None:
        config, run, discoverer = self.config, self.config.run, self.discoverer
        due = discoverer.step > 0 and self._evaluates(discoverer.step)
        if due and not any(e["meta_step"] == discoverer.step for e in self.evaluations):
            self._evaluate()  # A signal came in its place.
        self._before()
        reports: list[MetaStepReport] = []
        started = self._now()
        enough = False
        while discoverer.step < config.meta_steps and not enough:
            reports.append(discoverer.meta_step())
            step = discoverer.step
            check_finite(self._summarise(reports[-1]), reports[-1].skipped, step)
            last = step == config.meta_steps
            told_enough = False
            if step % run.log_every == 0 or last:
                told_enough = self._log(reports, started)
                reports, started = [], self._now()
            if self._evaluates(step) or last:
                self._evaluate()
                started = self._now()
            signum, enough = self._agree_to_stop(stop, told_enough)
            if step % run.checkpoint_every == 0 or last or signum or enough:
                self._save(discoverer.checkpoint())
            if signum:
                raise Interrupted(signum, self.folder, step)

    def _before(self) -> None:
        """What precedes the first meta-step."""
        if self.config.init != "random" and self.discoverer.step == 0:
            self._evaluate()  # The score to beat.

    def _summarise(self, report: MetaStepReport) -> dict[str, float]:
        """A meta-step's metrics."""
        curriculum = self.discoverer.curriculum
        known = curriculum.metrics() if curriculum else {}
        return summarise(report, self.discoverer.metrics) | known

    def _score(self, results: list[RuleEvaluation]) -> float:
        """What fresh agents say about the rule, as one number."""
        return math.fsum(r.final_return for r in results) / len(results)

    def _evaluates(self, step: int) -> bool:
        """Whether the rule is evaluated after this meta-step, if it is not the last."""
        every = self.config.run.eval_every
        return every > 0 and step % every == 0

    def _agree_to_stop(self, stop: list[int], enough: bool) -> tuple[int, bool]:
        """A signal or a callback in any process stops all of them after the same step."""
        signum, ends = self.discoverer.group.largest(stop[0] if stop else 0, int(enough))
        return signum, ends > 0

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), self.discoverer.group.seconds

    def _log(self, reports: list[MetaStepReport], started: tuple[float, float]) -> bool:
        """Write a record and report it; returns whether a callback has seen enough."""
        if self.writer is None:
            return False
        seconds, talked = (now - then for now, then in zip(self._now(), started, strict=True))
        seconds = max(seconds, 1e-9)
        record = self._summarise(reports[-1])
        record["meta/skipped"] = self.discoverer.skipped
        record["time/steps_per_second"] = len(reports) / seconds
        if self.discoverer.group.size > 1:
            record["time/communication_share"] = talked / seconds
        record = {name: value for name, value in record.items() if math.isfinite(value)}
        self.writer.write(self.discoverer.step, record)
        steps = self.config.meta_steps
        progress = Progress(self.discoverer.step, steps, record, self.folder)
        self.observer.progress(progress)
        return seen_enough(self.callbacks, progress)

    def _evaluate(self) -> None:
        """Train fresh agents on each environment, and keep the best rule so far."""
        self._leading(self._evaluate_alone)

    def _leading(self, work: Callable[[], T]) -> T | None:
        """What the leading process does while the others wait; a signal ends it, and the run can be
        resumed."""
        self.turn, result = Turn(self.discoverer.group, self.stop), None
        if self.leads:
            with suppress(EvaluationStopped):
                result = work()
        self.turn.end()
        if self.turn.signum:
            self._save(self.discoverer.checkpoint())
            raise Interrupted(self.turn.signum, self.folder, self.discoverer.step)
        return result

    def _evaluate_alone(self) -> None:
        rule = self.discoverer.rule.to(torch.float32)
        results = self._fresh_agents(rule, "the rule")
        score = self._score(results)
        entry = {
            "meta_step": self.discoverer.step,
            "score": score,
            "agents": [asdict(r) for r in results],
        }
        best = max((e["score"] for e in self.evaluations), default=-math.inf)
        self.evaluations.append(entry)
        write_json(self.folder / EVALUATIONS_FILE, self.evaluations)
        if score > best:
            save_rule(self._signed(rule, entry), self.folder / BEST_FILE)
        assert self.writer is not None
        returns = final_returns(results)
        record = {f"eval/{env}": math.fsum(own) / len(own) for env, own in returns.items()}
        self.writer.write(self.discoverer.step, {"eval/fresh_agents": score, **record})
        parts = ", ".join(f"{env} {_told(own)}" for env, own in returns.items())
        self.observer.message(
            f"meta-step {self.discoverer.step}: fresh agents reach {score:.3f} ({parts})"
        )

    def _fresh_agents(self, rule: DiscoRule, what: str) -> list[RuleEvaluation]:
        """Fresh agents on each environment learn by a rule that is held fixed."""
        envs, updates = list(dict.fromkeys(self.discoverer.env_of)), self.config.eval_steps
        count = len(envs) * self.config.eval_agents
        self.observer.message(f"evaluating {what}: {count} fresh agents, {updates:,} updates each")
        return [
            result
            for place, env in enumerate(envs)
            for result in self._evaluate_on(rule, env, f"{what}, {self._which(place, count)}")
        ]

    def _which(self, place: int, count: int) -> str:
        """The fresh agents on the environment at this place, of all."""
        agents = self.config.eval_agents
        first, last = place * agents + 1, (place + 1) * agents
        return f"fresh agent{'s' * (agents > 1)} {_span(first, last)} of {count}"

    def _evaluate_on(self, rule: DiscoRule, env: str, what: str) -> list[RuleEvaluation]:
        """Fresh agents in one environment; EvaluationStopped after a signal."""

        def watch(done: int, total: int) -> bool:
            self.observer.evaluating(f"evaluating {what}, updates", done, total)
            return self.turn.beat()

        index = self.discoverer.env_of.index(env)
        seeds = range(self.config.eval_agents)
        return evaluate_agents(rule, self.config, env, seeds, index=index, watch=watch)

    def _save(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is not None:
            keep = self.config.run.keep_checkpoints
            save_checkpoint(self.folder / CHECKPOINTS, checkpoint, keep)
            rule = self.discoverer.rule.to(torch.float32)
            save_rule(self._signed(rule, None), self.folder / RULE_FILE)
        self.discoverer.group.wait()

    def _signed(self, rule: DiscoRule, evaluation: dict[str, Any] | None) -> DiscoRule:
        """The rule with its full provenance."""
        provenance = self._origin() | {
            "meta_steps": str(self.discoverer.step),
            "config": json.dumps(self.config.to_json()),
        }
        if evaluation is not None:
            brief = [
                {"env": a["env"], "steps": a["steps"], "final_return": a["final_return"]}
                for a in evaluation["agents"]
            ]
            provenance["evaluation"] = json.dumps({"score": evaluation["score"], "agents": brief})
        return replace(rule, name=self.folder.name, provenance=provenance)

    def _origin(self) -> dict[str, str]:
        """Where the rule comes from."""
        return {"origin": f"discovered from {self.config.init} by discorl {version('discorl')}"}

    def _finish(self) -> dict[str, Any]:
        """The result; in all processes but the leading one, only where and how far."""
        result: dict[str, Any] = {"meta_steps": self.discoverer.step, "folder": str(self.folder)}
        return result | (self._leading(self._finish_alone) or {})

    def _finish_alone(self) -> dict[str, Any]:
        discoverer = self.discoverer
        if not self.evaluations or self.evaluations[-1]["meta_step"] != discoverer.step:
            self._evaluate_alone()  # The run was told to end where it had already stopped.
        last = self.evaluations[-1]
        best = max(self.evaluations, key=lambda e: e["score"])
        result = {
            "meta_steps": discoverer.step,
            "folder": str(self.folder),
            "envs": list(self.config.envs),
            "init": self.config.init,
            "seed": self.config.seed,
            "processes": discoverer.group.size,
            "threads": torch.get_num_threads(),
            "skipped": discoverer.skipped,
            "fresh_agents_return": last["score"],
            "best_fresh_agents_return": best["score"],
            "best_meta_step": best["meta_step"],
        }
        result |= self._more_results()
        write_json(self.folder / RESULT_FILE, result)
        self._draw(self.folder / CURVE_FILE)
        return result

    def _more_results(self) -> dict[str, Any]:
        """What else the result says."""
        return {}

    def _draw(self, path: Path) -> None:
        plot_discovery([self.folder], path)

    def _earlier_evaluations(self) -> list[dict[str, Any]]:
        entries = read_evaluations(self.folder)
        return [e for e in entries if e["meta_step"] <= self.discoverer.step]

    def _title(self) -> str:
        return f"discovering from {self.config.init}, seed {self.config.seed} -> {self.folder}"

    def _notes(self) -> list[str]:
        config, discoverer = self.config, self.discoverer
        parameters = sum(p.numel() for p in discoverer.rule.params.values())
        notes = [
            f"{config.agents} agents on {', '.join(dict.fromkeys(discoverer.env_of))}; "
            f"{self._pace()}; rule of {parameters:,} parameters",
        ]
        if discoverer.group.size > 1:
            notes.append(f"{discoverer.group.size} processes")
        if discoverer.step:
            notes.append(f"resuming from meta-step {discoverer.step}")
        return notes

    def _pace(self) -> str:
        """What a meta-step costs an agent."""
        config = self.config
        if config.meta.meta_optimiser == "es":
            return f"{config.es_pairs} pairs of lives of {config.es_lifetime} updates each"
        return f"{config.inner_steps} inner updates"


def final_returns(results: Sequence[RuleEvaluation]) -> dict[str, list[float]]:
    """What fresh agents came to, by environment."""
    returns: dict[str, list[float]] = {}
    for result in results:
        returns.setdefault(result.env, []).append(result.final_return)
    return returns


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _told(values: list[float]) -> str:
    """The mean over fresh agents, and half its interval if there are several."""
    mean, estimate = math.fsum(values) / len(values), mean_estimate(np.array(values))
    return f"{mean:.3f}" + (f" ± {estimate.high - mean:.3f}" if estimate else "")
