"""Check, before any program of the user's starts, that all hosts are there, reach one another and are alike. Pure.

GPUs that TensorFlow cannot use are reported then, too. Otherwise only the bill would show them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from entrypoint.base.errors import ExitCode
from entrypoint.base.remedies import REMEDIES
from entrypoint.base.wording import listed
from entrypoint.launcher.job.choices import Reaction
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.plan.plan import ALL_HOSTS, ANY, PREFLIGHT, PREPARE, Duty, Need
from entrypoint.launcher.policy import events, messages
from entrypoint.launcher.policy.events import Action, Reach
from entrypoint.launcher.policy.facts import Facts, Phase
from entrypoint.launcher.policy.known import STILL_SECONDS

NAG_SECONDS = 10.0  # seconds between two tables of missing hosts
PROBE_AGAIN_SECONDS = 0.5  # seconds between two attempts to reach hosts that are all up
REACH_SECONDS = 120.0  # seconds for these attempts: all hosts are up, so only a name may still be missing
SHOWN = 20  # hosts that a table lists
ALL_MEET = 64  # hosts of the largest job in which each host tries to reach every other
ALIKE_SHOWN = 5  # hosts that are named whose GPUs cannot be used for the same reason, or packages that differ
GPU_REMEDY = f"wanted {REMEDIES['image-and-gpus']}"


class Rendezvous:
    """Do one host's part of the checks. Times are seconds of our own monotonic clock."""

    def __init__(self, facts: Facts, settings: Settings) -> None:
        self.facts, self.settings = facts, settings
        self._nag_at = facts.began + min(NAG_SECONDS, settings.start_timeout / 2)
        self._nagging = False  # a table must be logged when the probes have returned
        self._probing = False
        self._probe_at = facts.began
        self._assembled_since: float | None = None
        self._fingerprints: dict[str, dict[str, str]] = {}  # thing -> host -> version or digest
        self._steps = [spec for spec in facts.plan.processes if spec.duty is Duty.STEP]  # steps that are not ready yet
        self._meets = meets(facts.plan.hosts, facts.host)
        self._unreached = self._meets  # of `_meets`; a coordinator needs it at each report of a thousand hosts
        self._patience = min(REACH_SECONDS, settings.start_timeout)
        self._gpus_checked = not facts.is_coordinator

    def note_probed(self, found: tuple[Reach, ...], now: float) -> Iterator[Action]:
        facts = self.facts
        facts.hosts.reach |= {reach.host: reach for reach in found}
        reach = facts.hosts.reach
        self._unreached = [host for host in self._meets if not (host in reach and reach[host].reached)]
        self._probing = False
        if self._nagging:
            self._nagging = False
            missing = [host for host in self._missing() if host in facts.hosts.reach]
            for line in table(facts, missing, now) if missing else []:
                yield events.Say(message=line)

    def note_fingerprints(self, host: str, fingerprints: Mapping[str, str], now: float) -> Iterator[Action]:
        """Compare the hosts' fingerprints on the coordinator, which must be equal. Blame a host that differs."""
        facts = self.facts
        for thing, value in fingerprints.items():
            values = self._fingerprints.setdefault(thing, {})
            if values.get(host) == value:
                continue
            values[host] = value
            if len(values) < len(facts.plan.hosts):
                continue
            values = {host: text for host, text in values.items() if text != ANY}
            for odd, text in different(facts.coordinator, thing, values):
                if self.settings.differences is Reaction.WARN:
                    yield events.Say(message=f"warning: {odd} differs: {text}")
                else:
                    facts.blame_host(now, odd, "differs from the other hosts", ExitCode.CONFIG, error=text)

    def advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
        if facts.outcome is not None or not facts.others:
            return
        if facts.is_coordinator and len(facts.hosts.last_contact) >= len(facts.others):
            facts.hosts.assembled = True
        if facts.hosts.assembled and self._assembled_since is None:
            self._assembled_since = self._probe_at = now
        if not self.is_over():
            yield from self._preflight(now)
        if now >= self._nag_at:
            self._nag_at = now + NAG_SECONDS
            yield from self._nag(now)

    def _nag(self, now: float) -> Iterator[Action]:
        """Log missing hosts; on the coordinator also hosts that cannot reach others, or are not prepared."""
        facts = self.facts
        seconds = f"{now - facts.began:.0f} s"
        missing = self._missing()
        if missing:
            yield events.Say(message=f"waiting for {listed(missing, SHOWN)} ({seconds})")
            if not self._probing:
                self._probing = self._nagging = True
                yield events.Probe(hosts=tuple(missing))
        if not facts.is_coordinator or facts.phase is Phase.STOPPING:
            return
        for report in (messages.report(facts), *map(facts.report_of, facts.others)):
            for reach in report.unreached[:SHOWN]:
                yield events.Say(message=f"{report.host} cannot reach {reach.host} ({seconds}): {_state(reach)}")
        there = {facts.host, *facts.hosts.last_contact}
        steps = [spec for spec in facts.plan.processes if spec.duty is Duty.STEP and spec.host in there]
        late = [spec for spec in steps if (spec.host, spec.name) not in facts.attempt.ready]
        for name in dict.fromkeys(spec.name for spec in late):
            hosts = [spec.host for spec in late if spec.name == name]
            yield events.Say(message=f"waiting for {name} of {listed(hosts, SHOWN)} ({seconds})")

    def is_over(self) -> bool:
        return (self.facts.host, PREFLIGHT) in self.facts.attempt.ready

    def _missing(self) -> list[str]:
        """Return hosts that never reported; on a follower this can only be the coordinator."""
        facts = self.facts
        wanted = facts.others if facts.is_coordinator else [facts.coordinator]
        return [host for host in wanted if host not in facts.hosts.last_contact]

    def _preflight(self, now: float) -> Iterator[Action]:
        facts = self.facts
        if not facts.hosts.assembled:
            return
        if not self._unreached or not facts.plan.hosts_meet:
            facts.attempt.note_ready((facts.host, PREFLIGHT))
        elif now >= self._probe_at and not self._probing:
            self._probing, self._probe_at = True, now + PROBE_AGAIN_SECONDS
            yield events.Probe(hosts=tuple(self._unreached))

    def check_gpus(self, now: float) -> Iterator[Action]:
        """Log, on the coordinator, which GPUs TensorFlow cannot use, once every host is prepared; or blame a host."""
        facts, reaction = self.facts, self.settings.gpu_check
        if self._gpus_checked or reaction is Reaction.OFF or not facts.met(Need(host=ALL_HOSTS, process=PREPARE)):
            return
        self._gpus_checked = True
        every = {host: facts.report_of(host).unused_gpus for host in facts.plan.hosts} | {facts.host: facts.unused_gpus}
        found = {host: why for host, why in every.items() if why}
        if found and reaction is Reaction.FAIL:
            error = f"{_by_reason(found)}; {GPU_REMEDY}; or ENTRYPOINT_GPU_CHECK=warn, to train on CPUs anyway"
            what = "has GPUs that TensorFlow cannot use"
            facts.blame_host(now, next(iter(found)), what, ExitCode.CONFIG, error=error)
        elif found:
            message = (
                f"TensorFlow cannot use the GPUs of this job and trains on CPUs: {_by_reason(found)}; {GPU_REMEDY}"
            )
            end = "ENTRYPOINT_GPU_CHECK=fail ends such a job at its start, off hides this warning"
            yield events.Say(message=f"WARNING: {message}. {end}")

    def watch(self, now: float) -> None:
        """Blame the hosts that keep the job from starting when the time for it is over."""
        facts = self.facts
        self._watch_missing(now)
        self._watch_rejected(now)
        is_late = self._assembled_since is not None and now >= self._assembled_since + self._patience
        if is_late and self._unreached and not self.is_over():
            error = _state(facts.hosts.reach.get(self._unreached[0]))
            lines = "\n".join(table(facts, self._unreached, now))
            what = f"cannot reach {listed(self._unreached, SHOWN)}"
            facts.blame_host(now, facts.host, what, ExitCode.START_TIMEOUT, error=error, details=lines)
        if facts.is_coordinator and now >= facts.began + self.settings.start_timeout:
            self._steps = [spec for spec in self._steps if (spec.host, spec.name) not in facts.attempt.ready]
            for spec in self._steps:
                what = f"{spec.name} did not end within {self.settings.start_timeout:g} s"
                facts.blame_host(now, spec.host, what, ExitCode.START_TIMEOUT)

    def _watch_missing(self, now: float) -> None:
        facts, limit = self.facts, self.settings.start_timeout
        missing = self._missing() if now >= facts.began + limit and not facts.hosts.assembled else []
        if missing:
            lines = "\n".join(table(facts, missing, now))
            for host in missing:
                error = _state(facts.hosts.reach.get(host))
                what = f"did not appear within {limit:g} s"
                facts.blame_host(now, host, what, ExitCode.START_TIMEOUT, error=error, details=lines)

    def _watch_rejected(self, now: float) -> None:
        facts = self.facts
        for host, (since, last, why) in facts.hosts.rejected.items():
            lasting = now >= since + self.settings.peer_timeout and now < last + STILL_SECONDS
            if host in facts.hosts.last_contact or not lasting or facts.own_failure():
                continue
            if facts.is_coordinator:
                facts.blame_host(now, host, "was refused", ExitCode.CONFIG, error=why)
            else:
                what = f"is refused by the coordinator {host}"
                facts.blame_host(now, facts.host, what, ExitCode.CONFIG, error=why)

    def deadlines(self) -> Iterator[float]:
        yield self._nag_at
        if self._assembled_since is not None and not self.is_over():
            yield self._probe_at
            yield self._assembled_since + self._patience
        for since, _, _ in self.facts.hosts.rejected.values():
            yield since + self.settings.peer_timeout


