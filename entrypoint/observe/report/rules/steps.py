"""Judge the course of a training: its steps, losses and checkpoints, and the time in which hosts wait."""

import statistics
from collections.abc import Iterator

from entrypoint.base.errors import ExitCode
from entrypoint.base.series import Series
from entrypoint.base.severity import Severity
from entrypoint.base.wording import duration, listed, percent
from entrypoint.observe.report.host_figures import ProcessFigures
from entrypoint.observe.report.job_record import JobRecord
from entrypoint.observe.report.phases import IDLE
from entrypoint.observe.report.rules.judging import STEADY_SECONDS, Verdict, went_well

LEAST_IDLE = 2.0  # host-seconds below which no waiting is reported
APART = 1e9  # weight of the worst verdict on a job that has succeeded
SHOWN = 3  # processes that are named
LEAST = 20  # steps, and values of a loss, needed for a judgement
POINTS = 6  # twice as many reports of steps, or three times as many marks, are needed to judge growth


def seconds_per_step(process: ProcessFigures) -> float | None:
    """Return the mean of the last attempt; None if the process reports no steps or too few."""
    if len(process.step_marks) >= 3:
        return statistics.fmean(process.step_marks.values)
    times, steps = _last_rise(process.steps)
    if len(times) < 3 or steps[-1] - steps[0] < LEAST:
        return None
    return (times[-1] - times[0]) / (steps[-1] - steps[0])


def _span(process: ProcessFigures) -> float:
    """Return the seconds over which a process has reported steps."""
    times = process.step_marks.times if len(process.step_marks) >= 3 else _last_rise(process.steps)[0]
    return times[-1] - times[0] if len(times) else 0.0


def _last_rise(series: Series) -> tuple[list[float], list[float]]:
    """Return times and values since the value last fell: it falls when a script starts again."""
    times, values = list(series.times), list(series.values)
    start = next((at for at in range(len(values) - 1, 0, -1) if values[at] < values[at - 1]), 0)
    return times[start:], values[start:]


def apart(job: JobRecord, _: float) -> Iterator[Verdict]:
    """Repeat the monitor's finding that the hosts did not train one model, which makes all other advice pointless."""
    found = job.coordinator.apart if job.coordinator else None
    if found:
        yield Verdict(
            rule="apart", host="", severity=Severity.ERROR, weight=APART,
            text=f"the hosts trained apart since {duration(found['since'])} after the start, each a model of its own: "
            f"{found['words']}",
            advice=found["advice"],
        )  # fmt: skip


