"""Draws docs/images/benchmarks.png from docs/benchmarks.json, which `discorl bench --record` keeps.

Times the matrix limit over commits, in processor time, with quartiles: a slowdown is a rise.
"""

from __future__ import annotations

from pathlib import Path

from discorl.bench.record import read_record
from discorl.runs.plots import COLOURS, pyplot, save_figure

DOCS = Path(__file__).parent
SUBJECTS = ("eager", "compiled", "reverse", "mixed")
TITLES = ("learner step, eager", "learner step, compiled", "meta-step, reverse", "meta-step, mixed")


def main() -> None:
    """Draw the picture."""
    plt = pyplot()
    entries = read_record(DOCS / "benchmarks.json")
    commits = list(dict.fromkeys(entry["commit"] for entry in entries))
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for subject, title, colour in zip(SUBJECTS, TITLES, COLOURS, strict=False):
        key = f"{subject}_cpu_over_limit"
        kept = [entry for entry in entries if key in entry["figures"]]
        if not kept:
            continue
        places = [commits.index(entry["commit"]) for entry in kept]
        middle, low, high = (
            [entry["figures"][f"{key}{end}"] for entry in kept] for end in ("", "_from", "_to")
        )
        axes.plot(places, middle, "o-", color=colour, label=title)
        axes.vlines(places, low, high, color=colour, alpha=0.5)
    axes.set_xticks(range(len(commits)), commits)
    axes.set_ylim(bottom=1)
    axes.set_xlabel("commit")
    axes.set_ylabel("times the matrix limit, processor time")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    save_figure(figure, DOCS / "images" / "benchmarks.png")


if __name__ == "__main__":
    main()
