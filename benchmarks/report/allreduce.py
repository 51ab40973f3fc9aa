"""The page about Horovod's allreduce: milliseconds by size, under our launcher and by hand."""

import statistics
from typing import Any

from benchmarks.machine import spread
from benchmarks.report.figures import Run, where

OURS, BY_HAND = "ours", "by hand"
UNITS = ((1 << 20, "MB"), (1 << 10, "KB"))


def context(record: dict[str, Any]) -> dict[str, Any]:
    """What the page's template takes beside the record."""
    runs = record["runs"]
    images = list(dict.fromkeys(run["image"] for run in runs))
    return {
        "tables": [(image, table(where(runs, image=image))) for image in images],
        "rounds": len({run["round"] for run in runs}),
    }


def table(runs: list[Run]) -> list[str]:
    """A row for each size: medians of the rounds (least to most), and ours divided by the same round's by hand."""
    lines = ["| bytes | by hand, ms | ours, ms | ours / by hand |", "|---|---|---|---|"]
    for size in runs[0]["measures"]:
        of = {side: [1000 * run["measures"][size] for run in where(runs, side=side)] for side in (BY_HAND, OURS)}
        ratios = [ours / hand for ours, hand in zip(of[OURS], of[BY_HAND], strict=True)]
        digits = ".2f" if statistics.median(of[BY_HAND]) < 10 else ".1f"
        cells = [_readable(int(size)), spread(of[BY_HAND], digits), spread(of[OURS], digits), spread(ratios, ".2f")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _readable(size: int) -> str:
    return next(f"{size // unit} {name}" for unit, name in UNITS if size >= unit)