def straggler(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare the pace of each training process with the median of all."""
    found = [
        (host, process, each)
        for host, process in job.trainers()
        if (each := seconds_per_step(process)) and _span(process) >= STEADY_SECONDS
    ]
    if len(found) < 2 or not went_well(job):
        return
    # The low median: of two processes, the slower is compared with the faster.
    median = statistics.median_low(each for _, _, each in found)
    for host, process, each in found:
        if each >= threshold * median and each > median:
            yield Verdict(
                rule="straggler", host=host.name, process=process.name, weight=each / median / max(threshold, 0.1),
                text=f"takes {duration(each)} for a step, {each / median:.1f} times the median of "
                f"{len(found)} processes ({duration(median)})",
                advice="compare its host's CPUs, disks and network with the others', and its share of the data; in "
                "synchronous training all processes wait for it",
            )  # fmt: skip


def is_loss(name: str) -> bool:
    """Return whether a metric is a loss of the training, and not of an evaluation."""
    words = name.lower().replace("-", "_").split("_")
    return words[-1] == "loss" and not {"val", "eval", "test", "validation"} & set(words)


def loss(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Find losses that are NaN or infinite, or do not fall."""
    for host, process in job.trainers():
        for name, series in process.metrics.items():
            if "loss" not in name.lower():
                continue
            if series.broken:
                at, value = series.broken
                yield Verdict(
                    rule="loss", host=host.name, process=process.name, severity=Severity.ERROR, weight=1e6 - at,
                    text=f"{name} is {value} {duration(at)} after the start",
                    advice="lower the learning rate, clip gradients, look for log(0) and bad rows; "
                    "tf.debugging.enable_check_numerics() names the operation",
                )  # fmt: skip
            elif is_loss(name) and len(series) >= LEAST and went_well(job):
                values = list(series.values)
                few = max(3, len(values) // 10)
                first, last = (statistics.fmean(part) for part in (values[:few], values[-few:]))
                if first - last < threshold * abs(first):
                    went = "rises" if last > first else "falls"
                    yield Verdict(
                        rule="loss", host=host.name, process=process.name, severity=Severity.WARNING,
                        weight=1 + (last - first) / max(abs(first), 1e-9),
                        text=f"{name} {went} from {first:.4g} to {last:.4g} in {len(values)} values, "
                        f"by {percent(abs(first - last) / max(abs(first), 1e-9))}",
                        advice="try another learning rate; check that labels match their inputs, and that gradients "
                        "reach all variables",
                    )  # fmt: skip


def step_growth(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare the last third of the training with the first. The first tenth is left out, as its steps are slow."""
    for host, process in job.trainers() if went_well(job) else ():
        if _span(process) < STEADY_SECONDS:
            continue
        if len(process.step_marks) >= 3 * POINTS:
            values = list(process.step_marks.values)[len(process.step_marks) // 10 :]
            first, last = (statistics.fmean(part) for part in (values[: len(values) // 3], values[-len(values) // 3 :]))
        else:
            times, steps = _last_rise(process.steps)
            skipped = len(times) // 10
            times, steps = times[skipped:], steps[skipped:]
            third = len(times) // 3
            if len(times) < 2 * POINTS or steps[-1] - steps[0] < LEAST:
                continue
            first = (times[third] - times[0]) / max(steps[third] - steps[0], 1e-9)
            last = (times[-1] - times[-1 - third]) / max(steps[-1] - steps[-1 - third], 1e-9)
        if first > 0 and last / first >= threshold and last > first:
            yield Verdict(
                rule="step_growth", host=host.name, process=process.name,
                weight=min(10, last / first / max(threshold, 0.1)),
                text=f"a step takes {duration(last)} at the end, {last / first:.1f} times as long as at the start "
                f"({duration(first)})",
                advice="look for what grows: a tf.function that is retraced, a list of results, a graph that gets "
                "operations in each step; or a host that gets hot or is throttled",
            )  # fmt: skip


def checkpoint(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare the longest checkpoint with the time that a stopped job has to write one."""
    for host, process in job.trainers():
        budget = (host.about.limits or {}).get("stop", 0.0)
        if budget <= 0:
            continue
        longest = max((mark.seconds for mark in process.marks if mark.what == "checkpoint"), default=0.0)
        if longest > 0 and longest >= threshold * budget:
            yield Verdict(
                rule="checkpoint", host=host.name, process=process.name, weight=longest / budget / max(threshold, 0.01),
                severity=Severity.ERROR if longest >= budget else Severity.WARNING,
                text=f"a checkpoint takes {duration(longest)}, but the scripts of a stopped job are killed after "
                f"{duration(budget)}",
                advice="save less (weights without optimizer slots), to a faster disk, or during training instead "
                "of at the stop",
            )  # fmt: skip


def idle(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Count the host-seconds spent waiting: for other hosts at the start, without progress, or at the end.

    In a job that failed or hung, only time without progress and between attempts counts: its other waits follow from
    that. Waits for hosts that never came do not count, nor waits for scripts that save because the job is stopped.
    """
    total = sum(span.end - span.start for spans in job.spans.values() for span in spans)
    stopped = (at for host in job.hosts for at, phase in host.phases if phase == "stopping")
    until = min(stopped, default=job.seconds)
    counted = IDLE - {"data wait"} if went_well(job) else {"still", "restart"}
    if not any(process.runs for _, process in job.trainers()):
        counted = counted - {"rendezvous"}
    sums: dict[str, float] = {}
    by_host: dict[str, float] = {}
    for host, spans in job.spans.items():
        for span in spans:
            if span.phase in counted and (seconds := min(span.end, until) - span.start) > 0:
                sums[span.phase] = sums.get(span.phase, 0.0) + seconds
                by_host[host] = by_host.get(host, 0.0) + seconds
    waited = sum(sums.values())
    if not total or waited < LEAST_IDLE or waited / total < threshold:
        return
    phase, _ = max(sums.items(), key=lambda item: item[1])
    host, most = max(by_host.items(), key=lambda item: item[1])
    advice = (phase == "idle" and _of_servers(job)) or _ADVICE[phase]
    if phase == "still" and job.outcome and job.outcome["code"] == ExitCode.HUNG:
        advice = "a smaller ENTRYPOINT_HANG_AFTER ends such a job sooner"
    stacks = "the stacks show where each process waited; " if any(each.stacks for each in job.hosts) else ""
    yield Verdict(
        rule="idle", host=host, weight=waited / total / max(threshold, 0.01),
        text=f"hosts are idle for {percent(waited / total)} of all host-seconds ({duration(waited)}, of which "
        f"{duration(most)} on this host), {_WHEN[phase]}",
        advice=stacks + advice if phase == "still" else advice,
    )  # fmt: skip


def _of_servers(job: JobRecord) -> str:
    """Return advice on scripts that ran on after all others and reported no step: they seem to serve."""
    ends = {(host.name, each.name): each.runs[-1].end or host.end for host, each in job.trainers() if each.runs}
    trained = {(host.name, each.name) for host, each in job.trainers() if each.steps or each.step_marks}
    last = max((ends[who] for who in trained & ends.keys()), default=job.seconds)
    serve = [f"{name} on {host}" for (host, name), end in ends.items() if end > last and (host, name) not in trained]
    if not serve:
        return ""
    return (
        f"the others waited for {listed(serve, SHOWN)}, which reported no step: if it serves them, as tf.data's "
        "service does, let it end with them, or set a mode of distribution and name the groups that train in "
        "sagemaker_distribution_instance_groups"
    )


_WHEN = {
    "rendezvous": "mostly while waiting for other hosts to start",
    "restart": "mostly between two attempts",
    "still": "mostly without any progress",
    "idle": "mostly after their own programs ended, while others continued",
}
_ADVICE = {
    "rendezvous": "prepare less on the slowest host (requirements, code); the timeline shows which host is last",
    "restart": "see the cause of the first attempt's end",
    "still": "ENTRYPOINT_HANG_ACTION=fail ends such a job, after ENTRYPOINT_HANG_AFTER",
    "idle": "share data and steps evenly, so that all hosts end together; evaluate on all hosts, or in a separate job",
}
