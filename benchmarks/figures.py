"""Compute and format figures of measurements: medians, spreads and ratios, even of jobs cut at a limit."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.machine import is_wide

Run = dict[str, Any]
ENDS = ("start_s", "tail_s", "gone_s", "wall_s")  # a run that was cut may not have come to these
SINCE_LIMIT = ("gone_s", "wall_s")  # counted from where the limit is: in a cut run they exceed it
MEASURES = {  # title, unit
    "start_s": ("Start", "s"),
    "tail_s": ("Tail", "s"),
    "install_s": ("Install", "s"),
    "install_cpu_s": ("CPU time of the install", "s"),
    "gone_s": ("Until all hosts are gone", "s"),
    "told_s": ("Until the script gets SIGTERM", "s"),
    "hang_told_s": ("Until the log reports the hang", "s"),
    "wall_s": ("Whole job", "s"),
    "launcher_tail_s": ("Tail after the scripts' processes are gone", "s"),
    "launcher_memory_bytes": ("Most memory", "MB"),
    "launcher_cpu_s": ("CPU time", "s"),
    "lines_per_s": ("Lines per second", ""),
    "cpu_us_per_line": ("CPU time per line", "µs"),
    "split_share": ("Split lines", "%"),
    "mislabelled_share": ("Lines with a wrong label", "%"),
    "unlabelled_share": ("Lines without a label", "%"),
    "plan_s": ("Plan, MPI", "s"),
    "plan_mwms_s": ("Plan, MultiWorkerMirrored", "s"),
    "plan_ps_s": ("Plan, parameter servers", "s"),
    "rendezvous_s": ("Rendezvous", "s"),
    "rendezvous_coordinator_cpu_s": ("CPU time of the coordinator, to the rendezvous", "s"),
    "requests_per_s": ("Heartbeats per second", ""),
    "coordinator_cpu_share": ("Coordinator's CPU", "%"),
    "coordinator_memory_bytes": ("Coordinator's memory", "MB"),
    "memory_per_host_bytes": ("Memory per host", "MB"),
    "verdict_s": ("Failure to the verdict", "s"),
    "told_all_s": ("Failure until all hosts know", "s"),
    "end_coordinator_cpu_s": ("CPU time of the coordinator, from the failure to the end", "s"),
    "all_ended_s": ("Failure until all hosts have ended", "s"),
    "cpu_share": ("CPU of one core", "%"),
    "memory_bytes": ("Memory", "MB"),
    "bytes_per_hour": ("Record an hour", "MB"),
    "step_ms": ("A step", "ms"),
    "records_per_s": ("Records per second", ""),
    "cpu_s_per_gb": ("CPU time per GB", "s"),
    "auc": ("AUC", ""),
    "examples_per_s": ("Examples per second", ""),
}
SCALE = {"MB": 1e-6, "%": 100}


@dataclass(frozen=True)
class Figure:
    """One measure of one case on one side, over all rounds."""

    values: tuple[float, ...]  # of the rounds that came to it
    cut: int = 0  # rounds that had not come to it when they were cut
    limit: float | None = None  # seconds after which they were cut
    bound: bool = True  # whether what is measured is longer than the limit in a run that was cut

    @property
    def runs(self) -> int:
        return len(self.values) + self.cut

    @property
    def median(self) -> float | None:
        """Return the median, where a cut run counts as the longest; None if the median is beyond the limit."""
        value = statistics.median([*self.values, *[math.inf] * self.cut])
        return value if math.isfinite(value) else None

    @property
    def at_least(self) -> float | None:
        """Return the median.

        If runs were cut before the median was known, return the seconds of the cut; None if unknown.
        """
        return self.limit if self.median is None and self.bound else self.median


@dataclass(frozen=True)
class Ratio:
    """Our figure divided by another's."""

    value: float
    bound: str = ""  # "<": it is less than that, as the other side was cut; ">": more, as this one was

    def meets(self, most: float) -> bool | None:
        """Return whether the ratio is at most `most`.

        Return None if only a bound of the ratio is known, and the ratio may lie on either side of `most`.
        """
        met = self.value <= most
        return None if self.bound == (">" if met else "<") else met

    def __str__(self) -> str:
        return f"{self.bound}{self.value:.3f}" if 0.01 <= self.value < 1 else f"{self.bound}{number(self.value)}"


