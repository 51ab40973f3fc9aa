"""Judge whether the training waits for its data."""

from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.base.wording import duration, percent, size
from entrypoint.observe.report.host_figures import HostFigures
from entrypoint.observe.report.job_record import JobRecord
from entrypoint.observe.report.rules.judging import Verdict, well_judged

LEAST_SECONDS = 2.0  # seconds that were looked at
EMPTY = 0.05  # share of a pipe's capacity, below which it counts as empty
BUSY = 0.5  # share of a host's CPUs: if less is used, the CPUs do not delay the data
SMALL_BYTES = 256_000  # bytes
_Found = tuple[float, str, str]  # share, words, process


def input_bound(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare a host's waits for data by the script's marks, empty pipes, and waits for disks; report the largest."""
    for host, start, end in well_judged(job):
        waits = [*_marked(host), *_pipes(host, start, end), *_disks(host, start, end)]
        share, text, process = max(waits, default=(0.0, "", ""))
        if share >= threshold and share > 0:
            yield Verdict(
                rule="input_bound", host=host.name, process=process, text=text, weight=share / max(threshold, 0.01),
                advice="prefetch and read in parallel (num_parallel_calls, interleave), use fewer and larger files, or "
                "hosts with more CPUs for each GPU",
            )  # fmt: skip


def _marked(host: HostFigures) -> Iterator[_Found]:
    for process in host.trainers:
        waited = sum(mark.seconds for mark in process.marks if mark.what == "data_wait")
        runs = sum((host.end if run.end is None else run.end) - run.start for run in process.runs)
        first = min([*process.steps.times, *process.step_marks.times], default=None)
        trained = runs - max(0.0, first - process.runs[0].start) if first is not None and process.runs else runs
        if waited and trained > 0:
            share = min(1.0, waited / trained)
            yield share, f"waits for data for {percent(share)} of its training ({duration(waited)})", process.name


def _pipes(host: HostFigures, start: float, end: float) -> Iterator[_Found]:
    columns = host.columns
    busy = _busy(host)
    for key in columns.amounts:
        if key[0] == "fifo":
            filled = columns.per_second(key)
            both = [
                (fill, used)
                for at, (fill, used) in enumerate(zip(filled, busy, strict=False))
                if fill is not None and used is not None and start <= at * columns.width <= end
            ]
            if len(both) >= 2:
                share = sum(fill < EMPTY and used < BUSY for fill, used in both) / len(both)
                words = f"channel {key[1]} is empty for {percent(share)} of the training, while CPUs are not busy"
                yield share, words, ""


def _busy(host: HostFigures) -> list[float | None]:
    """Return how busy the host's CPUs are in each piece, from 0 to 1; or its GPUs, if these are busier."""
    columns = host.columns
    parts = [columns.per_second(("cpu", "user")), columns.per_second(("cpu", "system"))]
    gpus = [columns.per_second(key) for key in columns.amounts if key[0] == "gpu"]
    found: list[float | None] = []
    for at in range(columns.limit):
        used = [part[at] for part in parts if part]
        most = max([gpu[at] or 0.0 for gpu in gpus], default=0.0)
        cpus = sum(each or 0.0 for each in used) / host.cpus
        found.append(None if not used or used[0] is None else max(cpus, most))
    return found


def _disks(host: HostFigures, start: float, end: float) -> Iterator[_Found]:
    seconds = host.columns.observed(start, end)
    for process in host.trainers:
        waited = host.columns.total(("process", process.name, "wait"), start, end)
        if seconds > LEAST_SECONDS and waited:
            share = min(1.0, waited / seconds)
            yield share, f"waits for disks for {percent(share)} of its training", process.name


def small_files(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Check the number and size of each channel's files, as the monitor has counted them."""
    for host in job.hosts:
        for name, channel in (host.about.channels or {}).items():
            files, count = channel.get("files", 0), channel.get("bytes", 0)
            if files >= max(threshold, 1) and count / files < SMALL_BYTES:
                at_least = "at least " if channel.get("more") else ""
                yield Verdict(
                    rule="small_files", host=host.name, severity=Severity.WARNING, weight=files / max(threshold, 1),
                    text=f"channel {name[:80]} has {at_least}{files:,.0f} files of {size(count / files)} on average",
                    advice="pack them into TFRecord or RecordIO files of 100 MB or more: each file costs a request to "
                    "S3 and the time to open it",
                )  # fmt: skip
