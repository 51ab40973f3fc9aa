"""Log, write and print the causes, seconds and losses of a job that has ended."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import indent

from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.outcome import report
from entrypoint.launcher.outcome.outcome import Confidence, Kind, Outcome, clip, clip_head
from entrypoint.launcher.policy.facts import Facts
from entrypoint.launcher.policy.messages import summary
from entrypoint.launcher.policy.rendezvous import columns
from entrypoint.launcher.supervisor import Supervisor
from entrypoint.record import lines

LINES, LINE_BYTES = 30, 4096  # of the last output of each process
LIMIT_CHARS = 1 << 16  # characters of a whole file
ROWS = 40  # of each table in the log; a file has up to ten times as many
STDERR_SECONDS = 0.5  # to write to stderr what stdout did not take


def log_evidence(supervisor: Supervisor, outcome: Outcome, log: Log) -> None:
    """Log and write the times and the summary of a job, and the evidence of its end unless it succeeded."""
    facts, paths, now = supervisor.facts, supervisor.job.paths, time.monotonic()
    complaints = []
    if outcome.kind is not Kind.SUCCEEDED:
        for line in in_short(facts, outcome):
            log.print(line)
        tails = {name: log.tail(name) for name in supervisor.host.processes}
        text = in_full(facts, outcome, tails, now)
        complaints.append(report.write_evidence(paths.evidence(facts.host), text, log.secret))
    totals = {**summary(facts, outcome, now), "pid": os.getpid()}
    if seconds := [f"{key} {value}" for key, value in totals["seconds"].items() if value is not None]:
        log.print("seconds: " + ", ".join(seconds))
    if where := supervisor.job.settings.summary:
        complaints.append(report.write_evidence(Path(where), json.dumps(log.secret.mask_all(totals), indent=1)))
    for complaint in filter(None, complaints):
        log.print(complaint)


def in_short(facts: Facts, outcome: Outcome) -> list[str]:
    """Return the log's lines about the causes of failure and the end of each process."""
    noted = [*facts.history, *facts.attempt.causes]
    if outcome.cause is None or (len(noted) <= 1 and not facts.others):
        return []  # the cause is all that is known
    return [*_causes(facts, ROWS), *_exits(facts, ROWS)]


def in_full(facts: Facts, outcome: Outcome, tails: Mapping[str, str], now: float) -> str:
    """Return the text of this host's file. `tails`: the last output of its processes; `now`: the host's clock."""
    role = "the coordinator" if facts.is_coordinator else "a follower"
    headline = f"job {outcome.kind}, exit code {int(outcome.exit_code)}"
    shown = [
        headline + (f": {outcome.cause.headline}" if outcome.cause else ""),
        f"seen from {facts.host}, {role}; seconds are counted from its start, {now - facts.began:.1f} s ago",
        "",
        *_causes(facts, 10 * ROWS),
        *_exits(facts, 10 * ROWS),
        *_hosts(facts, now),
    ]
    if not facts.is_coordinator:
        shown += [f"how the processes of other hosts ended is in the file of {facts.coordinator}", ""]
    if outcome.cause and outcome.cause.details:
        shown += ["the end of the traceback, or of what was printed", indent(outcome.cause.details, "    "), ""]
    text = "\n".join(shown)
    for name, tail in tails.items():
        last = clip_head("\n".join(tail.splitlines()[-LINES:]), LINE_BYTES)
        block = "\n".join(["", f"last lines of {name}", indent(last or "(no output)", "    "), ""])
        if len(text) + len(block) < LIMIT_CHARS:
            text += block
    return clip(text, LIMIT_CHARS)


def _causes(facts: Facts, most: int) -> list[str]:
    """Return all reported causes of failure, in the order in which they happened."""
    noted = sorted([*facts.history, *facts.attempt.causes], key=lambda each: (each.attempt, each.at))
    if not noted:
        return []
    several = any(each.attempt for each in noted)
    rows = [("attempt", "second", "what went wrong", "")]
    for each in noted[:most]:
        symptom = "(probably a symptom)" if each.cause.confidence is Confidence.LOW else ""
        rows.append((str(each.attempt), f"{each.at - facts.began:.3f}", clip(each.cause.headline, 200), symptom))
    return [*columns([row if several else row[1:] for row in rows], len(noted) - most), ""]


def _exits(facts: Facts, most: int) -> list[str]:
    """Return a table of how processes ended.

    On the coordinator it has the processes of all hosts, on a follower only those of this host.
    """
    rows = [("second", "process", "how it ended")]
    count = 0
    for host in facts.plan.hosts:
        # The seconds of another host are counted from its own start.
        exits = facts.own.exits(facts.began) if host == facts.host else facts.report_of(host).exits
        for process, how, second in exits:
            count += 1
            if count <= most:
                rows.append((f"{second:.3f}", f"{host} {process}", how))
    return [*columns(rows, count - most), ""] if count else []


def _hosts(facts: Facts, now: float) -> list[str]:
    rows = [("host", "last report", "")]
    for host in facts.others[: 10 * ROWS] if facts.is_coordinator else [facts.coordinator] * bool(facts.others):
        at = facts.hosts.last_contact.get(host)
        last_report = "never" if at is None else f"{now - at:.1f} s ago"
        rows.append((host, last_report, "has left" if facts.hosts.is_gone(host) else ""))
    return [*columns(rows), ""] if len(rows) > 1 else []


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
