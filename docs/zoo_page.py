"""Writes docs/zoo.md: rules and peers task by task, from comparisons made by `discorl compare`.

`python docs/zoo_page.py FOLDER...` keeps what the page needs of the comparisons in docs/zoo.json,
with `--add` beside what is there; then, and without folders, the page and its pictures are written
from there. `--page worlds_zoo` does the same for docs/worlds_zoo.md. A test fails if they do not
fit together.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from discorl.comparison.config import CompareConfig, Entrant
from discorl.comparison.peers import is_peer, peer_algorithm
from discorl.comparison.run import CELLS, read_comparison_config, read_summary
from discorl.comparison.zoo import zoo_entry
from discorl.envs.scores import crafter_interval, field_score
from discorl.errors import DiscorlError
from discorl.runs.folder import file_name
from discorl.runs.plots import COLOURS, pyplot, save_figure
from discorl.settings import flag, flat_settings, split_spec
from discorl.statistics import (
    Estimate,
    difference_estimate,
    interquartile_estimate,
    mean_estimate,
    normalize,
)
from discorl.training.presets import make_config

DOCS = Path(__file__).parent
PAGES = {"zoo": "Zoo", "worlds_zoo": "Zoo of worlds"}
"""Page -> its title. `NAME.json`, `NAME.md` and the pictures in `images/NAME` belong together."""
MAIN = "disco103"
CURVE_POINTS = 30
NOT_RUN = "not run"
_LINES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Run:
    """One seed of one entrant on one task."""

    seed: int
    final_return: float
    env_steps: int
    seconds: float
    curve_steps: list[int]
    """Environment steps."""
    curve_returns: list[float]
    score: float | None = None
    """What the field reports in place of the return, where it does."""
    score_interval: list[float] | None = None
    """Of the score over this run's episodes, where it is known."""
    compiled: bool = False
    """Whether updates were compiled, which takes less time and rounds differently."""


@dataclass
class Column:
    """All runs of one entrant on one task."""

    command: str
    """What runs it again, but for the seeds."""
    runs: list[Run] = field(default_factory=list)

    @property
    def returns(self) -> np.ndarray:
        """Final returns [n]."""
        return np.array([run.final_return for run in self.runs])


@dataclass
class Task:
    """One environment."""

    budget: list[str]
    """The flag and the number that say how long runs are."""
    random_return: float | None
    score_name: str | None = None
    """Of the field's own score, where it has one."""
    random_score: float | None = None
    entrants: dict[str, Column] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """Of any entrant."""
        return sorted({run.seed for column in self.entrants.values() for run in column.runs})

    def returns(self, entrant: str) -> np.ndarray:
        """Final returns [n] of an entrant, which may not have run."""
        return self.entrants[entrant].returns if entrant in self.entrants else np.array([])

    def difference(self, main: str, other: str) -> Estimate | None:
        """Of the mean returns, if both have two seeds."""
        return difference_estimate(self.returns(main), self.returns(other))

    def scores(self, entrant: str) -> np.ndarray | None:
        """0 is random play, 1 the best mean; None if no entrant does better than random play."""
        best = max(float(column.returns.mean()) for column in self.entrants.values())
        if self.random_return is None or best <= self.random_return:
            return None
        return normalize(self.returns(entrant), self.random_return, best)


@dataclass
class Zoo:
    """All the page's numbers."""

    name: str
    """Of the page."""
    main: str
    """The entrant that the others are compared with."""
    tasks: dict[str, Task] = field(default_factory=dict)

    @property
    def entrants(self) -> list[str]:
        """The main one first."""
        found = [name for task in self.tasks.values() for name in task.entrants]
        return list(dict.fromkeys([self.main, *found]))


def read_comparisons(
    folders: Sequence[Path], main: str | None = None, earlier: Zoo | None = None, name: str = "zoo"
) -> Zoo:
    """Join comparisons; raises DiscorlError if they do not fit together.

    Args:
      main: the rule to compare with the others; by default the earlier one's, or Disco103.
      earlier: what they are joined to; runs that it has stay, and are not taken again.
      name: of the page.
    """
    main = main or (earlier.main if earlier else MAIN)
    zoo = Zoo(name, main, earlier.tasks if earlier else {})
    known = {
        (env, entrant, run.seed)
        for env, task in zoo.tasks.items()
        for entrant, column in task.entrants.items()
        for run in column.runs
    }
    for folder in folders:
        _add(zoo, folder, known)
    if not any(main in task.entrants for task in zoo.tasks.values()):
        raise DiscorlError(f"no run of {main}: name the rule to compare with others by --main")
    for task in zoo.tasks.values():
        for column in task.entrants.values():
            column.runs.sort(key=lambda run: run.seed)
    return zoo


