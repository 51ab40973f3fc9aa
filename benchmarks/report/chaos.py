"""Fill the page about random jobs under random faults: what was drawn, what happened, which rules were violated."""

from collections import Counter
from statistics import median
from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import Run, where

CODES = ("0", "143", "69")  # those that a job is most likely to end with
HOW = ("drawn", "happened")


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs, least = record["runs"], record.get("limits", {}).get("least_faults", 0)
    return {
        "codes": CODES,
        "least": least,
        "bad": [run for run in runs if run["violations"]],
        "enough": [run for run in runs if len(run["happened"]) >= least],
        "others": [run for run in runs if len(run["happened"]) < least],
        "modes": {mode: _ends(where(runs, mode=mode)) for mode in sorted({run["mode"] for run in runs})},
        "faults": {
            kind: [sum(run[what].count(kind) for run in runs) for what in HOW]
            for kind in sorted({kind for run in runs for kind in run["drawn"]})
        },
        "counts": dict(sorted(Counter(len(run["happened"]) for run in runs).items())),
        "stood_still": max((run["measures"]["stood_still_s"] for run in runs), default=0),
    }


def _ends(runs: list[Run]) -> list[Any]:
    ends = Counter(_end(run["exits"]) for run in runs)
    known = [ends[code] for code in CODES]
    times = [_times(runs, measure) for measure in ("wall_s", "end_s")]
    return [len(runs), *known, len(runs) - sum(known), *times]


def _end(exits: list[str]) -> str:
    """Return the job's exit code; hosts that were cut off or lost, with 69, count only if all others were killed."""
    codes = [exit for exit in exits if exit.isdigit()]
    others = [code for code in codes if code != "69"]
    return (others or codes or ["killed"])[0]


def _times(runs: list[Run], measure: str) -> str:
    known = [run["measures"][measure] for run in runs if measure in run["measures"]]
    return f"{words.number(median(known))} ({words.number(max(known))})" if known else ""
