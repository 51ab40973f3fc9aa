"""Write a report as text for people, and as JSON for programs. Secrets are masked: reports get pasted into tickets."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from entrypoint.base.errors import clip
from entrypoint.base.secrets import Secrets
from entrypoint.base.severity import BAD, Severity
from entrypoint.check.doctor.doctor import DoctorReport, title_of
from entrypoint.check.doctor.planned_job import Described, our_launcher_runs
from entrypoint.check.doctor.subject import AWS_IMAGE
from entrypoint.check.finding import Finding, counted
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.job.params import PREFIX

UNSEALED = "the kernel gave the launch script no network of its own, so code beside Python's sockets could connect"
# How our launcher differs for a job that was written for AWS's images. docs/differences.md and docs/scripts.md have the
# whole list.
_ALWAYS_DIFFER = (
    "arguments reach the script as they are; AWS's images pass them through a shell",
    "a failure ends all hosts, with one exit code and one FailureReason; SIGTERM reaches the script",
    "lines of the log begin with [host process]",
)
_DIFFER_IN = {
    Mode.SINGLE: (),
    Mode.PS: (
        "rank 0 is `chief` for TensorFlow 2, and `master` only for TensorFlow 1's sessions and Estimators",
        "parameter servers leave last, and workers that only serve are ended with the chief",
    ),
    Mode.MWMS: ("several workers on a host are possible, each with its GPUs (ENTRYPOINT_PROCESSES_PER_HOST)",),
    Mode.MPI: (
        "each rank has the SM_* of its own host, not those of the first",
        "hosts end with mpirun, not half a minute later",
    ),
    Mode.JAX: (),
}
MOST_NOTES = 3  # kinds of notes that are printed; people stop reading more
_USUAL_NOTES = ("no-sigterm", "batch-size", "learning-rate")  # true of most jobs: the first to be left out


def as_text(report: DoctorReport, *, all_notes: bool = False) -> str:
    """Return the report as text: what would run, each finding with its place, and the numbers of findings.

    Without `all_notes`, notes of more than a few kinds are only named.
    """
    lines = []
    for job in report.jobs:
        lines += [f"{job.request.at()}: {_title(job)}", *(f"    {line}" for line in _about(job, report.unseen))]
    if not report.jobs:
        lines += [f"{code.main.shown}: checked without a job" for code in report.programs]
    left = [] if all_notes else _notes_left(report.findings)
    for of, findings in report.groups:
        shown = [each for each in findings if each not in left]
        lines += ["", f"in {of}:"] if shown and of else []
        for finding in shown:
            lines += ["", f"{finding.place}: {finding.severity} [{finding.check}] {finding.found}"]
            lines += [f"    put: {finding.instead}"]
    if left:
        named = (f"{kind}{f' ({times})' * (times > 1)}" for kind, times in Counter(each.check for each in left).items())
        lines += ["", f"more notes, which --notes prints: {', '.join(named)}"]
    if report.unsealed:
        lines += ["", f"{UNSEALED}: {report.unsealed}"]
    page = "; docs/rules.md shows each rule's remedy on an example" if report.findings else ""
    return _secrets(report).mask("\n".join([*lines, "", counted(report.findings, BAD) + page]))


def _notes_left(findings: Iterable[Finding]) -> list[Finding]:
    """Return the notes that are only named: of all kinds but a few, those last that are true of most jobs."""
    notes = [each for each in findings if each.severity is Severity.NOTE]
    kinds = sorted(dict.fromkeys(each.check for each in notes), key=lambda kind: kind in _USUAL_NOTES)
    return [each for each in notes if each.check not in kinds[:MOST_NOTES]]


def as_json(report: DoctorReport) -> dict[str, Any]:
    """Return the report for programs: {"jobs", "findings", "errors", "warnings", "notes"}."""
    counts = Counter(each.severity for each in report.findings)
    value = {
        "jobs": [
            {
                "file": job.request.file,
                "line": job.request.at().line,
                "title": _title(job),
                "image": job.request.image,
                "mode": str(job.job.mode) if job.job else None,
                "hosts": len(job.job.cluster.hosts) if job.job else None,
                "program": job.job.program.name if job.job else None,
                "program_seen": job.job is not None and job.job.program.name not in report.unseen,
                "processes": len(job.plan.processes) if job.plan else None,
                "differences": list(_differences(job)),
            }
            for job in report.jobs
        ],
        "findings": [each.value for each in report.findings],
        **{f"{each}s": counts[each] for each in BAD},
    }
    return dict(_secrets(report).mask_all(value))


def _secrets(report: DoctorReport) -> Secrets:
    return Secrets(*(each for job in report.jobs for each in (job.request.environment, job.request.hyperparameters)))


def _title(job: Described) -> str:
    if not our_launcher_runs(job.request):
        return "what the request names as the container's entrypoint, in place of our launcher"
    return title_of(job)


def _about(job: Described, unseen: frozenset[str]) -> list[str]:
    request = job.request
    program = job.job.program if job.job else None
    lines = [f"image     {request.image or 'none'}"]
    if program and program.name:
        lines.append(f"program   {program.name}, of {program.source}")
    groups = (f"{each.get('InstanceCount')} x {each.get('InstanceType')}" for each in request.groups)
    lines.append(f"hosts     {', '.join(groups)}")
    if request.channels:
        lines.append(f"channels  {clip(', '.join(request.channels))}")
    if program and program.name in unseen:
        lines.append(f"unseen    {program.name} was not checked: pass it on the command line, too")
    return [*lines, *(f"differs   {text}" for text in _differences(job))]


def _differences(job: Described) -> tuple[str, ...]:
    """Return a sentence for each difference from AWS's images, if the job uses these images or their switches."""
    switched = any(key.startswith(PREFIX) and key.endswith("_enabled") for key in job.request.hyperparameters)
    if job.job is None or not (switched or AWS_IMAGE.match(job.request.image)):
        return ()
    return (*_DIFFER_IN[job.job.mode], *_ALWAYS_DIFFER)
