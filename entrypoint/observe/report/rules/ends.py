"""Judge the duration of checkpoints, and the time in which hosts wait."""

from collections.abc import Iterator

from entrypoint.base.severity import Severity
from entrypoint.base.wording import duration, percent
from entrypoint.observe.report.job import JobRecord
from entrypoint.observe.report.phases import IDLE
from entrypoint.observe.report.rules.premises import stopped_at, went_well
from entrypoint.observe.report.rules.verdict import Verdict

LEAST = 2.0  # host-seconds below which nothing is reported


def checkpoint(job: JobRecord, threshold: float) -> Iterator[Verdict]:
    """Compare the longest checkpoint with the time that a stopped job has for one."""
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
    """Count the host-seconds in which hosts waited: for others at the start, without progress, or at the end.

    In a job that failed or hung, only time without progress and between attempts counts: its other waits follow from
    that. Waits for hosts that never came do not count, nor waits for scripts that save because the job is stopped.
    """
    total = sum(span.end - span.start for spans in job.spans.values() for span in spans)
    until = stopped_at(job)
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
    if not total or waited < LEAST or waited / total < threshold:
        return
    phase, _ = max(sums.items(), key=lambda item: item[1])
    host, most = max(by_host.items(), key=lambda item: item[1])
    stacks = any(each.stacks for each in job.hosts)
    yield Verdict(
        rule="idle", host=host, weight=waited / total / max(threshold, 0.01),
        text=f"hosts are idle for {percent(waited / total)} of all host-seconds ({duration(waited)}, of which "
        f"{duration(most)} on this host), {_WHEN[phase]}",
        advice=_SEE_STACKS + _ADVICE[phase] if phase == "still" and stacks else _ADVICE[phase],
    )  # fmt: skip


_WHEN = {
    "rendezvous": "mostly while waiting for other hosts to start",
    "restart": "mostly between two attempts",
    "still": "mostly without any progress",
    "idle": "mostly after their own programs ended, while others continued",
}
_SEE_STACKS = "the stacks show where each process waited; "
_ADVICE = {
    "rendezvous": "prepare less on the slowest host (requirements, code); the timeline shows which host is last",
    "restart": "see the cause of the first attempt's end",
    "still": "ENTRYPOINT_HANG_ACTION=fail ends such a job",
    "idle": "share data and steps evenly, so that all hosts end together; evaluate on all hosts, or in a separate job",
}
