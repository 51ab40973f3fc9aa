"""Judge a job by rules for any launcher: return one line for each violation, beginning with the rule's name.

This imports nothing of the launcher; the rules come from docs/lifecycle.md. Every rule reads the actual events
(journals, injected faults), never the drawn case.
"""

import re
import signal
from collections.abc import Iterator
from math import inf

from benchmarks.chaos.history import ABSENT, LOST, NEAR, History, Trouble
from benchmarks.chaos.observed import Observed

SLACK = 3.0  # seconds beyond what is promised
PEER = 10.0  # seconds that an error waits for its cause in which a framework says that another process has ended
DYING, LEAVE, LINE, WRITES, UNWIND, MEET = 3.0, 3.0, 1.5, 6.0, 10.0, 30.0  # limits of the launcher's, seconds
UNREAD = 15.0  # more of WRITES for a reader, if no SIGTERM reached the host
COMPUTES = 2.0  # seconds of computing that each limit allows for, on the machine of the record (tests/budget.py)
HEARS = 3.0  # seconds from SIGTERM to a host until it has reached scripts everywhere
STOPPED = 143
ENDS = ("exits", "raises", "kills")  # deeds of a script

_HEADLINE = re.compile(r"(algo-\d+)(?: ([^\s(][^(]*?))? \((.*?)\)(?::|$)")
_LINE = re.compile(r"chaos (algo-\d+) (rank \d+|\S+) (\d+) (\d+) step (\d+) \.*")


def violations(seen: Observed) -> list[str]:
    """Return a line for each violation; empty if all rules hold."""
    if not seen.ended:
        return [f"bound: the job had not ended after {seen.seconds:.0f} s"]
    history = History(seen)
    rules = (bound, goes_on, hears, success, failure, stop, agreement, cause, retried, saved, left, lines, own_fault)
    return [f"{rule.__name__}: {what}" for rule in rules for what in rule(history)]


def rules_of(violations: list[str]) -> set[str]:
    """Return the names of the rules that were violated."""
    return {violation.partition(":")[0] for violation in violations}


# --- time ---


def bound(history: History) -> Iterator[str]:
    """Check that every host that can end does so within the sum of the settings' times."""
    for host, gone in history.seen.gone.items():
        since, limit = _limit(history, host)
        limit += _busy(history, since, gone) + _slow(history)
        if host not in history.killed and gone > since + limit:
            yield f"{host} was gone {gone - since:.1f} s after what ended the job; wanted {limit:.1f} s"
    for host in history.case.names:
        if host not in history.seen.gone and history.seen.exits.get(host) != "-":  # it was never started
            yield f"nobody saw {host} go"


def _limit(history: History, host: str) -> tuple[float, float]:
    """Return (start, seconds) of the limit in which a host must end."""
    case, seen = history.case, history.seen
    retries = case.setting("RESTARTS")
    ends = [t.at for t in history.troubles if t.certain and not t.symptom and not (t.chance and retries)]
    ends += [history.stopped_at]
    happened = [deed.at for deed in seen.deeds] + [each.at for each in seen.injected]
    happened += [each.over for each in seen.injected if each.over is not None]
    since = min(ends) if min(ends) < inf else max([seen.began, *happened])
    own = [each.over or inf for each in history.of("pause", "cut", "late", "freeze") if each.fault.host == host]
    since = max([since, *(over for over in own if over < inf)])
    limit = SLACK + 2 * case.setting("FAILURE_GRACE")
    limit += case.setting("STOP_GRACE") if history.stopped_at < inf else 0
    limit += DYING if since != history.stopped_at else 0
    if any(deed.what == "misses" for deed in seen.deeds):
        limit += PEER
    if history.impaired or any(history.of("pause", "slow")):  # hosts that do not answer are waited for
        limit += LINE + LEAVE + case.setting("PEER_TIMEOUT")
    if case.mode == "mpi" and history.stopped_at < inf and history.all_ended_well:
        limit += UNWIND
    if not seen.deeds:  # hosts may not have met: one that fails waits for the others
        limit += case.setting("START_TIMEOUT") + MEET
    if any(history.of("pause", "pids", "freeze")):
        limit += case.setting("KILL_TIMEOUT")
    if any(history.of("stall")):
        limit += WRITES
        unread = any(each.fault.host == host for each in history.of("stall"))
        limit += UNREAD if unread and not (since == history.stopped_at and host in history.stopped_first) else 0
    return since, limit + retries * 2


def _busy(history: History, since: float, until: float) -> float:
    """Return the seconds by which the machine may have delayed the job between two moments; waits may repeat."""
    return 2 * history.held_up(since, until)


