"""Compute figures from what was measured: medians, spreads, ratios, and jobs that did not end before their limit."""

import json
import math
import statistics
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = dict[str, Any]
ENDS = ("start_s", "tail_s", "gone_s", "wall_s")  # a run that was cut may not have come to these
SINCE_LIMIT = ("gone_s", "wall_s")  # counted from where the limit is: in a cut run they exceed it


class BadRecord(Exception):
    """A bad file, in one line: what was found in it, and what was wanted."""


@dataclass(frozen=True)
class Measured:
    """One measure of one case on one side, of all rounds."""

    values: tuple[float, ...]  # of the rounds that came to it
    cut: int = 0  # rounds that had not come to it when they were cut
    limit: float | None = None  # seconds after which they were cut
    bound: bool = True  # is what is measured longer than the limit, in a run that was cut?

    @property
    def runs(self) -> int:
        return len(self.values) + self.cut

    @property
    def median(self) -> float | None:
        """Return the median; a cut run counts as longer than all others. None: it lies beyond the limit."""
        value = statistics.median([*self.values, *[math.inf] * self.cut])
        return value if math.isfinite(value) else None

    @property
    def at_least(self) -> float | None:
        """Return the median, or the limit that it lies beyond. None: unknown."""
        return self.limit if self.median is None and self.bound else self.median


@dataclass(frozen=True)
class Ratio:
    value: float
    bound: str = ""  # "<": it is less than that, as the other side was cut; ">": more, as this one was

    def meets(self, most: float) -> bool | None:
        """Return whether the ratio is at most that. None: the bound does not show it."""
        met = self.value <= most
        return None if self.bound == (">" if met else "<") else met


def ratio(ours: Measured | None, other: Measured | None) -> Ratio | None:
    """Return the ratio of the medians. None: a side is missing, both were cut, or the other is 0."""
    if ours is None or other is None or ours.median is other.median is None:
        return None
    mine, theirs = ours.at_least, other.at_least
    bound = ">" if ours.median is None else "<" if other.median is None else ""
    return Ratio(mine / theirs, bound) if mine is not None and theirs else None


def ratio_of_rounds(runs: list[Run], measure: str, **of: Any) -> list[float]:
    """Return the least and most of the rounds' ratios; empty if fewer than two rounds have both sides."""
    by_round: dict[Any, dict[str, float]] = {}
    for run in where(runs, **of):
        if measure in run["measures"]:
            by_round.setdefault(run.get("round"), {})[run["side"]] = run["measures"][measure]
    each = [sides["ours"] / sides["toolkit"] for sides in by_round.values() if "ours" in sides and sides.get("toolkit")]
    return [min(each), max(each)] if len(each) > 1 else []


def where(runs: Iterable[Run], **of: Any) -> list[Run]:
    """Return the runs whose fields have these values."""
    return [run for run in runs if all(run.get(name) == value for name, value in of.items())]


def measured(runs: Iterable[Run], measure: str, **of: Any) -> Measured | None:
    """Return the measure of runs of one case on one side. None: no run has it."""
    values, cut, limit = [], 0, None
    for run in where(runs, **of):
        if measure in run["measures"]:
            values.append(float(run["measures"][measure]))
        elif measure in ENDS and run.get("cut_at_s") is not None:
            cut, limit = cut + 1, run["cut_at_s"]
    return Measured(tuple(values), cut, limit, measure in SINCE_LIMIT or not cut) if values or cut else None


def read(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Read a record of a benchmark that is one of the known."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadRecord(f"{path}: {error}; wanted: a JSON file that a benchmark wrote") from None
    wanted = {"what": str, "date": str, "commit": str, "command": str, "machine": dict, "runs": list}
    found = record if isinstance(record, dict) else {}
    if missing := [name for name, kind in wanted.items() if not isinstance(found.get(name), kind)]:
        raise BadRecord(f"{path}: no {', '.join(missing)}; wanted: what benchmarks/machine.py writes")
    if record["what"] not in known:
        raise BadRecord(f"{path} is of {record['what']!r}, which has no page; wanted: {', '.join(known)}")
    for number, run in enumerate(record["runs"], 1):
        if not isinstance(run, dict) or not isinstance(run.get("measures"), dict):
            raise BadRecord(f"{path}: run {number} has no measures; wanted: an object with measures of numbers")
    return record
