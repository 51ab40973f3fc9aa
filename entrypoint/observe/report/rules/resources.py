"""Judge input, CPUs, GPUs, memory, disks and network of each host, and the balance of parameter servers."""

import statistics
from collections.abc import Iterator

from entrypoint.base.remedies import REMEDIES
from entrypoint.base.severity import Severity
from entrypoint.base.wording import duration, percent, size
from entrypoint.observe.report.host_figures import HostFigures
from entrypoint.observe.report.job_record import JobRecord
from entrypoint.observe.report.rules.judging import (
    LEAST_SECONDS,
    Verdict,
    hung,
    judged,
    well_judged,
    went_well,
)

LEAST_SECONDS_LOOKED = 2.0  # seconds that were looked at for waits for disks
EMPTY = 0.05  # share of a pipe's capacity, below which it counts as empty
BUSY = 0.5  # share of a host's CPUs: if less is used, the CPUs do not delay the data
SMALL_BYTES = 256_000  # bytes of a file
LEAST_CPU_SECONDS = 2.0  # CPU seconds used by a host, or by all servers, below which nothing is judged
USED = 0.02  # share of a GPU's time, below which it counts as unused
TAKEN = 0.002  # share of a GPU's memory beyond the first sample: a program that computes on the GPU takes more
LEAST_BYTES = 10e6  # bytes of all servers, below which nothing is judged
LEAST_BYTES_A_SECOND = 100e6  # bytes a second
PLATEAU = 0.8  # share of the peak, above which the traffic counts as limited
GROWS = 0.05  # share of the limit: less is not growth
_Found = tuple[float, str, str]  # share, words, process