def _add(zoo: Zoo, folder: Path, known: Collection[tuple[str, str, int]]) -> None:
    config = read_comparison_config(folder)
    summary = read_summary(folder)
    found = 0
    for env in config.envs:
        new = Task(_budget(config), summary.anchors[env].random_return)
        if random := summary.random_score(env):
            new.score_name, new.random_score = random.name, round(random.value, 6)
        for entrant in config.entrants():
            runs = summary.groups[entrant.label, env].runs
            if not runs:
                continue
            found += len(runs)
            task = zoo.tasks.setdefault(env, new)
            if task.budget != _budget(config):
                raise DiscorlError(f"{folder}: {env}: another number of steps than before it")
            command = _command(config, entrant, env)
            column = task.entrants.setdefault(entrant.label, Column(command))
            if column.command != command:
                raise DiscorlError(f"{folder}: {entrant.label} on {env}: other settings before it")
            runs = [run for run in runs if (env, entrant.label, run.seed) not in known]
            twice = {run.seed for run in runs} & {run.seed for run in column.runs}
            if twice:
                raise DiscorlError(
                    f"{folder}: {entrant.label} on {env}, seed {min(twice)}: is there already"
                )
            column.runs += [_run(run) for run in runs]
    left_out = len(list((folder / CELLS).glob("*.json"))) - found
    if left_out > 0:
        print(
            f"{folder}: {left_out} runs left out, made with other settings than the same command "
            "has now",
            file=sys.stderr,
        )


def _run(result: Any) -> Run:
    curve = np.array(result.curve_by_env_steps())
    score = field_score(result.env, result.final_return, result.outcomes)
    interval = None
    if score is not None and score.name == "crafter_score":
        interval = [round(v, 6) for v in crafter_interval(result.outcomes, result.episodes)]
    points = np.linspace(0, len(curve) - 1, min(CURVE_POINTS, len(curve))).round().astype(int)
    return Run(
        result.seed,
        round(result.final_return, 6),
        result.env_steps,
        round(result.seconds, 1),
        curve[points, 0].round().astype(int).tolist(),
        curve[points, 1].round(4).tolist(),
        score and round(score.value, 6),
        interval,
        result.config.get("compile", False),
    )


def _budget(config: CompareConfig) -> list[str]:
    if config.env_steps is None:
        return ["--steps", str(config.steps)]
    return ["--env-steps", str(config.env_steps)]


def _command(config: CompareConfig, entrant: Entrant, env: str) -> str:
    """What runs an entrant on a task again, without seeds."""
    if entrant.is_peer:
        words = ["discorl", "compare", "--rules", entrant.label, "--envs", env, *_budget(config)]
        return shlex.join([*words, "--set", *config.set] if config.set else words)
    words = ["discorl", "train", env, "--rule", entrant.rule]
    if config.preset != CompareConfig.preset:
        words += ["--preset", config.preset]
    words += _budget(config)
    plain = flat_settings(make_config(env, entrant.rule, config.preset))
    for name, value in flat_settings(config.train_config(entrant, env, 0)).items():
        if name not in ("seed", "steps", "compile") and value != plain[name]:
            words += _flag_words(name, value)
    return shlex.join(words)


def _flag_words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    values = value if isinstance(value, tuple | list) else [value]
    return [flag(name), *map(str, values)]


def dump(zoo: Zoo) -> str:
    """As JSON, with each list on one line."""
    text = json.dumps(asdict(zoo), indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text) + "\n"


def load(text: str) -> Zoo:
    """From what `dump` returned."""
    values = json.loads(text)
    tasks = {
        env: Task(
            task["budget"],
            task["random_return"],
            task["score_name"],
            task["random_score"],
            {
                name: Column(column["command"], [Run(**run) for run in column["runs"]])
                for name, column in task["entrants"].items()
            },
        )
        for env, task in values["tasks"].items()
    }
    return Zoo(values["name"], values["main"], tasks)


