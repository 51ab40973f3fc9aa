"""Fill the page about the monitor: its processor time, memory and record, and what a step takes beside it."""

import statistics
from typing import Any

from benchmarks.machine import spread
from benchmarks.report.figures import Run, where

WITHOUT, AIMED_AT = "without", "every second"
MOST_CPU_PERCENT, MOST_MEMORY_MB = 1, 30  # the aims


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    loads = [run["load"] for run in record["runs"]]
    return {
        "table": table(record),
        "loads": (min(loads), max(loads)),
        "rounds": len({r["round"] for r in record["runs"]}),
        "cpu": aim(record["runs"], "cpu_share", 100, ".2f", MOST_CPU_PERCENT, "%"),
        "memory": aim(record["runs"], "memory_bytes", 1e-6, ".1f", MOST_MEMORY_MB, "MB"),
    }


def aim(runs: list[Run], measure: str, scale: float, form: str, most: float, unit: str) -> dict[str, Any]:
    """Return the range of the medians at the pace that is aimed at, and the numbers of processes that miss the aim."""
    found = {
        processes: scale * statistics.median(_all(where(runs, processes=processes, name=AIMED_AT), measure))
        for processes in dict.fromkeys(run["processes"] for run in where(runs, name=AIMED_AT))
    }
    ends = dict.fromkeys(f"{end:{form}}" for end in (min(found.values()), max(found.values())))
    missed = [processes for processes, value in found.items() if value > most]
    return {"range": " to ".join(ends), "most": most, "unit": unit, "missed": missed}


def table(record: dict[str, Any]) -> list[str]:
    """Return a row for each number of processes and each pace: medians of the rounds (least to most)."""
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