def _slow(history: History) -> float:
    """Return the seconds that a slow processor adds, even if no process waits for a CPU."""
    return COMPUTES * (history.seen.slowness - 1)


def goes_on(history: History) -> Iterator[str]:
    """Check that no script continues after the job has failed, or after its grace in a stop."""
    case, seen = history.case, history.seen
    last = {host: max((d.at for d in seen.deeds if d.host == host), default=0.0) for host in case.names}
    for host in case.names:
        if host in history.impaired or any(e.fault.host == host for e in history.of("pause", "freeze")):
            continue
        told = seen.told.get(host, inf) if seen.exits.get(host) not in ("0", str(STOPPED)) else inf
        for since, grace, what in (
            (told, case.setting("FAILURE_GRACE"), "the verdict"),
            (history.stopped_at, case.setting("STOP_GRACE"), "the stop"),
        ):
            wanted = grace + 4 + _busy(history, since, last[host]) + _slow(history)
            if last[host] > since + wanted:
                yield f"a script on {host} worked {last[host] - since:.1f} s after {what}; wanted {wanted:.1f} s"


def hears(history: History) -> Iterator[str]:
    """Check that SIGTERM to a host reaches all scripts on all reachable hosts."""
    at, case = history.stopped_at, history.case
    if at > min((t.at for t in history.troubles), default=inf) - NEAR or history.case.names[0] in history.impaired:
        return
    still = {(e.fault.host, e.fault.process) for e in history.of("pause", "freeze")}
    away = {host for host, process in still if not process}
    for (host, process), runs in history.runs.items():
        deeds, script = runs[-1], case.script(host, process)
        ended = deeds[-1].at if deeds[-1].what in ENDS else history.seen.gone.get(host, 0.0)
        wanted = HEARS + _busy(history, at, ended) + _slow(history)
        there = deeds[0].at < at - NEAR - history.held_up(deeds[0].at, at) and ended > at + wanted
        excused = {host, case.names[0]} & (away | history.impaired) or (host, process) in still
        if script.sigterm and there and not excused:
            heard = next((deed.at - at for deed in deeds if deed.what == "sigterm"), inf)
            if heard > wanted:
                yield f"{host} {process} heard SIGTERM {heard:.1f} s after the stop"


# --- success and failure ---


def success(history: History) -> Iterator[str]:
    """Check that no failure is reported as success."""
    told = [host for host, exit in history.seen.exits.items() if exit == "0"]
    if told and not history.all_ended_well:
        bad = [f"{host} {process}" for host, process in history.case.processes if not history.ended_well(host, process)]
        yield f"{', '.join(told)} exited with 0, though {', '.join(bad)} did not"
    for host in told:
        if history.seen.failures.get(host):
            yield f"{host} exited with 0 and has a failure text"


def failure(history: History) -> Iterator[str]:
    """Check that no success is reported as failure: without a fault, every host exits with 0."""
    if history.troubles or history.stopped_at < inf or history.starved:
        return
    for host, exit in sorted(history.seen.exits.items()):
        if exit != "0":
            text = (history.seen.failures.get(host) or "no text").split("\n")[0]
            yield f"{host} ended with {exit} ({text}), and nothing had gone wrong"


def stop(history: History) -> Iterator[str]:
    """Check that SIGTERM leads to 0 if every script then exits with 0, else 143; an earlier known end wins."""
    at = history.stopped_at
    if at == inf or not history.whole or history.impaired:
        return
    exits = {host: history.seen.exits.get(host) for host in history.whole}
    codes = set(exits.values())
    real = [t for t in history.troubles if not t.symptom]
    first = min((t.at for t in real), default=inf)
    certain = [t for t in real if t.certain and not t.chance and t.attempt == history.attempt]
    known = [t for t in certain if history.before(t.at, at)]
    if history.before(at, first):
        wanted = {"0"} if history.all_ended_well and not history.case.wrap else {str(STOPPED)}
        wanted |= {"0", str(STOPPED)} if history.case.wrap or real else set()
        if not codes <= wanted:
            yield f"stopped, and ended with {exits}; wanted {' or '.join(sorted(wanted))}"
    elif known and codes & {"0", str(STOPPED)} and not any(STOPPED in t.codes or not t.codes for t in real):
        yield f"{_words(known[0])} {at - known[0].at:.1f} s before the stop, and the job ended with {exits}"


