"""Fill the page about Horovod's allreduce: milliseconds by size, under our launcher and by hand."""

import statistics
from typing import Any

from benchmarks.machine import spread
from benchmarks.report.figures import Run, where

OURS, BY_HAND = "ours", "by hand"
UNITS = ((1 << 20, "MB"), (1 << 10, "KB"))
LARGE_BYTES = 4 << 20  # from here on, the millisecond between Horovod's looks for work is negligible


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs = record["runs"]
    images = list(dict.fromkeys(run["image"] for run in runs))
    medians = [pair for image in images for pair in median_ratios(where(runs, image=image)).items()]
    return {
        "tables": [(image, table(where(runs, image=image))) for image in images],
        "limit": _readable(LARGE_BYTES),
        "small": _range([ratio for size, ratio in medians if size < LARGE_BYTES]),
        "large": _range([ratio for size, ratio in medians if size >= LARGE_BYTES]),
        "rounds": len({run["round"] for run in runs}),
    }


def table(runs: list[Run]) -> list[str]:
    """Return a row for each size: medians of the rounds (least to most), and ratios of ours to by hand."""
    lines = ["| bytes | by hand, ms | ours, ms | ours / by hand |", "|---|---|---|---|"]
    for size in runs[0]["measures"]:
        of = {side: [1000 * run["measures"][size] for run in where(runs, side=side)] for side in (BY_HAND, OURS)}
        ratios = _ratios(of)
        digits = ".2f" if statistics.median(of[BY_HAND]) < 10 else ".1f"
        cells = [_readable(int(size)), spread(of[BY_HAND], digits), spread(of[OURS], digits), spread(ratios, ".2f")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def median_ratios(runs: list[Run]) -> dict[int, float]:
    """Return {bytes: the median of the rounds' ratios of ours to by hand}."""
    sizes = runs[0]["measures"] if runs else {}
    return {
        int(size): statistics.median(
            _ratios({side: [run["measures"][size] for run in where(runs, side=side)] for side in (BY_HAND, OURS)})
        )
        for size in sizes
    }


def _ratios(of: dict[str, list[float]]) -> list[float]:
    return [ours / hand for ours, hand in zip(of[OURS], of[BY_HAND], strict=True)]


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def _readable(size: int) -> str:
    return next(f"{size // unit} {name}" for unit, name in UNITS if size >= unit)
