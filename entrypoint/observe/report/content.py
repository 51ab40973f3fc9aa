"""Prepare the page's content as JSON: names, spans, and columns of figures with a few digits."""

import math
import time
from itertools import pairwise
from typing import Any

from entrypoint.base.series import Series
from entrypoint.observe.report.columns import rates
from entrypoint.observe.report.ending import Ending
from entrypoint.observe.report.host_figures import HostFigures, ProcessFigures
from entrypoint.observe.report.job_record import JobRecord
from entrypoint.observe.report.phases import IDLE, ORDER, Span, of_process
from entrypoint.observe.report.rules.judging import Verdict
from entrypoint.observe.report.rules.steps import is_loss, seconds_per_step
from entrypoint.record.lines import COUNTS

MOST_METRICS, MOST_LINES = 8, 16  # metrics that are plotted, and processes of each
MOST_PROCESSES = 64  # with twice as many, no process has columns of its own CPUs and memory
MOST_LOGGED, MOST_LOGGED_BYTES, MOST_STACKS = 1500, 400_000, 400_000
MOST_SPANS = 20_000
MOST_LISTED = 300  # packages that requirements have installed


def content(
    job: JobRecord, verdicts: list[Verdict], ended: Ending | None = None, price: float | None = None
) -> dict[str, Any]:
    """Return the content. `price`: USD per host-hour; None if it is not known."""
    index = {host.name: at for at, host in enumerate(job.hosts)}
    count = max(1, min(job.limit, math.ceil(job.seconds / job.width)))
    about, metrics = job.about, _metrics(job, index, count)
    return {
        "job": {
            "name": (about.job or "")[:200], "mode": (about.mode or "")[:40], "begin": round(job.zero),
            "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(min(job.zero, 4e9))),
            "seconds": digits(job.seconds), "outcome": job.outcome, "missing": len(job.missing),
            "instances": sorted({(host.about.instance_type or "")[:60] for host in job.hosts} - {""})[:5],
        },
        "hyperparameters": list(job.coordinator.hyperparameters.items()) if job.coordinator else [],
        "versions": _versions(job),
        "ending": ended and {**vars(ended), "severity": str(ended.severity), "line": ended.line},
        "notes": job.notes[:200],
        "rules": {name: value for name, value in job.rules.items() if math.isfinite(value)},
        "phases": [{"name": phase, "idle": phase in IDLE} for phase in ORDER],
        "width": job.width, "count": count,
        "hosts": [_host(job, host, count) for host in job.hosts],
        "rates": _rates(job, index, count),
        "metrics": metrics,
        "steps": _steps(job, metrics, count),
        "stragglers": _stragglers(job, index),
        "matrix": _matrix(job, index),
        "verdicts": [
            {"rule": v.rule, "host": v.host, "process": v.process, "text": v.text, "advice": v.advice,
             "severity": str(v.severity)} for v in verdicts
        ],
        "said": _logged(job, index),
        "stacks": _stacks(job),
        "bill": _bill(job, price),
    }  # fmt: skip


def _versions(job: JobRecord) -> list[list[str]]:
    """Return [what, version] of the software of the coordinator's programs; digests are left out."""
    found = job.coordinator.software if job.coordinator else {}
    kept = {name: version for name, version in found.items() if not name.startswith("the ") and "." not in name}
    installed = kept.pop("installed by requirements", "")
    lines = [line.partition(" ") for line in installed.splitlines()[:MOST_LISTED]]
    return [*map(list, kept.items()), *([name, version] for name, _, version in lines)]


def digits(value: float | None) -> float | int | None:
    """Round to three significant digits, and to a whole number if that is at least 1000.

    Return None for None, NaN and infinity.
    """
    if value is None or not math.isfinite(value):
        return None
    if abs(value) >= 1000:
        return round(value)
    short = float(f"{value:.3g}")
    return int(short) if short == int(short) else short


def _column(values: list[float | None], count: int, unit: float = 1.0) -> str | None:
    """Return a column for the page: numbers separated by blanks, gaps empty. Return None if all values are 0."""
    if not any(values):
        return None
    factor = 1.0 / unit
    return _words([value and value * factor for value in values[:count]], 4)


def _words(values: list[float | None], figures: int) -> str:
    return " ".join(["" if value is None else f"{value:.{figures}g}" for value in values])


