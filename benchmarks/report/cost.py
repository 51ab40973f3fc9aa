"""Compute what a job costs beside its script: the host-seconds in which hosts are paid for and no script runs.

idle = hosts x (start + (1 - failed share) x tail + failed share x gone)
"""

import statistics
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.report.figures import Measured, Run, measured
from benchmarks.report.many_hosts import by_hosts
from benchmarks.report.pull import medians
from benchmarks.report.side_by_side import SIDES, Row

PLOT = "cost.svg"
MODES = {
    "single": "no distribution, 1 host",
    "plain": "no distribution",
    "ps": "parameter servers",
    "mwms": "MultiWorkerMirrored",
    "mpi": "MPI, Horovod",
}
JOBS_PER_DAY, FAILED_SHARE, HOSTS = 100, 0.05, (2, 16)  # examples; a year costs in proportion to the jobs
YEAR = 365  # days
Growth = dict[str, dict[int, Measured]]  # what many-hosts measured, or nothing


@dataclass(frozen=True)
class Seconds:
    """Seconds of one mode on one side, in a job of so many hosts. `gone` is None if no failure was measured."""

    hosts: int
    start: float
    tail: float
    gone: float | None = None
    gone_is_least: bool = False  # some of its failures were cut before the last host was gone


def seconds(runs: list[Run], mode: str, side: str) -> dict[int, Seconds]:
    """Return {hosts: seconds}, few to many; of the cases with as many hosts, the one with one rank per host."""
    cases = {run["hosts"]: run["case"] for run in reversed(runs) if run["case"].startswith(f"start-{mode}-")}
    failures = sorted({run["case"] for run in runs if run["case"].startswith(f"raise-{mode}-")})
    gone = [found for case in failures if (found := measured(runs, "gone_s", case=case, side=side))]
    mean = statistics.mean([each.at_least or 0 for each in gone]) if gone else None
    found = {}
    for hosts, case in sorted(cases.items()):
        start, tail = (measured(runs, measure, case=case, side=side) for measure in ("start_s", "tail_s"))
        if start and tail and start.median is not None and tail.median is not None:
            least = any(figure.median is None for figure in gone)
            found[hosts] = Seconds(hosts, start.median, tail.median, mean, least)
    return found


def carried(known: dict[int, Seconds], hosts: int, growth: Growth) -> Seconds:
    """Return what was measured with that many hosts; else with the most that were, and `growth` for the rest."""
    if hosts in known:
        return known[hosts]
    most = known[max(known)]
    start, end = (_next(growth.get(measure, {}), hosts) for measure in ("rendezvous_s", "told_all_s"))
    gone = None if most.gone is None else most.gone + end
    return replace(most, start=most.start + start, tail=most.tail + end, gone=gone)


def _next(found: dict[int, Measured], hosts: int) -> float:
    """Return the seconds of the next larger job that was measured: no less than it takes."""
    medians = {count: figure.median for count, figure in sorted(found.items()) if figure.median is not None}
    return next((median for count, median in medians.items() if count >= hosts), max(medians.values(), default=0.0))


@dataclass(frozen=True)
class Cost:
    """The cost of jobs of one mode with so many hosts, on one side."""

    job: float  # idle host-seconds, on average; where no failure was measured, failed jobs count as the others
    at_least: str

    @property
    def year(self) -> float:
        """Return host-hours a year."""
        return self.job * JOBS_PER_DAY * YEAR / 3600


@dataclass(frozen=True)
class Line:
    """One row of the page: a mode, in jobs of so many hosts."""

    mode: str
    hosts: int
    measured: int  # hosts that the toolkit's seconds are of
    ours: Cost
    toolkit: Cost


def lines_of(runs: list[Run], growth: Growth, failed_share: float = 0) -> list[Line]:
    found = []
    for mode in MODES:
        known = {side: seconds(runs, mode, side) for side in SIDES}
        for hosts in (1,) if mode == "single" else HOSTS:
            if all(known.values()):
                ours, toolkit = carried(known["ours"], hosts, growth), carried(known["toolkit"], hosts, {})
                costs = (cost(of, hosts, failed_share) for of in (ours, toolkit))
                found.append(Line(MODES[mode], hosts, toolkit.hosts, *costs))
    return found


def cost(of: Seconds, hosts: int, failed_share: float) -> Cost:
    end = of.tail if of.gone is None else (1 - failed_share) * of.tail + failed_share * of.gone
    return Cost(hosts * (of.start + end), "≥" * (failed_share > 0 and of.gone_is_least))


def plotted(lines: list[Line]) -> list[Row]:
    """Return host-hours a year as rows of a plot: a line for each mode, a panel for each number of hosts."""
    return [
        Row(line.mode, line.mode, "cost", f"{line.hosts} hosts: host-hours a year",
            *(Measured((each.year,)) for each in (line.ours, line.toolkit)))
        for line in lines if line.hosts > 1
    ]  # fmt: skip


def with_pull(lines: list[Line], pulls: dict[str, float]) -> list[Line]:
    """Return the cost of the same jobs if every host pulls the image first."""
    return [
        replace(
            line,
            **{side: replace(each, job=each.job + line.hosts * pulls[side])
               for side, each in (("ours", line.ours), ("toolkit", line.toolkit))},
        )
        for line in lines
    ]  # fmt: skip


def context(
    record: dict[str, Any], many_hosts: dict[str, Any] | None, pull: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    pulls = medians(pull["runs"]) if pull else {}
    pulls = pulls if all(side in pulls for side in SIDES) else {}
    runs, growth = record["runs"], by_hosts(many_hosts["runs"]) if many_hosts else {}
    lines = lines_of(runs, growth)
    return {
        "pulls": pulls, "pulled": pull and pull["date"], "lines_of_pulling": with_pull(lines, pulls) if pulls else [],
        "plot": PLOT, "jobs": JOBS_PER_DAY, "days": YEAR, "failed": f"{FAILED_SHARE:.0%}", "has_growth": bool(growth),
        "lines": lines, "lines_of_failing": lines_of(runs, growth, FAILED_SHARE),
    }  # fmt: skip
