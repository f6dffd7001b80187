"""Model cards: metadata that the hub reads, and a page that people read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

from discorl.library.catalogue import parameter_count
from discorl.life.playing import Evaluation
from discorl.rules.disco import DiscoRule
from discorl.training.agent import TrainedAgent

PLACE = "OWNER/NAME"
"""In a card, the repository until it is known."""
_LIBRARY = "discorl"
_LONG = ("config", "evaluation")
"""Provenance that is told elsewhere."""


@dataclass(frozen=True)
class Result:
    """Returns in one environment."""

    env: str
    what: str
    """Of whom."""
    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, env: str, what: str, evaluation: Evaluation) -> Result:
        """Of an agent's episodes."""
        mean, deviation = evaluation.mean_return, evaluation.std_return
        return cls(env, what, mean, deviation, evaluation.episodes)

    @property
    def value(self) -> str:
        """As the hub's leaderboards write it."""
        return f"{self.mean:.2f} +/- {self.deviation:.2f}"


@dataclass(frozen=True)
class Page:
    """What a card needs to know that is not in the agent or the rule."""

    name: str
    version: str
    """Of this package."""
    licence: str | None = None
    results: tuple[Result, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()
    """Files in the folder, and what they show."""
    commands: tuple[str, ...] = ()
    """What makes the same again."""


def agent_card(agent: TrainedAgent, page: Page) -> str:
    """The card of a trained agent."""
    env, rule = str(agent.info.get("env", "")), str(agent.info.get("rule", ""))
    facts = [(key, agent.info.get(key)) for key in ("env", "rule", "seed", "steps")]
    facts += [
        ("actions", agent.num_actions),
        ("observations", _space(agent.blueprint.observation_space)),
        ("parameters", f"{sum(tensor.numel() for tensor in agent.params.values()):,}"),
        ("discorl", page.version),
    ]
    use = [
        "path = snapshot_download(REPOSITORY)",
        "agent = discorl.load_agent(path)",
        "action, state = agent.act(observation)  # of one environment, or of many",
    ]
    if env:
        use.append(f"agent.watch({env!r}).save('play.gif')")
    return _card(
        page,
        [env, rule],
        f"An agent that plays `{env}`, trained by discorl with the update rule `{rule}`.",
        facts,
        use,
        "Returns are sums of an episode's rewards, as the environment gives them.",
    )


def rule_card(rule: DiscoRule, page: Page) -> str:
    """The card of a discovered rule."""
    config = asdict(rule.config)
    facts = [(k.replace("_", " "), v) for k, v in rule.provenance.items() if k not in _LONG]
    facts = [(key, value) for key, value in facts if key != "path"]
    facts += [
        ("parameters", f"{parameter_count(rule):,}"),
        *(config.pop("sizes", {}).items()),
        *config.items(),
        ("discorl", page.version),
    ]
    use = [
        "path = snapshot_download(REPOSITORY)",
        "rule = discorl.load_rule(path)",
        "run = discorl.train('catch', rule, 'runs/a')",
        "# or in a shell: discorl train catch --rule PATH",
    ]
    return _card(
        page,
        ["update-rule", "meta-learning"],
        "An update rule for reinforcement learning: a network that says what agents learn from "
        "their experience, in place of a loss written by hand. discorl trains agents with it.",
        facts,
        use,
        "Returns are those of agents that were new when the rule began to train them.",
    )


def fresh_agents(rule: DiscoRule) -> tuple[Result, ...]:
    """What a rule's own file tells of the fresh agents that tried it; nothing if it does not."""
    try:
        agents = json.loads(rule.provenance["evaluation"])["agents"]
        returns: dict[tuple[str, int], list[float]] = {}
        for agent in agents:
            place = str(agent["env"]), int(agent["steps"])
            returns.setdefault(place, []).append(float(agent["final_return"]))
    except (KeyError, ValueError, TypeError):
        return ()
    return tuple(
        Result(env, f"fresh agents after {steps} updates", fmean(own), pstdev(own), len(own))
        for (env, steps), own in returns.items()
    )


def _card(
    page: Page,
    tags: Sequence[str],
    summary: str,
    facts: Iterable[tuple[str, Any]],
    use: Sequence[str],
    note: str,
) -> str:
    blocks = [
        _metadata(page, tags),
        f"# {page.name}",
        summary,
        *(f"![{words}]({file})" for file, words in page.pictures),
        "## Results",
        *_results(page.results, note),
        "## How to load it",
        _code("sh", ["pip install discorl huggingface_hub"]),
        _code(
            "python",
            ["import discorl", "from huggingface_hub import snapshot_download", "", *use],
        ).replace("REPOSITORY", json.dumps(PLACE)),
        "## What it is",
        _table(("", ""), [(key, value) for key, value in facts if value is not None]),
    ]
    if page.commands:
        blocks += ["## How it was made", _code("sh", page.commands)]
    return "\n\n".join(blocks) + "\n"


def _metadata(page: Page, tags: Sequence[str]) -> str:
    """YAML, of which JSON is a part: texts are quoted as there."""
    known = dict.fromkeys(["reinforcement-learning", _LIBRARY, *map(_tag, tags)])
    lines = [f"library_name: {_LIBRARY}", "pipeline_tag: reinforcement-learning"]
    lines += ["tags:", *(f"- {json.dumps(tag)}" for tag in known if tag)]
    if page.licence is not None:
        lines.append(f"license: {json.dumps(page.licence)}")
    if page.results:
        index = [{"name": page.name, "results": [_indexed(result) for result in page.results]}]
        lines.append(f"model-index: {json.dumps(index, ensure_ascii=False)}")
    return "\n".join(["---", *lines, "---"])


def _indexed(result: Result) -> dict[str, Any]:
    metric = {
        "type": "mean_reward",
        "value": result.value,
        "name": f"mean return, {result.what}",
        "verified": False,
    }
    return {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": result.env, "type": result.env},
        "metrics": [metric],
    }


def _tag(text: str) -> str:
    """Short and without signs that search addresses have a use for."""
    return re.sub(r"[^\w./-]+", "-", text)[:60].strip("-")


def _results(results: Sequence[Result], note: str) -> list[str]:
    if not results:
        return ["None were measured for this card."]
    rows = [(r.env, r.what, f"{r.mean:.3f}", f"{r.deviation:.3f}", f"{r.count:,}") for r in results]
    head = ("environment", "of", "mean return", "standard deviation", "how many")
    return [_table(head, rows), note]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _code(language: str, lines: Sequence[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _space(space: Any) -> str:
    return str(space) if len(str(space)) <= 100 else type(space).__name__