def _host(job: JobRecord, host: HostFigures, count: int) -> dict[str, Any]:
    columns, rates = host.columns, {}
    for key in sorted(columns.amounts):
        if key[0] in ("cpu", "disk", "net", "gpu", "fifo", "free", "gpu watts"):
            unit = {"disk": 1e6, "net": 1e6, "free": 1e9}.get(key[0], 1.0)
            rates[" ".join(key)] = _column(columns.per_second(key), count, unit)
    for key in sorted(columns.peaks):
        if key[0] in ("memory", "gpu memory"):
            rates[" ".join(key)] = _column(columns.levels(key), count, 1e6 if key[0] == "memory" else 1.0)
    seen = [at for at in range(count) if columns.seconds[at] > 0]
    processes = [process for process in host.processes.values() if process.runs]
    least = max(job.width / 4, job.seconds / 4000)
    most = max(8, MOST_SPANS // max(1, sum(len(each.processes) for each in job.hosts)))
    is_many = sum(len(each.processes) for each in job.hosts) > 2 * MOST_PROCESSES
    return {
        "name": host.name, "rank": int(host.about.rank or 0), "cpus": host.cpus, "gpus": float(host.about.gpus or 0),
        "memory": digits((host.about.memory_limit or 0) / 1e6), "disk": digits((host.about.disk_size or 0) / 1e9),
        "type": (host.about.instance_type or "")[:60], "end": digits(host.end),
        "seen": [seen[0], seen[-1]] if seen else None,
        "spans": _spans(job.spans[host.name], least, 400),
        "columns": {name: column for name, column in rates.items() if column},
        "channels": _channels(host),
        "processes": [
            {
                "name": process.name, "role": process.role, "task": process.task,
                "spans": _spans(of_process(process, host), least, most),
                "ended": process.runs[-1].how, "starts": len(process.runs),
                "ticks": [digits(mark.at) for mark in process.marks if mark.what == "epoch"][:200] or _epochs(process),
                "cpu": None if is_many else _column(columns.per_second(("process", process.name, "cpu")), count),
                "memory": None if is_many else _column(columns.levels(("process", process.name, "memory")), count, 1e6),
            } for process in processes
        ],
    }  # fmt: skip


def _spans(spans: list[Span], least: float, most: int) -> list[list[Any]]:
    """Return [phase's number, start, end] of each span. If there are too many, join short ones to their predecessor."""
    while True:
        found: list[list[Any]] = []
        for span in spans:
            if found and (span.end - span.start < least) and span.start - found[-1][2] <= least and len(spans) > most:
                found[-1][2] = digits(span.end)
            else:
                found.append([ORDER.index(span.phase), digits(span.start), digits(span.end)])
        if len(found) <= most or least > 1e9:
            return found[:most]
        least *= 2


def _epochs(process: ProcessFigures) -> list[Any]:
    """Return the times at which the printed number of the epoch changed."""
    series = process.metrics.get("epoch", Series())
    changes = zip(series.times[1:], pairwise(series.values), strict=True)
    return [digits(at) for at, (before, after) in changes if after != before][:200]


def _channels(host: HostFigures) -> list[dict[str, Any]]:
    found = []
    for name, channel in list((host.about.channels or {}).items())[:100]:
        words = {"mode": channel.get("mode", "")[:40], "distribution": channel.get("distribution", "")[:40]}
        counts = {key: value for key, value in channel.items() if key in ("files", "bytes")}
        found.append({"name": name[:80], **words, **counts, "more": bool(channel.get("more"))})
    return found


def _rates(job: JobRecord, index: dict[str, int], count: int) -> list[dict[str, Any]]:
    """Return the steps per second of each process that reports steps."""
    found = []
    for host, process in job.trainers():
        if len(process.steps) > 1:
            column = smooth(rates(process.steps, job.width, count), math.ceil(count / 120))
        elif "steps_per_second" in process.metrics:
            column = process.metrics["steps_per_second"].in_pieces(job.width, count)
        else:
            column = [1 / each if each else None for each in process.step_marks.in_pieces(job.width, count)]
        if values := _column(column, count):
            found.append({"host": index[host.name], "process": process.name, "values": values})
    return found


def smooth(values: list[float | None], over: int) -> list[float | None]:
    """Return the mean of `over` values around each: steps are reported as whole numbers, so their rates jump."""
    sums, counts = [0.0], [0]
    for value in values:
        sums.append(sums[-1] + (value or 0.0))
        counts.append(counts[-1] + (value is not None))
    found: list[float | None] = []
    for at, value in enumerate(values):
        low, high = max(0, at - over // 2), min(len(values), at + over // 2 + 1)
        found.append(None if value is None else (sums[high] - sums[low]) / (counts[high] - counts[low]))
    return found


def _metrics(job: JobRecord, index: dict[str, int], count: int) -> list[dict[str, Any]]:
    """Return the metrics to show: losses first, then those that most processes report."""
    reporters: dict[str, list[tuple[HostFigures, ProcessFigures]]] = {}
    for host in job.hosts:
        for process in host.processes.values():
            for name, series in process.metrics.items():
                if name not in COUNTS and len(series):
                    reporters.setdefault(name, []).append((host, process))
    names = sorted(reporters, key=lambda name: (not is_loss(name), -len(reporters[name]), name))[:MOST_METRICS]
    found = []
    for name in names:
        shown = [
            {
                "host": index[host.name],
                "process": process.name,
                "values": _words(process.metrics[name].in_pieces(job.width, count), 6),
            }
            for host, process in reporters[name][:MOST_LINES]
        ]
        found.append({"name": name, "processes": len(reporters[name]), "lines": shown})
    return found


def _steps(job: JobRecord, metrics: list[dict[str, Any]], count: int) -> dict[str, str]:
    """Return the step at the end of each piece of time, by the host's number and the process of each line."""
    shown = {(line["host"], line["process"]) for metric in metrics for line in metric["lines"]}
    steps = {(at, name): job.hosts[at].processes[name].metrics.get("step") for at, name in sorted(shown)}
    return {f"{at} {name}": _words(its.in_pieces(job.width, count), 9) for (at, name), its in steps.items() if its}


def _stragglers(job: JobRecord, index: dict[str, int]) -> list[list[Any]]:
    """Return [host, process, seconds per step, steps] of all processes that report steps, the slowest first."""
    found: list[list[Any]] = [
        [index[host.name], process.name, digits(each), digits(max(process.steps.values, default=math.nan))]
        for host, process in job.trainers() if (each := seconds_per_step(process))
    ]  # fmt: skip
    return sorted(found, key=lambda row: row[2] or 0, reverse=True)[:1000]


def _matrix(job: JobRecord, index: dict[str, int]) -> list[list[Any]]:
    """Return [from, to, bytes]. Where both ends have counted, bytes is the larger count."""
    sums: dict[tuple[int, int], float] = {}
    for host in job.hosts:
        me = index[host.name]
        for other, (received, sent) in host.exchanged.items():
            if (peer := index.get(other)) is not None:
                sums[me, peer] = max(sums.get((me, peer), 0.0), sent)
                sums[peer, me] = max(sums.get((peer, me), 0.0), received)
    return [[source, target, round(count)] for (source, target), count in sorted(sums.items()) if count][:20_000]


def _logged(job: JobRecord, index: dict[str, int]) -> list[list[Any]]:
    lines = [(at, index[host.name], words) for host in job.hosts for at, words in host.logged]
    lines.sort(key=lambda line: line[:2])  # lines of one moment stay as they were logged
    if len(lines) > MOST_LOGGED:
        lines = [*lines[: MOST_LOGGED // 3], *lines[-2 * MOST_LOGGED // 3 :]]
    room, found = MOST_LOGGED_BYTES, []
    for at, host, words in reversed(lines):  # the last lines matter most
        room -= len(words)
        if room > 0:
            found.append([digits(at), host, words])
    return found[::-1]


def _stacks(job: JobRecord) -> list[dict[str, Any]]:
    room, found = MOST_STACKS, []
    for host in job.hosts:
        for stack in host.stacks:
            room -= len(stack["text"])
            if room > 0:
                found.append({**stack, "at": digits(stack["at"]), "host": host.name})
    return found


def _bill(job: JobRecord, price: float | None) -> dict[str, Any]:
    """Return host-seconds by phase, in the order of a job. Host-seconds in which hosts waited are idle."""
    hosts = []
    for host in job.hosts:
        sums = dict.fromkeys(ORDER, 0.0)
        for span in job.spans[host.name]:
            sums[span.phase] += span.end - span.start
        hosts.append(sums)
    phases = {phase: seconds for phase in ORDER if (seconds := sum(sums[phase] for sums in hosts)) > 0}
    return {
        "total": digits(sum(phases.values())),
        "idle": digits(sum(seconds for phase, seconds in phases.items() if phase in IDLE)),
        "price": price,
        "phases": [[phase, digits(seconds)] for phase, seconds in phases.items()],
        "hosts": [[digits(sums[phase]) for phase in phases] for sums in hosts],
    }
