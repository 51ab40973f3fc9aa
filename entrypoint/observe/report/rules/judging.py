"""Define a rule's verdict, and check whether a job can be judged: it trained, went on, and took long enough."""

from collections.abc import Iterable, Iterator

from entrypoint.base.errors import ExitCode
from entrypoint.base.severity import Severity
from entrypoint.base.values import Value, replace
from entrypoint.observe.report.host_figures import HostFigures
from entrypoint.observe.report.job_record import JobRecord
from entrypoint.observe.report.phases import WORKS

LEAST_SECONDS = 30.0  # of training, needed to judge shares, rates and growth
STEADY_SECONDS = 5.0  # of reported steps, needed to judge their pace
RECENT_SECONDS = 30.0  # before the end of the training: a stall in that time may be why it was ended
QUIET_SECONDS = 30.0  # without progress: a process that is stopped then was stuck


class Verdict(Value):
    """Describe one problem of a job."""

    rule: str
    host: str  # empty if the whole job is meant
    process: str = ""
    text: str  # one sentence, with its figures
    advice: str  # what to do
    severity: Severity = Severity.WARNING
    weight: float = 1.0  # order among verdicts of one severity: larger is worse


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the worst verdict of each rule, sorted. Its text names other hosts or processes with this problem."""
    by_rule: dict[str, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: (-verdict.severity, -verdict.weight)):
        by_rule.setdefault(verdict.rule, []).append(verdict)
    found = []
    for worst, *rest in by_rule.values():
        others = {(each.host, each.process) for each in rest} - {(worst.host, worst.process)}
        names = sorted({host for host, _ in others} - {worst.host})
        what = ", ".join(names[:3]) or f"{len(others)} more processes of this host"
        more = f" and {len(names) - 3} more hosts" if len(names) > 3 else ""
        same = f"; the same holds for {what}{more}" if others else ""
        found.append(replace(worst, text=f"{worst.text}{same}"))
    return found


def went_well(job: JobRecord) -> bool:
    """Return whether advice on speed helps: the job neither failed nor hung. A job that still runs goes well."""
    failed = job.outcome is not None and job.outcome["kind"] == "failed"
    return not (failed or hung(job))


def hung(job: JobRecord) -> bool:
    """Return whether the job hung when it ended: by its exit code, or by stacks and stalls after its last step.

    A job that has succeeded did not hang, whatever was recorded before.
    """
    if job.outcome is not None and job.outcome["kind"] == "succeeded":
        return False
    if job.outcome is not None and job.outcome["code"] == ExitCode.HUNG:
        return True
    times = [stack["at"] for host in job.hosts for stack in host.stacks]
    recent = job.trains_until - RECENT_SECONDS
    times += [at for host in job.hosts for at in host.stalled if at >= recent]
    quiet = {
        (host.name, name)
        for host in job.hosts
        for at, name, seconds, cpus in host.still
        if at >= recent and seconds >= QUIET_SECONDS and cpus < WORKS
    }
    trainers = {(host.name, process.name) for host, process in job.trainers()}
    if trainers and trainers <= quiet:  # each was silent for long at the end, and did not work
        times.append(job.trains_until)
    steps = [each.times[-1] for _, process in job.trainers() for each in (process.steps, process.step_marks) if each]
    return max(times, default=0.0) > max(steps, default=0.0)


def judged(job: JobRecord, host: HostFigures) -> tuple[float, float] | None:
    """Return the begin and end of a host's training; None if it was too short to be judged."""
    start, end = job.training(host)
    return (start, end) if end - start >= LEAST_SECONDS else None


def well_judged(job: JobRecord) -> Iterator[tuple[HostFigures, float, float]]:
    """Yield (host, begin, end) of each host's training that took at least LEAST_SECONDS, if the job went well."""
    for host in job.hosts if went_well(job) else ():
        if training := judged(job, host):
            yield host, *training
