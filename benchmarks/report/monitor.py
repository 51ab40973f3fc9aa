"""The page about the monitor: its processor time, memory and record, and what a step takes beside it."""

from typing import Any

from benchmarks.machine import spread
from benchmarks.report.figures import Run, where

WITHOUT = "without"


def context(record: dict[str, Any]) -> dict[str, Any]:
    """What the page's template takes beside the record."""
    loads = [run["load"] for run in record["runs"]]
    return {
        "table": table(record),
        "loads": (min(loads), max(loads)),
        "rounds": len({r["round"] for r in record["runs"]}),
    }


def table(record: dict[str, Any]) -> list[str]:
    """A row for each number of processes and each pace: medians of the rounds (least to most)."""
    lines = [
        "| processes | looks | CPU, % of one core | memory, MB | record, kB an hour | a step, times without it |",
        "|---|---|---|---|---|---|",
    ]
    runs = record["runs"]
    for processes in dict.fromkeys(run["processes"] for run in runs):
        plain = {run["round"]: run["measures"]["step_ms"] for run in where(runs, processes=processes, name=WITHOUT)}
        for name in dict.fromkeys(run["name"] for run in runs if run["name"] != WITHOUT):
            mine = where(runs, processes=processes, name=name)
            ratios = [run["measures"]["step_ms"] / plain[run["round"]] for run in mine if run["round"] in plain]
            cells = [
                str(processes),
                name,
                spread([100 * share for share in _all(mine, "cpu_share")], ".2f"),
                spread([size / 1e6 for size in _all(mine, "memory_bytes")], ".1f"),
                spread([size / 1e3 for size in _all(mine, "bytes_per_hour")], ",.0f"),
                spread(ratios, ".3f") if ratios else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _all(runs: list[Run], measure: str) -> list[float]:
    return [run["measures"][measure] for run in runs]