def page(zoo: Zoo) -> str:
    """The whole page."""
    sections = [_introduction(zoo), _summary(zoo)]
    sections += [_section(zoo, env, task) for env, task in zoo.tasks.items()]
    return "\n".join(sections)


def _introduction(zoo: Zoo) -> str:
    text = f"""# {PAGES[zoo.name]}

<!-- Written by docs/zoo_page.py from docs/{zoo.name}.json: run it again, do not edit this page. -->

Every entrant learns every task from scratch, at equal numbers of environment steps in whole
rollouts, by `discorl compare`. A number is the mean return of the last 100 training episodes,
averaged over seeds, with its 95% t-interval. Each run had one thread. The commands under each task
run it again: of a rule its first seed, of a peer all of them.
"""
    if zoo.name == "zoo":
        text += """
Our presets were chosen on LunarLander-v3, FrozenLake-v1, Acrobot-v1, MiniGrid-Empty-8x8 and
MinAtar's Breakout and Asterix, with seed 100, which is not among those reported here. The other
tasks had no part in the choice.
"""
    if zoo.name == "worlds_zoo":
        text += """
[Worlds of the paper](worlds.md#learning-on-two-cores) says what is compared. No preset was chosen
on these environments.
"""
    if any(name.startswith("zoo/") for name in zoo.entrants):
        text += """
`zoo/ppo` and `zoo/dqn` are stable-baselines3's, with the settings that rl-baselines3-zoo tuned for
the task: see [Comparing rules](compare.md#tuned-peers).
"""
    return text


def _summary(zoo: Zoo) -> str:
    """Tasks x entrants, how often the main one is at least level, and interquartile means."""
    main, *others = zoo.entrants
    rows = [["task", "random play", *map(_code, zoo.entrants)]]
    for env, task in zoo.tasks.items():
        digits = _digits(task)
        cells = [_short(task, name, digits) for name in zoo.entrants]
        for index, other in enumerate(others, start=1):
            if verdict := _verdict(task.difference(main, other)):
                cells[index] += f", {verdict}"
        rows.append([_code(env), _number(task.random_return, digits), *cells])
    levels = (_level_count(zoo, main, [other]) for other in others)
    rows.append(["at least level", "", "", *levels])
    rows.append(["IQM of scores [95% interval]", "", *(_iqm(zoo, name) for name in zoo.entrants)])
    lines = [
        "## All tasks\n",
        _table(rows),
        f"The words say how {_code(main)} does against that entrant: *level* if the 95% interval",
        "of the difference between the means (Welch's) includes 0, else *better* or *worse*. With",
        "few seeds these intervals are wide, so *level* may mean that more seeds are needed.",
        "n: seeds.",
    ]
    lines += _against_tuned(zoo)
    lines += [
        f"\nIQM: the interquartile mean of the scores of all runs on {_code(main)}'s tasks,",
        "where 0 is random play and 1 the best entrant's mean on that task. Its interval is a",
        "bootstrap over seeds, drawn anew within each task: it says nothing about other tasks, and",
        "there is none where a task has a single seed.",
    ]
    beaten = [env for env, task in zoo.tasks.items() if task.scores(main) is None]
    if beaten:
        words = ", ".join(map(_code, beaten))
        lines += [f"\nNot in the IQM, because no entrant does better than random play: {words}."]
    return "\n".join(line for line in lines if line) + "\n"


def _against_tuned(zoo: Zoo) -> list[str]:
    """Lines that say on how many tasks each rule is at least level with all tuned peers."""
    peers = [name for name in zoo.entrants if name.startswith("zoo/")]
    rules = [name for name in zoo.entrants if not is_peer(name)]
    counts = [
        (name, count) for name in rules if peers and (count := _level_count(zoo, name, peers))
    ]
    if not counts:
        return []
    words = " and ".join(map(_code, peers))
    tasks = ", ".join(f"{_code(name)} on {count} tasks" for name, count in counts)
    return [f"\nAt least level with {words}, where all have two seeds or more: {tasks}."]


