"""Fill the page about Pipe mode: records per second and processor time of each reader, and our ratios to the others."""

import statistics
from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import Run, where

OURS, OPERATOR, FILE = "our reader", "operator", "file"
MOST_BEHIND = 0.1  # of reading the same from a file: the aim


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs = record["runs"]
    formats = list(dict.fromkeys((run["format"], run["record"]) for run in runs))
    ratios = {each: to_others(where(runs, format=each[0], record=each[1])) for each in formats}
    loads = [run["load"] for run in runs]
    return {
        "table": table(runs, formats),
        "to_operator": _range([each[OPERATOR] for each in ratios.values() if OPERATOR in each]),
        "behind": {f"{kind} of {size}": behind(each) for (kind, size), each in ratios.items() if FILE in each},
        "least": 1 - MOST_BEHIND,
        "rounds": len({run["round"] for run in runs}),
        "loads": (min(loads), max(loads)) if loads else None,
    }


def table(runs: list[Run], formats: list[tuple[str, str]]) -> list[str]:
    """Return a row for each format, size of records and reader: medians of the rounds (least to most)."""
    lines = ["| format | record | reader | records/s | CPU seconds per GB |", "|---|---|---|---|---|"]
    for kind, size in formats:
        for reader in dict.fromkeys(run["reader"] for run in runs):
            if mine := where(runs, format=kind, record=size, reader=reader):
                cells = [spread(mine, "records_per_s", ",.0f"), spread(mine, "cpu_s_per_gb", ".2f")]
                lines.append(f"| {kind} | {size} | {reader} | {' | '.join(cells)} |")
    return lines


def spread(runs: list[Run], measure: str, form: str) -> str:
    """Return the median, with least and most."""
    values = [run["measures"][measure] for run in runs]
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def to_others(runs: list[Run]) -> dict[str, float]:
    """Return {other reader: how many times as fast as it our reader is, of medians}."""
    rates = {
        reader: statistics.median(run["measures"]["records_per_s"] for run in where(runs, reader=reader))
        for reader in dict.fromkeys(run["reader"] for run in runs)
    }
    return {reader: rates[OURS] / rate for reader, rate in rates.items() if reader != OURS and OURS in rates}


def behind(ratios: dict[str, float]) -> tuple[float, float | None]:
    """Return how many times as fast as the file our reader is, and the operator; None: it was not measured."""
    return ratios[FILE], ratios[FILE] / ratios[OPERATOR] if OPERATOR in ratios else None


def _range(values: list[float]) -> str:
    return " to ".join(dict.fromkeys(words.number(each) for each in (min(values), max(values)))) if values else ""
