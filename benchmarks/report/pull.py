"""Fill the page about pulling: what a registry holds of each image, and what it takes to fetch and to unpack that."""

import statistics
from typing import Any

from benchmarks.machine import spread
from benchmarks.report import words
from benchmarks.report.figures import Measured, Ratio, Run, ratio, where

WAYS = {"own": "docker's own", "unpigz": "unpigz"}
OURS, BEFORE = "ours", "ours, before"
MOST = 0.5  # of the time before: the aim
TIMES = {"pull_s": "the pull, s", "unpack_s": "unpacking, s", "cpu_s": "CPU, s", "first_run_s": "first start, s"}


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    rounds = len({run["round"] for run in record["runs"]})
    lines = gains(record["runs"])
    return {
        "table": table(record), "several": len(ways(record["runs"])) > 1, "rounds": rounds,
        "found": medians(record["runs"]), "gains": lines, "gain": ", ".join(gain(line) for line in lines[2:]),
    }  # fmt: skip


def table(record: dict[str, Any]) -> list[str]:
    """Return a row for each image and each way: its size, and medians of the rounds (least to most)."""
    several = len(ways(record["runs"])) > 1
    heads = ("image", "compressed, MB", "unpacked, MB", "files", *TIMES.values())
    lines = ["| gzip by " * several + f"| {' | '.join(heads)} |", "|---" * (several + len(heads)) + "|"]
    for way in ways(record["runs"]):
        for name in dict.fromkeys(run["image"] for run in record["runs"]):
            if runs := where(record["runs"], way=way, image=name):
                image = record["images"][name]
                cells = [f"{image[size] / 1e6:,.0f}" for size in ("compressed_bytes", "bytes")]
                cells.append(f"{image['files']:,}")
                cells += [spread([run["measures"][measure] for run in runs], ".1f") for measure in TIMES]
                lines.append(f"| {called(way)} " * several + f"| {name} | {' | '.join(cells)} |")
    return lines


def gains(runs: list[Run]) -> list[str]:
    """Return a row for each way: our image's ratio to what it was before; empty if that was not pulled."""
    lines = []
    for way in ways(runs):
        now, before = (by_round(runs, way, image) for image in (OURS, BEFORE))
        cells = [_ratio(now, before, measure) for measure in ("pull_s", "cpu_s")]
        if (found := _medians(now, before, "pull_s")) and all(cells):
            lines.append(f"| {called(way)} | {' | '.join(cells)} | {words.verdict(found.meets(MOST))} |")
    head = ["| gzip by | the pull, times before | CPU, times before | at most 0.5 |", "|---|---|---|---|"]
    return [*head, *lines] if lines else []


def gain(line: str) -> str:
    """Return verdict and ratio of a row of gains: `**missed** (0.999 (0.942 to 1.06) times as long)`."""
    _, ratio, _, verdict = (cell.strip() for cell in line.strip("|").split("|"))
    return f"{verdict} ({ratio.partition(' ')[0]} times as long)"


def by_round(runs: list[Run], way: str, image: str) -> dict[int, dict[str, float]]:
    return {run["round"]: run["measures"] for run in where(runs, way=way, image=image)}


def _medians(now: dict[int, dict[str, float]], before: dict[int, dict[str, float]], measure: str) -> Ratio | None:
    sides = (tuple(each[measure] for each in side.values()) for side in (now, before))
    return ratio(*(Measured(side) if side else None for side in sides))


def _ratio(now: dict[int, dict[str, float]], before: dict[int, dict[str, float]], measure: str) -> str:
    each = [now[number][measure] / before[number][measure] for number in now.keys() & before.keys()]
    return words.ratio(_medians(now, before, measure), [min(each), max(each)] if len(each) > 1 else [])


def medians(runs: list[Run]) -> dict[str, float]:
    """Return {image: seconds of the pull, with docker's own gzip}."""
    found: dict[str, list[float]] = {}
    for run in where(runs, way="own"):
        found.setdefault(run["image"], []).append(run["measures"]["pull_s"])
    return {image: statistics.median(each) for image, each in found.items()}


def ways(runs: list[Run]) -> list[str]:
    return list(dict.fromkeys(run["way"] for run in runs))


def called(way: str) -> str:
    decompressor, _, rate = way.partition("@")
    return WAYS[decompressor] + (f", {rate} MB/s a connection" if rate else "")