def where(runs: Iterable[Run], **of: Any) -> list[Run]:
    """Return the runs whose fields have the given values."""
    return [run for run in runs if all(run.get(name) == value for name, value in of.items())]


def figure(runs: Iterable[Run], measure: str, **of: Any) -> Figure | None:
    """Return the measure of the runs whose fields have these values; None if no run has it."""
    values, cut, limit = [], 0, None
    for run in where(runs, **of):
        if measure in run["measures"]:
            values.append(float(run["measures"][measure]))
        elif measure in ENDS and run.get("cut_at_s") is not None:
            cut, limit = cut + 1, run["cut_at_s"]
    return Figure(tuple(values), cut, limit, measure in SINCE_LIMIT or not cut) if values or cut else None


def ratio(ours: Figure | None, other: Figure | None) -> Ratio | None:
    """Return the ratio of the medians; None if a side is missing, both were cut, or the other is 0."""
    if ours is None or other is None or ours.median is other.median is None:
        return None
    mine, theirs = ours.at_least, other.at_least
    bound = ">" if ours.median is None else "<" if other.median is None else ""
    return Ratio(mine / theirs, bound) if mine is not None and theirs else None


# ---- as the pages show them -----------------------------------------------------------------------------------------


def title(measure: str) -> str:
    return MEASURES[measure][0]


def unit(measure: str) -> str:
    return MEASURES[measure][1]


def heading(measure: str) -> str:
    return ", ".join(filter(None, MEASURES[measure]))


def number(value: float) -> str:
    """Return two or three significant digits: 0.048, 0.48, 4.80, 48.0, 480, 4,800."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    if size < 0.1:
        return f"{value:.{1 - math.floor(math.log10(size))}f}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def in_unit(value: float, measure: str) -> str:
    if measure == "auc":
        return f"{value:.4f}"
    return number(value * SCALE.get(unit(measure), 1))


def shown(found: Figure | None, measure: str, usual: int = 0) -> str:
    """Return the median, and (least-most) if they are wide apart; `*` after one round where more are usual; `>60`: cut.

    `usual`: the number of rounds of the page.
    """
    if found is None:
        return ""
    if found.median is not None:
        middle = in_unit(found.median, measure)
    else:
        middle = f">{found.limit:g}" if found.bound else "no end"
    notes = []
    if found.values and (found.cut or is_wide(found.values)):
        notes.append("-".join(dict.fromkeys(in_unit(edge(found.values), measure) for edge in (min, max))))
    if found.values and found.cut:
        notes.append(f"{found.cut} of {found.runs} cut")
    return middle + r"\*" * (found.runs == 1 < usual) + (f" ({', '.join(notes)})" if notes else "")


def short(found: Figure, measure: str) -> str:
    """Return the median alone, with its unit."""
    text = f"not ended after {found.limit:g}" if found.median is None else in_unit(found.median, measure)
    return f"{text} {unit(measure)}".rstrip()


def times(found: Ratio | None, measure: str) -> str:
    """Return a ratio in words: `2,400 times sooner`, `1.7 times as long`."""
    if found is None:
        return ""
    if 0.95 < found.value < 1.05 and not found.bound:
        return "as good"
    less, more = ("sooner", "as long") if unit(measure) == "s" else ("less", "as much")
    factor = float(f"{max(found.value, 1 / found.value):.2g}")  # two digits that count: 1.4, 18, 2,400
    text = f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"
    return f"{'more than ' * bool(found.bound)}{text} times {more if found.value > 1 else less}"


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
