"""Write what is known of a job's end besides its cause: briefly for the log, in full for a file of each host. Pure."""

from collections.abc import Mapping
from textwrap import indent

from entrypoint.launcher.outcome.outcome import Confidence, Outcome, clip, clip_head
from entrypoint.launcher.policy.facts import Facts
from entrypoint.launcher.policy.rendezvous import columns

LINES, LINE_BYTES = 30, 4096  # of the last output of each process
LIMIT_CHARS = 1 << 16  # characters of a whole file
ROWS = 40  # of each table in the log; a file has up to ten times as many


def in_short(facts: Facts, outcome: Outcome) -> list[str]:
    """Return lines for the log: what went wrong, and how each process ended."""
    noted = [*facts.history, *facts.attempt.causes]
    if outcome.cause is None or (len(noted) <= 1 and not facts.others):
        return []  # the cause is all that is known
    return [*_causes(facts, ROWS), *_exits(facts, ROWS)]


def in_full(facts: Facts, outcome: Outcome, tails: Mapping[str, str], now: float) -> str:
    """Return the text of this host's file. `tails`: the last output of its processes; `now`: the host's clock."""
    role = "the coordinator" if facts.is_coordinator else "a follower"
    headline = f"job {outcome.kind}, exit code {int(outcome.exit_code)}"
    lines = [
        headline + (f": {outcome.cause.headline}" if outcome.cause else ""),
        f"seen from {facts.host}, {role}; seconds are counted from its start, {now - facts.began:.1f} s ago",
        "",
        *_causes(facts, 10 * ROWS),
        *_exits(facts, 10 * ROWS),
        *_hosts(facts, now),
    ]
    if not facts.is_coordinator:
        lines += [f"how the processes of other hosts ended is in the file of {facts.coordinator}", ""]
    if outcome.cause and outcome.cause.details:
        lines += ["the end of the traceback, or of what was printed", indent(outcome.cause.details, "    "), ""]
    text = "\n".join(lines)
    for name, tail in tails.items():
        last = clip_head("\n".join(tail.splitlines()[-LINES:]), LINE_BYTES)
        block = "\n".join(["", f"last lines of {name}", indent(last or "(no output)", "    "), ""])
        if len(text) + len(block) < LIMIT_CHARS:
            text += block
    return clip(text, LIMIT_CHARS)


def _causes(facts: Facts, most: int) -> list[str]:
    """Return everything that was reported to go wrong, in the order in which it happened."""
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
    """Return how processes ended: those of all hosts on the coordinator, its own on a follower."""
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
