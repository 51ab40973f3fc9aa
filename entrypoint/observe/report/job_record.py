"""Combine the records of all hosts on one time axis, with facts about the job."""

import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

from entrypoint.base.values import State, fresh
from entrypoint.base.wording import listed
from entrypoint.launcher.job.rules import parse_rules, thresholds
from entrypoint.observe.report import phases
from entrypoint.observe.report.columns import Columns
from entrypoint.observe.report.host_figures import HostFigures, ProcessFigures, read
from entrypoint.observe.report.phases import Span
from entrypoint.record import lines
from entrypoint.record.read import count_lines, first_line, text

PIECES, MOST_PIECES, LEAST_PIECES = 40_000, 1024, 32  # pieces of time: of all hosts, and limits for one
OTHER_CLOCK_SECONDS = 3600.0  # seconds that a host's clock is off, after which it is set right
QUICK_LINES = 15_000  # lines that are read for each second that there is for all
READS = 0.6  # share of the given time that reading may take


class JobRecord(State):
    """Hold the content of all hosts' records. Times are seconds since the job's begin."""

    hosts: list[HostFigures]  # in rank order
    zero: float = 0.0  # the job's begin, in seconds since the epoch
    spans: dict[str, list[Span]] = fresh(dict)  # host -> its phases
    missing: list[str] = fresh(list)  # hosts of the job without a record
    notes: list[str] = fresh(list)  # what is wrong with the records
    trains_until: float = 0.0

    @property
    def about(self) -> lines.HostLine:
        """Return the `host` lines of the coordinator's record, or of another record; an empty one without records."""
        known = (host.about for host in [self.coordinator, *self.hosts] if host and host.about.host)
        return next(known, lines.HostLine())

    @property
    def coordinator(self) -> HostFigures | None:
        """Return the coordinator, or the first host if its record is missing; None without records."""
        name = next((host.about.coordinator for host in self.hosts if host.about.host), None)
        return next((host for host in self.hosts if host.name == name), next(iter(self.hosts), None))

    @property
    def seconds(self) -> float:
        """Return the job's duration, up to the end of its records."""
        return max((host.end for host in self.hosts), default=0.0)

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Return the outcome in the coordinator's record, or else in another host's."""
        known = [host.outcome for host in [self.coordinator, *self.hosts] if host and host.outcome]
        return known[0] if known else None

    @property
    def rules(self) -> dict[str, float]:
        """Return the job's own thresholds, and defaults for the other rules."""
        try:
            return thresholds(dict(parse_rules(self.about.rules or "")))
        except ValueError:
            return thresholds({})

    @property
    def price(self) -> float | None:
        """Return the job's own price of a host-hour in USD; None if it has none."""
        return given if 0 < (given := self.about.price or 0.0) < 1e6 else None

    @property
    def limit(self) -> int:
        return self.hosts[0].columns.limit if self.hosts else 0

    @property
    def width(self) -> float:
        """Return the length of a piece in seconds."""
        return self.hosts[0].columns.width if self.hosts else 1.0

    def training(self, host: HostFigures) -> tuple[float, float]:
        """Return the begin and end of a host's training; (0, 0) if it did not train."""
        spans = [span for span in self.spans.get(host.name, ()) if span.phase in _STEPS]
        return (spans[0].start, spans[-1].end) if spans else (0.0, 0.0)

    def trainers(self) -> list[tuple[HostFigures, ProcessFigures]]:
        return [(host, process) for host in self.hosts for process in host.trainers]


_STEPS = {"train", "data wait", "checkpoint", "still"}


def gather(records: Mapping[str, bytes], within: float = 0.0) -> JobRecord:
    """Read the records {host: bytes}. With `within`, skip samples of long records, to read in that many seconds."""
    firsts = {name: first for name, data in records.items() if (first := first_line(data))}
    begins = [first.at for first in firsts.values()]
    leads = next((firsts[name] for first in firsts.values() if (name := first.coordinator or "") in firsts), None)
    usual = leads.at if leads else statistics.median_low(begins or [0.0])  # the coordinator's clock is the job's
    off = {name: first.at - usual for name, first in firsts.items() if abs(first.at - usual) > OTHER_CLOCK_SECONDS}
    zero = min((first.at for name, first in firsts.items() if name not in off), default=0.0)
    job = JobRecord(hosts=[], zero=zero)
    most = min(MOST_PIECES, max(LEAST_PIECES, PIECES // max(1, len(records))))
    limit = 1 << (most.bit_length() - 1)  # a power of two
    every = math.ceil(sum(map(count_lines, records.values())) / (within * QUICK_LINES)) if within else 1
    began = time.monotonic()
    interval = next((first.interval for first in firsts.values()), None)  # one setting for all hosts
    width = min(60.0, max(0.1, interval or 1.0))
    for name, data in records.items():
        host = read(name, data, zero + off.get(name, 0.0), Columns(width, limit), max(1, every))
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


def _put_together(job: JobRecord) -> None:
    job.hosts.sort(key=lambda host: (host.about.rank or 0, host.name))
    for host in job.hosts:  # those that train first, each kind by number
        found = sorted(host.processes.values(), key=lambda each: (each.role in lines.SERVES, lines.place(each.name)))
        host.processes = {process.name: process for process in found}
    widest = max((host.columns.width for host in job.hosts), default=1.0)
    for host in job.hosts:
        while host.columns.width < widest:
            host.columns.grow(host.columns.width * host.columns.limit)
    known = {host.name for host in job.hosts}
    job.missing = [text(name) for name in (job.about.hosts or ())[:2000] if name not in known]
    if job.missing:
        job.notes.append(f"no record of {listed(job.missing, 8)}")
    if not job.outcome and job.hosts:
        job.notes.append("no record says how the job ended: the coordinator was lost, or the job still runs")
    users = job.trainers() or [
        (host, process) for host in job.hosts for process in host.processes.values() if process.role in lines.SERVES
    ]
    ends = [run.end if run.end is not None else host.end for host, process in users for run in process.runs]
    job.trains_until = max(ends, default=job.seconds)
    for host in job.hosts:
        job.spans[host.name] = phases.of_host(host, job.trains_until)
