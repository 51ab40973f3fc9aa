"""Judge CPUs, GPUs, memory and disks of each host."""

from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.base.wording import duration, percent, size
from entrypoint.observe.report.host import Host
from entrypoint.observe.report.job import JobRecord
from entrypoint.observe.report.rules.premises import LEAST_SECONDS, hung, judged, well_judged, went_well
from entrypoint.observe.report.rules.verdict import Verdict

LEAST_CPU_SECONDS = 2.0  # CPU seconds used, below which nothing is judged
USED = 0.02  # share of a GPU's time, below which it counts as unused
TAKEN = 0.002  # share of a GPU's memory beyond the first sample: a program that computes on the GPU takes more
GROWS = 0.05  # share of the limit: less is not growth


def cpu_starved(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure the time in which a host's programs were ready to run, but were throttled or others had the CPU.

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
        cpus = busy_cpus(host, *training)
        if len(unused) == len(busy) and not any(_is_taken(host, name) for name in busy):
            text = f"{they} not used at all: no program holds memory there"
            advice = (
                "check that TensorFlow finds them (tf.config.list_physical_devices) and that the script uses them; or "
                "take instances without GPUs"
            )
        elif unused and len(unused) < len(busy):
            text += f", GPU {', '.join(unused[:8])} not at all"
            advice = "start one process for each GPU (ENTRYPOINT_PROCESSES_PER_HOST), or a strategy that uses all"
        elif cpus > 0.8:
            text += f", its CPUs {percent(cpus)}"
            advice = "the CPUs prepare the input too slowly: do less there, or take an instance with more CPUs per GPU"
        weight = (1 - mean) / max(1 - threshold, 0.01)
        yield Verdict(rule="gpu_starved", host=host.name, text=text, advice=advice, weight=weight)


def _beside(host: Host, gpus: list[str], start: float, end: float) -> str:
    """Describe the power and memory of GPUs: "busy" shows only that something ran, and not how much."""
    columns = host.columns
    watts = columns.total(("gpu watts",), start, end) / max(columns.observed(start, end), 1e-9) / len(gpus)
    held = [level for name in gpus for level in columns.between(columns.levels(("gpu memory", name)), start, end)]
    power = f" at {watts:.0f} W each" if watts and len(gpus) > 1 else f" at {watts:.0f} W" if watts else ""
    return f"{power}, with up to {percent(max(held))} of the memory held" if held else power


def _is_taken(host: Host, gpu: str) -> bool:
    held = host.columns.between(host.columns.levels(("gpu memory", gpu)), 0, host.end)
    return max(held, default=0.0) - host.held_at_first.get(gpu, 0.0) > TAKEN


def memory(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure the memory that programs hold. The page cache does not count: the kernel can reclaim it."""
    for host in job.hosts:
        limit, columns = host.about.memory_limit, host.columns
        held = columns.between(columns.levels(("memory", "programs")), 0, host.end)
        advice = "use smaller batches or shuffle buffers, cache() less, or take an instance with more memory"
        of = f" of {size(limit)}" if limit else ""
        peak = max(held, default=0.0)
        if host.oom:
            text = (
                f"the kernel killed {host.oom} process{'es' * (host.oom > 1)} for lack of memory; {size(peak)}{of} held"
            )
            yield Verdict(rule="memory", host=host.name, severity=Severity.ERROR, text=text, advice=advice)
            continue
        if not limit or not held:
            continue
        if peak >= threshold * limit:
            text = f"programs held {size(peak)}, {percent(peak / limit)} of the host's memory"
            yield Verdict(
                rule="memory", host=host.name, text=text, advice=advice, weight=peak / limit / max(threshold, 0.01)
            )
            continue
        start, end = (None if hung(job) else judged(job, host)) or (0.0, 0.0)
        slope = _slope(columns.between(columns.levels(("memory", "programs")), (start + end) / 2, end), columns.width)
        gained = slope * (end - start)
        if gained > GROWS * limit and held[-1] + gained >= limit:
            text = (
                f"memory grows by {size(60 * slope)} a minute, at {size(held[-1])}{of} now: "
                f"full in {duration((limit - held[-1]) / slope)}"
            )
            advice = (
                "look for what is kept from step to step: Python lists, retraced tf.functions, an unbounded cache()"
            )
            yield Verdict(rule="memory", host=host.name, text=text, advice=advice, weight=(held[-1] + gained) / limit)


def _slope(values: list[float], width: float) -> float:
    """Return the growth of values per second by least squares; 0 if there are fewer than six."""
    count = len(values)
    if count < 6:
        return 0.0
    middle, mean = (count - 1) / 2, sum(values) / count
    top = sum((at - middle) * (value - mean) for at, value in enumerate(values))
    return top / sum((at - middle) ** 2 for at in range(count)) / width


def disk(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Measure the free space where models and outputs go."""
    for host in job.hosts:
        whole, columns = host.about.disk_size, host.columns
        free = columns.between(columns.per_second(("free",)), 0, host.end)
        if not whole or not free:
            continue
        left, slope = free[-1], -_slope(free[len(free) // 2 :], columns.width)
        advice = "keep fewer checkpoints (max_to_keep), clean up caches, or ask for a larger volume (VolumeSizeInGB)"
        if left < threshold * whole:
            text = f"{size(left)} of {size(whole)} are free at the end ({percent(left / whole)})"
            severity = Severity.ERROR if left < 0.01 * whole else Severity.WARNING
            weight = threshold * whole / max(left, 1.0)
            yield Verdict(
                rule="disk", host=host.name, severity=severity, text=text, advice=advice, weight=min(weight, 10)
            )
        elif went_well(job) and judged(job, host) and slope * host.end > max(GROWS * whole, left):
            text = f"{size(60 * slope)} are written a minute; {size(left)} are free: full in {duration(left / slope)}"
            yield Verdict(rule="disk", host=host.name, severity=Severity.NOTE, text=text, advice=advice)


def busy_cpus(host: Host, start: float, end: float) -> float:
    """Return the share of its CPUs that a host used in this time, from 0 to 1."""
    seconds = host.columns.observed(start, end)
    used = sum(host.columns.total(("cpu", name), start, end) for name in ("user", "system"))
    return used / seconds / host.cpus if seconds else 0.0