def _level_count(zoo: Zoo, name: str, others: Sequence[str]) -> str:
    """On how many of the tasks that can be judged an entrant is not worse than any other."""
    verdicts = [
        [_verdict(task.difference(name, other)) for other in others] for task in zoo.tasks.values()
    ]
    judged = [found for found in verdicts if all(found)]
    level = sum("worse" not in found for found in judged)
    return f"{level} of {len(judged)}" if judged else ""


def _iqm(zoo: Zoo, name: str) -> str:
    """Over the main entrant's tasks; means over fewer of them would not compare."""
    scored = [task for task in zoo.tasks.values() if task.scores(zoo.main) is not None]
    scored = [task for task in scored if len(task.returns(zoo.main))]
    scores = [task.scores(name) for task in scored if len(task.returns(name))]
    if not scored:
        return ""
    if len(scores) < len(scored):
        return f"has {len(scores)} of {len(scored)} tasks"
    found = [part for part in scores if part is not None]
    estimate = interquartile_estimate(found)
    if min(map(len, found)) == 1:
        return f"{estimate.value:.3f}, single seeds"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _section(zoo: Zoo, env: str, task: Task) -> str:
    unit = "environment steps" if task.budget[0] == "--env-steps" else "training steps"
    seeds = ", ".join(map(str, task.seeds))
    digits = _digits(task)
    random = _number(task.random_return, digits) + _random_score(task)
    ran = [name for name in zoo.entrants if name in task.entrants]
    commands = [_with_seeds(name, task.entrants[name]) for name in ran]
    score = [task.score_name.replace("_", " ")] if task.score_name else []
    head = ["entrant", "return [95% interval]", *score, "n", "environment steps"]
    head += ["seconds on one core", f"{_code(zoo.main)} minus it", f"{_code(zoo.main)} is"]
    rows = [head, *(_row(zoo, task, name, digits) for name in zoo.entrants)]
    parts = [
        f"## {env}\n",
        f"{int(task.budget[1]):,} {unit}; seeds {seeds}; random play: {random}.\n",
        "```sh",
        *commands,
        "```\n",
        f"![Learning curves on {env}](images/{zoo.name}/{picture_name(env)})\n",
        _table(rows),
        *_notes(task, ran, env),
    ]
    return "\n".join(parts)


def _random_score(task: Task) -> str:
    if task.score_name is None or task.random_score is None:
        return ""
    return f", {task.score_name.replace('_', ' ')} {task.random_score:.2f}"


def _with_seeds(name: str, column: Column) -> str:
    if is_peer(split_spec(name)[0]):
        return f"{column.command} --seeds {max(run.seed for run in column.runs) + 1}"
    return f"{column.command} --seed {column.runs[0].seed}"


def _row(zoo: Zoo, task: Task, name: str, digits: int) -> list[str]:
    score = [_score(task, name)] if task.score_name else []
    if name not in task.entrants:
        return [_code(name), NOT_RUN, *score, "0", "", "", "", ""]
    runs = task.entrants[name].runs
    steps = "/".join(f"{count:,}" for count in sorted({run.env_steps for run in runs}))
    seconds = f"{np.mean([run.seconds for run in runs]):,.0f}"
    row = [_code(name), _mean(task, name, digits), *score, str(len(runs)), steps, seconds]
    if name == zoo.main:
        return [*row, "", ""]
    difference = task.difference(zoo.main, name)
    return [*row, _interval(difference, digits), _verdict(difference)]


def _notes(task: Task, ran: Sequence[str], env: str) -> list[str]:
    """What readers of the table must know."""
    notes = []
    for name in ran:
        missing = sorted({*task.seeds} - {run.seed for run in task.entrants[name].runs})
        if missing:
            notes.append(f"{_code(name)}: seeds {NOT_RUN}: {', '.join(map(str, missing))}.\n")
        compiled = [str(run.seed) for run in task.entrants[name].runs if run.compiled]
        if compiled:
            notes.append(
                f"{_code(name)}: run with `--compile`, which is faster and rounds differently: "
                f"seeds {', '.join(compiled)}.\n"
            )
        algorithm, _ = split_spec(name)
        if algorithm.startswith("zoo/") and zoo_entry(peer_algorithm(algorithm), env) is None:
            notes.append(f"{_code(name)}: no entry in the zoo; the package's own defaults.\n")
    return notes


def _mean(task: Task, name: str, digits: int) -> str:
    estimate = mean_estimate(task.returns(name))
    if estimate is None:
        return f"{task.returns(name).mean():.{digits}f}"
    return _interval(estimate, digits)