def meets(hosts: Sequence[str], me: str) -> list[str]:
    """Return the hosts that one host must reach before the user's programs start.

    Usually these are all others. In a large job that would be a million connections. There, the coordinator reaches
    all; a host that has reported has reached the coordinator; and each host reaches those 1, 16, 256, ... places behind
    it. So each host is tried from near and far, and the check finds a host that is cut off, or a group of hosts that
    does not reach another.
    """
    if len(hosts) <= ALL_MEET or me == hosts[0]:
        return [host for host in hosts if host != me]
    own, count = hosts.index(me), len(hosts)
    steps = [1 << power for power in range(0, count.bit_length(), 4) if 1 << power < count]
    return [hosts[(own + step) % count] for step in steps]


def different(coordinator: str, thing: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (host, text) of each host that differs from most hosts, or in a tie from the coordinator."""
    counts = Counter(values[host] for host in sorted(values))
    if len(counts) <= 1:
        return []
    usual = max(counts, key=lambda value: (counts[value], value == values.get(coordinator)))
    other = next(host for host in sorted(values) if values[host] == usual)
    return [
        (host, f"{thing} is {_apart(value, usual)}; on {other} it is {_apart(usual, value)}")
        for host, value in sorted(values.items())
        if value != usual
    ]


def _apart(value: str, other: str) -> str:
    """Return the lines of a value that the other value lacks. Most values have one line."""
    return listed([line for line in value.split("\n") if line not in other.split("\n")], ALIKE_SHOWN) or "absent"


def table(facts: Facts, hosts: list[str], now: float) -> list[str]:
    """Return a table of missing hosts: name, address, whether the port answers, last report."""
    rows = [("host", "name resolves", "port answers", "last report")]
    for host in hosts[:SHOWN]:
        reach = facts.hosts.reach.get(host)
        resolves = "not tried" if reach is None else reach.address or "no"
        answers = "not tried" if reach is None else "yes" if reach.reached else reach.why or "no"
        last = f"{now - facts.hosts.last_contact[host]:.0f} s ago" if host in facts.hosts.last_contact else "never"
        rows.append((host, resolves, answers, last))
    return columns(rows, len(hosts) - SHOWN)


def columns(rows: Sequence[Sequence[str]], left_out: int = 0) -> list[str]:
    """Return the lines of a table; `left_out` rows are not in it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, *([f"and {left_out} more"] if left_out > 0 else [])]


def _state(reach: Reach | None) -> str:
    if reach is None:
        return ""
    if not reach.address:
        return f"its name does not resolve: {reach.why}"
    return f"it is at {reach.address}, " + (reach.why or "and its port answers")


def _by_reason(found: dict[str, str]) -> str:
    """Return hosts and reasons: `algo-1, algo-2 (4 GPUs: tensorflow-cpu 2.14.1 is built without CUDA)`."""
    hosts: dict[str, list[str]] = {}
    for host, why in found.items():
        hosts.setdefault(why, []).append(host)
    return "; ".join(f"{listed(names, ALIKE_SHOWN)} ({why})" for why, names in hosts.items())