def agreement(history: History) -> Iterator[str]:
    """Check that hosts that can reach one another end with the same code and the same text."""
    seen, whole = history.seen, history.whole
    # Followers reach each other only through the coordinator. Until scripts run, some may never have met it: for them
    # it did not appear, while for others it is lost.
    unlike = len(history.troubles) > 1 or history.stopped_at < inf or not seen.deeds
    if history.case.names[0] in history.impaired and unlike:
        return
    exits = {host: seen.exits.get(host) for host in whole}
    if len(set(exits.values())) > 1:
        yield f"exit codes differ: {exits}"
    unwritable = {e.fault.host for e in history.of("fill", "readonly") if e.fault.process == "output"}
    texts = {host: seen.failures.get(host) for host in whole if host not in unwritable}
    if len(set(texts.values())) > 1:
        yield f"failure texts differ: {texts}"


def cause(history: History) -> Iterator[str]:
    """Check that the reported cause happened, is not a consequence of another one, and has the reported code."""
    for host in history.whole:
        text, exit = history.seen.failures.get(host), history.seen.exits.get(host, "")
        if not text:
            writable = not any(e.fault.host == host for e in history.of("fill", "readonly"))
            if exit not in ("0", str(STOPPED)) and writable:
                yield f"{host} ended with {exit} and names no cause"
            continue
        line = text.split("\n")[0]
        match = _HEADLINE.match(line)
        if not match:
            yield f"{host} names nothing: {line!r}"
            continue
        problem = _wrong_cause(history, match[1], match[2] or "", match[3])
        if problem:
            yield f"{host} says {line!r}, and {problem}"
        code = _code_of(match[3])
        if code is not None and exit != str(code):
            yield f"{host} says {line!r} and ended with {exit}"


def _wrong_cause(history: History, host: str, process: str, what: str) -> str:
    """Return why the reported cause is wrong; "" if it is right."""
    named = [t for t in history.troubles if t.host == host and t.process in (process, "*")]
    if not named:
        # A machine that stood still loses hosts.
        busy = history.starved and not process
        return "" if busy else "nothing of that kind had happened there"
    code = _code_of(what)
    named = [t for t in named if not t.codes or code is None or code in t.codes]
    if not named:
        return f"it ended otherwise: {', '.join(_words(t) for t in history.troubles if t.host == host)}"
    if all(t.symptom for t in named):
        return "it ended so because it was told to end"
    at = min(t.at for t in named if not t.symptom)
    for other in history.troubles:
        sure = other.certain and not other.symptom and other.host in history.whole and other.attempt == history.attempt
        if sure and history.before(other.at, at) and not (other.chance and history.case.setting("RESTARTS")):
            return f"{_words(other)} {at - other.at:.1f} s before that"
    return ""


def _code_of(what: str) -> int | None:
    """Return the exit code of a reported cause: `exit code 3`, `killed by SIGKILL`, `lost: ...`; None if unknown."""
    if found := re.search(r"exit code (\d+)", what):
        return int(found[1]) or 1
    if found := re.search(r"killed by (SIG\w+)", what):
        return 128 + signal.Signals[found[1]].value
    if what.startswith("lost"):
        return LOST
    return ABSENT if "did not appear" in what else None


def _words(trouble: Trouble) -> str:
    codes = " or ".join(map(str, sorted(trouble.codes))) or "some code"
    return f"{trouble.host} {trouble.process}".strip() + f" ended with {codes}"


def retried(history: History) -> Iterator[str]:
    """Check that, with restarts left, a death by a signal leads to a restart and is no cause afterwards."""
    spare = history.case.setting("RESTARTS") - history.attempt
    real = [t for t in history.troubles if not t.symptom]
    by_chance = all(t.certain and t.chance for t in real)
    if not real or spare < 0 or not by_chance or history.stopped_at < inf or history.impaired:
        return
    codes = set(history.seen.exits.values())
    if history.all_ended_well and all(t.attempt != history.attempt for t in real) and codes != {"0"}:
        yield f"attempt {history.attempt} ended well, and the hosts ended with {codes}"
    if spare > 0 and any(t.attempt == history.attempt for t in real) and not history.all_ended_well:
        yield f"{_words(real[-1])} in attempt {history.attempt}, and {spare:g} restarts were left"


# --- what users keep ---