def input_bound(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Report the share of training time that a host waits for data.

    The largest of three shares counts: the script's own marks, empty pipes, and waits for disks.
    """
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
        if seconds > LEAST_SECONDS_LOOKED and waited:
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


def cpu_starved(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure how long a host's programs were ready to run, but throttled, or without a CPU because of others.

    A job that failed is judged, too: this may be why. A hung job is not: Open MPI and NCCL wait busily, so CPUs that it
    does not get are no loss.
    """
    for host in job.hosts if not hung(job) else ():
        used, stolen, throttled = (
            sum(host.columns.total(("cpu", name)) for name in names)
            for names in (("user", "system"), ("stolen",), ("throttled",))
        )
        asked = used + stolen + throttled
        if host.columns.observed() < LEAST_SECONDS or used < LEAST_CPU_SECONDS:
            continue
        if (stolen + throttled) / asked < max(threshold, 1e-9):
            continue
        why = f"throttled by its quota for {duration(throttled)}" if throttled > stolen else (
            f"other virtual machines took {duration(stolen)}"
        )  # fmt: skip
        yield Verdict(
            rule="cpu_starved", host=host.name, weight=(stolen + throttled) / asked / max(threshold, 0.01),
            text=f"did not get {percent((stolen + throttled) / asked)} of the CPU time that it needed: {why}",
            advice="give the container more CPUs, or run fewer processes and threads"
            if throttled > stolen else "take an instance type that is not shared or has no CPU credits",
        )  # fmt: skip


def gpu_starved(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure how busy the GPUs were in training, and how much power and memory they used.

    GPUs that TensorFlow cannot use are left out: the launcher reports them at the start.
    """
    for host, *training in well_judged(job):
        seconds = host.columns.observed(*training)
        keys = [key for key in host.columns.amounts if key[0] == "gpu"]
        if not seconds or not keys or host.unused_gpus:
            continue
        busy = {key[1]: host.columns.total(key, *training) / seconds for key in keys}
        mean = sum(busy.values()) / len(busy)
        if mean >= threshold:
            continue
        they = f"its {len(busy)} GPU{'s are' * (len(busy) > 1) or ' is'}"
        text = f"{they} busy for {percent(mean)} of the training{_beside(host, list(busy), *training)}"
        advice = "use larger batches, mixed precision or XLA; check that the input keeps up"
        unused = [name for name, each in busy.items() if each < USED]
        held = {name: host.columns.between(host.columns.levels(("gpu memory", name)), 0, host.end) for name in busy}
        taken = [name for name in busy if max(held[name], default=0.0) - host.held_at_first.get(name, 0.0) > TAKEN]
        cpus = busy_cpus(host, *training)
        if len(unused) == len(busy) and not taken:
            text = f"{they} not used at all: no program holds memory there"
            advice = (
                "check that TensorFlow finds them (tf.config.list_physical_devices) and that the script uses them; or "
                "take instances without GPUs"
            )
        elif unused and len(unused) < len(busy):
            text += f", GPU {', '.join(unused[:8])} not at all"
            advice = "start one process for each GPU (ENTRYPOINT_PROCESSES_PER_HOST), or a strategy that uses all"
            if host.about.mode == "single":
                advice = REMEDIES["gpus-idle"]
        elif cpus > 0.8:
            text += f", its CPUs {percent(cpus)}"
            advice = "the CPUs prepare the input too slowly: do less there, or take an instance with more CPUs per GPU"
        weight = (1 - mean) / max(1 - threshold, 0.01)
        yield Verdict(rule="gpu_starved", host=host.name, text=text, advice=advice, weight=weight)


def _beside(host: HostFigures, gpus: list[str], start: float, end: float) -> str:
    """Describe the power and memory of GPUs: "busy" shows only that something ran, and not how much."""
    columns = host.columns
    watts = columns.total(("gpu watts",), start, end) / max(columns.observed(start, end), 1e-9) / len(gpus)
    held = [level for name in gpus for level in columns.between(columns.levels(("gpu memory", name)), start, end)]
    power = f" at {watts:.0f} W each" if watts and len(gpus) > 1 else f" at {watts:.0f} W" if watts else ""
    return f"{power}, with up to {percent(max(held))} of the memory held" if held else power


def memory(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure the memory that programs hold. The page cache does not count: the kernel can reclaim it."""
    for host in job.hosts:
        limit, columns = host.about.memory_limit or 0, host.columns
        held = columns.between(columns.levels(("memory", "programs")), 0, host.end) or [0.0]
        start, end = (None if hung(job) else judged(job, host)) or (0.0, 0.0)
        slope = _slope(columns.between(columns.levels(("memory", "programs")), (start + end) / 2, end), columns.width)
        grown = held[-1] + slope * (end - start)  # if the training went on for as long again
        peak, of = max(held), f" of {size(limit)}" if limit else ""
        severity, weight = Severity.WARNING, 1.0
        advice = "use smaller batches or shuffle buffers, cache() less, or take an instance with more memory"
        if host.oom:
            severity, killed = Severity.ERROR, f"{host.oom} process{'es' * (host.oom > 1)}"
            text = f"the kernel killed {killed} for lack of memory; {size(peak)}{of} held"
        elif limit and peak and peak >= threshold * limit:
            weight = peak / limit / max(threshold, 0.01)
            text = f"programs held {size(peak)}, {percent(peak / limit)} of the host's memory"
        elif limit and grown - held[-1] > GROWS * limit and grown >= limit:
            weight, now = grown / limit, f"at {size(held[-1])}{of} now"
            text = f"memory grows by {size(60 * slope)} a minute, {now}: full in {duration((limit - held[-1]) / slope)}"
            advice = (
                "look for what is kept from step to step: Python lists, retraced tf.functions, an unbounded cache()"
            )
        else:
            continue
        yield Verdict(rule="memory", host=host.name, severity=severity, text=text, advice=advice, weight=weight)


def _slope(values: list[float], width: float) -> float:
    """Return the growth of values per second by least squares; 0 if there are fewer than six."""
    return statistics.linear_regression(range(len(values)), values).slope / width if len(values) >= 6 else 0.0


def disk(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure the free space where models and outputs go."""
    for host in job.hosts:
        whole, columns = host.about.disk_size, host.columns
        free = columns.between(columns.per_second(("free",)), 0, host.end)
        if not whole or not free:
            continue
        left, slope = free[-1], -_slope(free[len(free) // 2 :], columns.width)
        if left < threshold * whole:
            severity = Severity.ERROR if left < 0.01 * whole else Severity.WARNING
            weight = min(threshold * whole / max(left, 1.0), 10)
            text = f"{size(left)} of {size(whole)} are free at the end ({percent(left / whole)})"
        elif went_well(job) and judged(job, host) and slope * host.end > max(GROWS * whole, left):
            severity, weight = Severity.NOTE, 1.0
            text = f"{size(60 * slope)} are written a minute; {size(left)} are free: full in {duration(left / slope)}"
        else:
            continue
        advice = "keep fewer checkpoints (max_to_keep), clean up caches, or ask for a larger volume (VolumeSizeInGB)"
        yield Verdict(rule="disk", host=host.name, severity=severity, text=text, advice=advice, weight=weight)


def busy_cpus(host: HostFigures, start: float, end: float) -> float:
    """Return the share of its CPUs that a host used in this time, from 0 to 1."""
    seconds = host.columns.observed(start, end)
    used = sum(host.columns.total(("cpu", name), start, end) for name in ("user", "system"))
    return used / seconds / host.cpus if seconds else 0.0


def ps_unbalanced(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare parameter servers by CPU time; on hosts without training, also by bytes."""
    servers = [(host, process) for host in job.hosts for process in host.processes.values() if process.role == "ps"]
    # If no host trains, the job's duration counts.
    is_long = any(judged(job, host) for host in job.hosts) if job.trainers() else job.seconds >= LEAST_SECONDS
    if len(servers) < 2 or not (went_well(job) and is_long):
        return
    worked, moved = {}, {}
    for host, process in servers:
        worked[host.name, process.name] = host.columns.total(("process", process.name, "cpu"))
        if not host.trainers:
            moved[host.name, process.name] = sum(map(sum, host.exchanged.values()))
    for amounts, least, words in (
        (worked, LEAST_CPU_SECONDS, lambda amount: f"uses {amount:,.0f} CPU-seconds"),
        (moved, LEAST_BYTES, lambda amount: f"exchanges {size(amount)}"),
    ):
        total = sum(amounts.values())
        if total < least or len(amounts) < 2:
            continue
        mean = total / len(amounts)
        (name, server), most = max(amounts.items(), key=lambda item: item[1])
        if most >= threshold * mean and most > mean:
            yield Verdict(
                rule="ps_unbalanced", host=name, process=server, weight=most / mean / max(threshold, 0.1),
                text=f"{words(most)}, {most / mean:.1f} times the average of {len(amounts)} parameter servers",
                advice="divide large variables (variable_partitioner=tf.distribute.experimental.partitioners."
                "MinSizePartitioner()), or use fewer parameter servers",
            )  # fmt: skip


def network(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Find hosts whose traffic stays near its peak while CPUs and GPUs are little used: the network is their limit."""
    for host, start, end in well_judged(job):
        columns = host.columns
        for way in ("received", "sent"):
            rates = columns.between(columns.per_second(("net", way)), start, end)
            peak = max(rates, default=0.0)
            if len(rates) < 10 or peak < LEAST_BYTES_A_SECOND:
                continue
            share = sum(rate >= PLATEAU * peak for rate in rates) / len(rates)
            seconds = columns.observed(start, end)
            gpus = [columns.total(key, start, end) / seconds for key in columns.amounts if key[0] == "gpu" and seconds]
            busy = max([busy_cpus(host, start, end), sum(gpus) / len(gpus) if gpus else 0.0])
            if share >= threshold and busy < 0.5:
                yield Verdict(
                    rule="network", host=host.name, weight=share / max(threshold, 0.01),
                    text=f"{size(peak)} a second are {way} for {percent(share)} of the training, while CPUs and GPUs "
                    f"are {percent(busy)} busy: the network seems to be the limit",
                    advice="send less (fp16 compression, larger batches, fewer exchanges), or take instances with a "
                    "faster network; one large host instead of several needs no network",
                )  # fmt: skip
                break
