"""The records of all hosts, brought together: one axis of time, and what is true of the job."""

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.launcher.job.rules import parse_rules, thresholds
from entrypoint.observe.report import phases
from entrypoint.observe.report.columns import Columns
from entrypoint.observe.report.host import SERVES, Host, Process
from entrypoint.observe.report.phases import Span
from entrypoint.observe.report.reading import read
from entrypoint.record.read import WRONG, count_lines, first_line, number, text

PIECES, MOST_PIECES, LEAST_PIECES = 40_000, 1024, 32  # of time: of all hosts, of one
OTHER_CLOCK_SECONDS = 3600.0  # seconds that a host's clock is off, after which it is set right
QUICK_LINES = 15_000  # lines that are read for each second that there is for all
READS = 0.6  # of that time, at most


@dataclass
class JobRecord:
    """What is known of the job. Times are seconds since its begin."""

    hosts: list[Host]  # in rank order
    zero: float = 0.0  # the begin, since the epoch
    spans: dict[str, list[Span]] = field(default_factory=dict)  # host -> what it was at
    missing: list[str] = field(default_factory=list)  # hosts of the job without a record
    notes: list[str] = field(default_factory=list)  # what is wrong with the records
    trains_until: float = 0.0

    @property
    def about(self) -> dict[str, Any]:
        """Return what the coordinator's record says first, or another's; {} if there is none."""
        told = [host.about for host in [self.coordinator, *self.hosts] if host and host.about]
        return told[0] if told else {}

    @property
    def coordinator(self) -> Host | None:
        """Return the host that coordinates, else the first; None without any."""
        name = next((host.about.get("coordinator") for host in self.hosts if host.about), None)
        return next((host for host in self.hosts if host.name == name), next(iter(self.hosts), None))

    @property
    def seconds(self) -> float:
        """Return how long the job took, as far as its records go."""
        return max((host.end for host in self.hosts), default=0.0)

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Return how it ended, as the coordinator says, or else another host."""
        told = [host.outcome for host in [self.coordinator, *self.hosts] if host and host.outcome]
        return told[0] if told else None

    @property
    def rules(self) -> dict[str, float]:
        """Return the thresholds that the job was given, and the defaults of others."""
        given = self.about.get("rules")
        try:
            return thresholds(dict(parse_rules(given))) if isinstance(given, str) else thresholds({})
        except ValueError:
            return thresholds({})

    @property
    def price(self) -> float | None:
        """Return what the job was told that a host costs for an hour, in USD."""
        given = self.about.get("price")
        return float(given) if isinstance(given, int | float) and 0 < given < 1e6 else None

    @property
    def limit(self) -> int:
        """Return the pieces of time that each host's columns have."""
        return self.hosts[0].columns.limit if self.hosts else 0

    @property
    def width(self) -> float:
        """Return the seconds of a piece."""
        return self.hosts[0].columns.width if self.hosts else 1.0

    def training(self, host: Host) -> tuple[float, float]:
        """Return from when to when a host took steps; (0, 0) if it did not."""
        spans = [span for span in self.spans.get(host.name, ()) if span.phase in _STEPS]
        return (spans[0].start, spans[-1].end) if spans else (0.0, 0.0)

    def trainers(self) -> list[tuple[Host, Process]]:
        """Return all processes that train."""
        return [(host, process) for host in self.hosts for process in host.trainers]


_STEPS = {"train", "data wait", "checkpoint", "still"}


def gather(records: Mapping[str, bytes], within: float = 0.0) -> JobRecord:
    """Read the records {host: bytes}; with `within`, of very long ones no more than can be read in so many seconds."""
    firsts = {name: first_line(data) for name, data in records.items()}
    begins = [found[0] for found in firsts.values() if found]
    names = [str(found[1].get("coordinator")) for found in firsts.values() if found]
    leads = next((firsts[name] for name in names if name in firsts), None)  # its clock is the job's
    usual = leads[0] if leads else statistics.median_low(begins) if begins else 0.0
    off = {
        name: found[0] - usual
        for name, found in firsts.items()
        if found and abs(found[0] - usual) > OTHER_CLOCK_SECONDS
    }
    zero = min((begin for begin in begins if abs(begin - usual) <= OTHER_CLOCK_SECONDS), default=0.0)
    job = JobRecord(hosts=[], zero=zero)
    limit = _power_of_two(PIECES // max(1, len(records)))
    every = math.ceil(sum(map(count_lines, records.values())) / (within * QUICK_LINES)) if within else 1
    began = time.monotonic()
    interval = _interval(next((found[1] for found in firsts.values() if found), {}))  # one setting, of all hosts
    for name, data in records.items():
        host = read(name, data, zero + off.get(name, 0.0), Columns(interval, limit), max(1, every))
        job.hosts.append(host)
        if within and time.monotonic() - began > within * READS * len(job.hosts) / len(records):
            every *= 2
        job.notes += [f"the record of {name}: {problem}" for problem in host.problems]
        if name in off:
            job.notes.append(f"the clock of {name} is {off[name]:+.0f} s off; its times are shown without that")
    if (most := max((host.every for host in job.hosts), default=1)) > 1:
        job.notes.append(f"the records are long: one of every {most} samples was read; `entrypoint report` reads all")
    _put_together(job)
    return job


def _interval(about: Mapping[str, Any]) -> float:
    try:
        return min(60.0, max(0.1, number(about.get("interval", 1.0))))
    except WRONG:
        return 1.0


def _power_of_two(most: int) -> int:
    limit = LEAST_PIECES
    while 2 * limit <= min(most, MOST_PIECES):
        limit *= 2
    return limit


def _put_together(job: JobRecord) -> None:
    job.hosts.sort(key=lambda host: (host.rank, host.name))
    widest = max((host.columns.width for host in job.hosts), default=1.0)
    for host in job.hosts:
        while host.columns.width < widest:
            host.columns.grow(host.columns.width * host.columns.limit)
    known = {host.name for host in job.hosts}
    named = job.about.get("hosts")
    named = named[:2000] if isinstance(named, list) else []
    job.missing = [text(name) for name in named if isinstance(name, str) and name not in known]
    if job.missing:
        shown = ", ".join(job.missing[:8]) + (f" and {len(job.missing) - 8} more" if len(job.missing) > 8 else "")
        job.notes.append(f"no record of {shown}")
    if not job.outcome and job.hosts:
        job.notes.append("no record says how the job ended: the coordinator was lost, or the job still runs")
    users = job.trainers() or [
        (host, process) for host in job.hosts for process in host.processes.values() if process.role in SERVES
    ]
    ends = [run.end if run.end is not None else host.end for host, process in users for run in process.runs]
    job.trains_until = max(ends, default=job.seconds)
    for host in job.hosts:
        job.spans[host.name] = phases.of_host(host, job.trains_until)
