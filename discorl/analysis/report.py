"""An analysis on disk: tables, what is worth knowing of them, and a page with the figures."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from discorl.analysis.closest import ALL
from discorl.analysis.responses import Row
from discorl.analysis.traces import before_the_end
from discorl.files import write_atomically

Tables = dict[str, list[Row]]
"""Name of a figure -> its data."""

TITLES = {
    "responses": "What the push of an action responds to",
    "credit": "How far back credit flows",
    "sensitivity": "What each target is sensitive to",
    "closest": "The closest hand-written update",
    "traces": "Along an agent's episodes",
    "probes": "What the outputs know of the future",
    "reliance": "What the rule relies on",
    "robustness": "How robust the rule is",
}
PAGE, SUMMARY = "README.md", "analysis.json"


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Rows as CSV; what a row lacks stays empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def write(place: Path) -> None:
        with place.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)

    write_atomically(path, write)


def summarise(tables: Tables, label: str) -> dict[str, Any]:
    """What the tables say of one rule, in few numbers."""
    own = {name: [r for r in rows if r["rule"] == label] for name, rows in tables.items()}
    found: dict[str, Any] = {}
    if rows := own.get("responses"):
        found["push_by_advantage"] = {
            f"{r['x']:g}": r["push"] for r in rows if r["input"] == "advantage"
        }
    if rows := own.get("credit"):
        kinds = dict.fromkeys(r["what"] for r in rows)
        found["credit_by_lag"] = {k: [r["relative"] for r in rows if r["what"] == k] for k in kinds}
    if rows := own.get("sensitivity"):
        found["sensitivity"] = _sums(rows)
    if rows := own.get("closest"):
        found["closest"] = {r["feature"]: {"r2": r["r2"], "slope": r["slope"]} for r in rows}
    if rows := own.get("traces"):
        found["by_steps_to_the_end"] = before_the_end(rows)
    if rows := own.get("probes"):
        outputs = dict.fromkeys(r["output"] for r in rows)
        found["probes"] = {
            name: {r["quantity"]: r["r2"] for r in rows if r["output"] == name} for name in outputs
        }
    if rows := own.get("reliance"):
        found["reliance"] = _curves(rows)
    if rows := own.get("robustness"):
        found["robustness"] = _sweeps(rows)
    return found


def _sweeps(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Sweep -> value -> the return at the end of each seed, and the mean along all curves."""
    found: dict[str, dict[str, Any]] = {}
    for sweep, value in dict.fromkeys((row["sweep"], row["value"]) for row in rows):
        own = [row for row in rows if (row["sweep"], row["value"]) == (sweep, value)]
        found.setdefault(sweep, {})[str(value)] = {
            "final_returns": [row["final_return"] for row in own],
            "mean_along_curves": mean(row["mean_along_curve"] for row in own),
        }
    return found


def _sums(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Target -> input -> change, summed over lags."""
    sums: dict[str, dict[str, float]] = {}
    for row in rows:
        by_input = sums.setdefault(row["target"], {})
        by_input[row["input"]] = by_input.get(row["input"], 0.0) + row["change"]
    return sums


def _curves(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Variant -> the return at the end of each seed, and the mean along all curves."""
    last = max(row["step"] for row in rows)
    return {
        variant: {
            "final_returns": [
                r["return"] for r in rows if (r["variant"], r["step"]) == (variant, last)
            ],
            "mean_along_curves": mean(r["return"] for r in rows if r["variant"] == variant),
        }
        for variant in dict.fromkeys(row["variant"] for row in rows)
    }


def plain(value: Any) -> Any:
    """The same with None for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def page(result: dict[str, Any], figures: Sequence[str]) -> str:
    """The figures in Markdown, and how to make them again."""
    rules = ", ".join(name for name, own in result["rules"].items() if not own["null"])
    lines = [f"# Inside {rules}", "", "Made with:", "", "```sh", result["command"], "```", ""]
    lines += [
        "Each rule trained an agent; `random` has random parameters and is there for comparison.",
        "",
        "| rule | return of the last 100 training episodes | closest update | R² | R² of all |",
        "| --- | ---: | --- | ---: | ---: |",
        *(_rule_line(name, own) for name, own in result["rules"].items()),
    ]
    for name in figures:
        lines += ["", f"## {TITLES[name]}", "", f"![{TITLES[name]}]({name}.png)", ""]
        lines += [f"Data: [{name}.csv]({name}.csv)"]
    return "\n".join(lines) + "\n"


def _rule_line(name: str, own: dict[str, Any]) -> str:
    closest = {k: v["r2"] for k, v in own.get("closest", {}).items() if v["r2"] is not None}
    together = closest.pop(ALL, None)
    best = max(closest, key=lambda k: closest[k]) if closest else None
    cells = [
        name,
        "–" if own["episode_return"] is None else f"{own['episode_return']:.2f}",  # noqa: RUF001
        best or "–",  # noqa: RUF001
        f"{closest[best]:.2f}" if best else "–",  # noqa: RUF001
        "–" if together is None else f"{together:.2f}",  # noqa: RUF001
    ]
    return f"| {' | '.join(cells)} |"
