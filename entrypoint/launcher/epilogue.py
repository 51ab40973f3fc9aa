"""Log, write and print the causes, seconds and losses of a job that has ended."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.outcome import report
from entrypoint.launcher.outcome.outcome import Kind, Outcome
from entrypoint.launcher.policy import evidence
from entrypoint.launcher.policy.messages import summary
from entrypoint.launcher.supervisor import Supervisor
from entrypoint.record import lines

STDERR_SECONDS = 0.5  # to write to stderr what stdout did not take


def log_evidence(supervisor: Supervisor, outcome: Outcome, log: Log) -> None:
    """Log and write what is known about the end: evidence if it was no success, the times, the summary."""
    facts, paths, now = supervisor.facts, supervisor.job.paths, time.monotonic()
    complaints = []
    if outcome.kind is not Kind.SUCCEEDED:
        for line in evidence.in_short(facts, outcome):
            log.print(line)
        tails = {name: log.tail(name) for name in supervisor.host.processes}
        text = evidence.in_full(facts, outcome, tails, now)
        complaints.append(report.write_evidence(paths.evidence(facts.host), text, log.secret))
    totals = {**summary(facts, outcome, now), "pid": os.getpid()}
    if seconds := [f"{key} {value}" for key, value in totals["seconds"].items() if value is not None]:
        log.print("seconds: " + ", ".join(seconds))
    if where := supervisor.job.settings.summary:
        complaints.append(report.write_evidence(Path(where), json.dumps(log.secret.mask_all(totals), indent=1)))
    for complaint in filter(None, complaints):
        log.print(complaint)


def write_out(log: Log, host: str, supervisor: Supervisor | None, signals: list[int]) -> None:
    """Write the remaining output. If nobody reads stdout, report the loss in the evidence file and on stderr."""
    stops = supervisor is not None and supervisor.facts.stopping_since is not None
    missing = log.finish(hurries=lambda: stops or bool(signals))
    if not missing:
        return
    words = f"{missing} bytes of the output of this host were not written: nobody read stdout, or the disk was full"
    if supervisor is not None:
        report.add_evidence(supervisor.job.paths.evidence(host), words)
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.fstat(1), os.fstat(2)):
            stderr = Log(host, fd=2)
            stderr.print(words)
            stderr.finish(patience=STDERR_SECONDS)


def end_of_record(outcome: Outcome, supervisor: Supervisor | None, mask: Callable[[str], str]) -> lines.OutcomeLine:
    """Return the record's line about how the job ended, and which hosts' monitors can still be reached.

    The coordinator waits for the monitors of hosts that have left in good order; a follower's waits for the
    coordinator.
    """
    masked = outcome.with_texts(mask)
    cause, there = masked.cause, list[str]()
    if supervisor and supervisor.facts.is_coordinator:
        there = [host for host in supervisor.facts.others if supervisor.facts.report_of(host).gone]
    elif supervisor and supervisor.facts.coordinator not in supervisor.facts.lost():
        there = [supervisor.facts.coordinator]
    blamed = {part: getattr(cause, part) for part in lines.CAUSE} if cause else None
    return lines.OutcomeLine(kind=str(masked.kind), exit_code=masked.exit_code, cause=blamed, there=there)