def _score(task: Task, name: str) -> str:
    """The field's own score, with its interval over two seeds or more, or one run's episodes."""
    runs = task.entrants[name].runs if name in task.entrants else []
    values = np.array([run.score for run in runs if run.score is not None])
    if not len(values):
        return ""
    estimate = mean_estimate(values)
    if estimate is not None:
        return _interval(estimate, 2)
    if (interval := runs[0].score_interval) is not None:
        return f"{values[0]:.2f}, episodes: [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{values[0]:.2f}"


def _short(task: Task, name: str, digits: int) -> str:
    """A mean and half of its interval."""
    returns = task.returns(name)
    if not len(returns):
        return NOT_RUN
    estimate = mean_estimate(returns)
    text = f"{returns.mean():.{digits}f}"
    text += f" ± {estimate.high - estimate.value:.{digits}f}" if estimate else ""
    return f"{text} (n = {len(returns)})"


def _interval(estimate: Estimate | None, digits: int) -> str:
    if estimate is None:
        return ""
    value, low, high = (f"{v:.{digits}f}" for v in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _verdict(difference: Estimate | None) -> str:
    if difference is None:
        return ""
    if difference.low <= 0 <= difference.high:
        return "level"
    return "better" if difference.value > 0 else "worse"


def _digits(task: Task) -> int:
    """Decimals that leave four digits of the task's largest return."""
    largest = max(float(np.abs(column.returns).max()) for column in task.entrants.values())
    return min(max(4 - math.ceil(math.log10(max(largest, 1e-9))), 0), 3)


def _number(value: float | None, digits: int) -> str:
    return "not known" if value is None else f"{value:.{digits}f}"


def _code(text: str) -> str:
    return f"`{text}`"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def picture_name(env: str) -> str:
    """The file of a task's picture."""
    return f"{file_name(env)}.png"


def draw(zoo: Zoo, folder: Path) -> None:
    """A picture for each task: mean over seeds, and a band from lowest to highest."""
    plt = pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    for env, task in zoo.tasks.items():
        figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
        if task.random_return is not None:
            axes.axhline(
                task.random_return, color="grey", linestyle=":", linewidth=1, label="random play"
            )
        for index, name in enumerate(zoo.entrants):
            if name in task.entrants:
                _draw_runs(axes, task.entrants[name].runs, name, index)
        axes.set_title(env, fontsize="medium")
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return of the last 100 episodes")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize="small")
        save_figure(figure, folder / picture_name(env))
        plt.close(figure)


def _draw_runs(axes: Any, runs: Sequence[Run], name: str, index: int) -> None:
    """Seeds may have logged at different steps: their curves are read at the same ones."""
    start = max(run.curve_steps[0] for run in runs)
    end = max(min(run.curve_steps[-1] for run in runs), start)
    steps = np.linspace(start, end, CURVE_POINTS)
    values = np.stack([np.interp(steps, run.curve_steps, run.curve_returns) for run in runs])
    colour, line = COLOURS[index % len(COLOURS)], _LINES[index // len(COLOURS) % len(_LINES)]
    axes.plot(steps, values.mean(axis=0), color=colour, linestyle=line, label=name)
    axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15)


def main(args: Sequence[str] | None = None, docs: Path = DOCS) -> None:
    """Read the folders, if any are given, and write everything else."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, help="comparisons to join")
    parser.add_argument("--add", action="store_true", help="keep the runs that are there already")
    parser.add_argument("--main", help="the rule to compare with the others")
    parser.add_argument("--page", choices=PAGES, default="zoo", help="which of the pages")
    given = parser.parse_args(args)
    data = docs / f"{given.page}.json"
    try:
        if given.folders:
            earlier = load(data.read_text()) if given.add and data.exists() else None
            zoo = read_comparisons(given.folders, given.main, earlier, given.page)
            data.write_text(dump(zoo))
        elif not data.exists():
            parser.error(f"there is no {data.name} yet: give folders of comparisons")
    except DiscorlError as error:
        parser.error(str(error))
    zoo = load(data.read_text())
    data.with_suffix(".md").write_text(page(zoo))
    draw(zoo, docs / "images" / zoo.name)


if __name__ == "__main__":
    main()