def saved(history: History) -> Iterator[str]:
    """Check that a script that saves on SIGTERM has saved if it had the time."""
    case = history.case
    full = {e.fault.host for e in history.of("fill", "readonly") if e.fault.process == "model"}
    struck = {(e.fault.host, e.fault.process) for e in history.of("kill", "pause", "freeze") if e.fault.process}
    kills_rank_keeper = any(e.fault.process in ("mpirun", "orted", "sshd") for e in history.of("kill", "stop"))
    for who, runs in history.runs.items():
        script, (host, _) = case.script(*who), who
        spoiled = host in history.impaired | full or who in struck or kills_rank_keeper
        if script.sigterm != "saves" or spoiled or any(e.fault.host == host for e in history.of("pause")):
            continue
        deeds, last = runs[-1], runs[-1][-1]
        if any(deed.what == "saved" for deed in deeds) or last.what in ENDS:
            continue
        heard = next((deed.at for deed in deeds if deed.what == "sigterm"), None)
        stopped = history.stopped_at < min((t.at for t in history.troubles if not t.symptom), default=inf) - NEAR
        grace = case.setting("STOP_GRACE") if stopped else case.setting("FAILURE_GRACE")
        since = min(history.first_end, last.at if heard is None else heard)
        until = history.seen.gone.get(host, last.at)
        if grace < script.saving + 0.7 * history.seen.slowness + _busy(history, since, until):
            continue
        if heard is not None:
            yield f"{' '.join(who)} heard SIGTERM, had {grace:g} s, wanted {script.saving:g} s, and has not saved"
        elif history.before(deeds[0].at, history.first_end):
            yield f"{' '.join(who)} was ended and heard no SIGTERM"


def left(history: History) -> Iterator[str]:
    """Check that no process, key, socket, namespace or mount is left."""
    yield from history.seen.left


def lines(history: History) -> Iterator[str]:
    """Check that no line of output is lost, mixed, or labelled as another's."""
    printed: dict[tuple[str, str], int] = {}
    for deed in history.seen.deeds:
        if deed.what == "lines":
            printed[deed.host, f"{deed.process} {deed.attempt} {deed.start}"] = int(deed.words)
    for host, log in history.seen.logs.items():
        yield from _lines_of(history, host, log, printed)


def _lines_of(history: History, host: str, log: str, printed: dict[tuple[str, str], int]) -> Iterator[str]:
    # Output that its launcher had not read is lost with the host. A host that is paused for good is killed in the end.
    cut = host in history.killed or history.seen.exits.get(host) == "SIGKILL"
    next_: dict[str, int] = {}  # process, attempt and start -> number of the next line
    starts: dict[tuple[str, str], int] = {}
    for text in log.split("\n"):
        label, _, rest = text.removeprefix("[").partition("] ")
        if "chaos algo-" not in text or label in history.case.names:  # the launcher may quote them
            continue
        match = _LINE.fullmatch(rest)
        if not match or match[4] != match[5] or len(rest) != 199:
            if not (cut or _is_broken_off(rest)):
                yield f"{host} shows a line that nobody printed: {text[:80]!r} ... {text[-400:]!r}"
            continue
        if f"{match[1]} {match[2]}" != label or match[1] != host:
            yield f"{host} gives a line of {match[1]} {match[2]} to {label}"
        start = starts.setdefault((match[2], match[3]), 0)
        if match[4] == "0" and f"{match[2]} {match[3]} {start}" in next_:
            start = starts[match[2], match[3]] = start + 1
        key, number = f"{match[2]} {match[3]} {start}", int(match[4])
        if number != next_.get(key, 0):
            yield f"{host} shows line {number} of {key}, wanted line {next_.get(key, 0)}"
        next_[key] = number + 1
    stalled = any(e.fault.host == host for e in history.of("stall"))
    unwritable = [e.fault for e in history.of("fill", "readonly") if e.fault.process == "output"]
    mute = any(fault.host == host for fault in unwritable)  # it has no other place to report it
    gone = history.seen.gone.get(host, history.seen.began)
    hurried = history.held_up(gone - 3, gone + 3) > 1.5  # the reader of a host's output gives up 2 s after its end
    for (where, key), count in printed.items():
        if where != host or cut or hurried or next_.get(key, 0) >= count:
            continue
        told = stalled and (mute or "were not written" in history.seen.evidence.get(host, "") + log)
        if not told:
            yield f"{host} shows {next_.get(key, 0)} lines of {key}, which printed {count}"


def _is_broken_off(text: str) -> bool:
    """Return whether the line is incomplete because its process ended or raised while it wrote."""
    begun = text.partition("Traceback (most")[0]
    whole = re.match(r"chaos (algo-\d+) (rank \d+|\S+) (\d+) (\d+) ", begun)
    return not whole or f"{whole[0]}step {whole[4]} ".ljust(199, ".").startswith(begun)


def own_fault(history: History) -> Iterator[str]:
    """Check that the launcher itself does not fail."""
    if any(history.of("pids")):
        return
    for host, log in history.seen.logs.items():
        if history.seen.exits.get(host) == "70":
            yield f"{host} ended with 70"
        if found := re.search(rf"\[{host}\] Traceback.*\n\[{host}\]   File \".*/entrypoint/(?!programs/).*", log):
            yield f"{host}: {log[found.start() : found.start() + 1500]}"
