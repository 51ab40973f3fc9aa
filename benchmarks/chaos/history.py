"""Derive the true events of a job, and the permitted causes of its end, from journals and faults.

This uses nothing of the launcher except the meaning of its exit codes, which docs/exit-codes.md defines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf

from benchmarks.chaos.observed import Deed, Injected, Observed

LOST, ABSENT = 69, 68
CHANCE = 75  # ENTRYPOINT_RESTART_CODES
NEAR = 1.0  # seconds: two events closer than that have no order that is visible from outside
AROUND = 0.5  # seconds by which a wait for a CPU may have been noted later or earlier
EACH = 0.25  # seconds in which waits are noted
STARVED = 2.0  # seconds in which something got no CPU at all: others may take its host for lost
AWAY = ("pause", "cut")  # a host that is away for too long is lost


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A failure that may be reported as the cause of the job's end."""

    at: float
    host: str
    process: str  # "": the host as a whole; "*": anything on it
    codes: frozenset[int]  # that the job may end with for it; none: any but 0
    attempt: int | None = None
    certain: bool = False  # it did go wrong: a script's own end, which it has noted
    symptom: bool = False  # only because the launcher terminated it
    chance: bool = False  # such that ENTRYPOINT_RESTARTS tries again


class History:
    """The interpreted events of one job."""

    def __init__(self, seen: Observed) -> None:
        self.seen, self.case = seen, seen.case

    @cached_property
    def runs(self) -> dict[tuple[str, str], list[list[Deed]]]:
        """Return {(host, process): [entries of the journal from its first start, from its second, ...]}."""
        found: dict[tuple[str, str], dict[tuple[int, int], list[Deed]]] = {}
        for deed in self.seen.deeds:
            found.setdefault((deed.host, deed.process), {}).setdefault((deed.attempt, deed.start), []).append(deed)
        return {who: [starts[key] for key in sorted(starts)] for who, starts in found.items()}

    @cached_property
    def attempt(self) -> int:
        """Return the number of the last attempt."""
        return max((deed.attempt for deed in self.seen.deeds), default=0)

    @cached_property
    def all_ended_well(self) -> bool:
        """Return whether every user program ran in the last attempt and exited with 0."""
        return all(self.ended_well(*who) for who in self.case.processes)

    def ended_well(self, host: str, process: str) -> bool:
        runs = self.runs.get((host, process))
        return bool(runs) and runs[-1][-1].attempt == self.attempt and _code(runs[-1][-1]) == 0

    def of(self, *kinds: str) -> Iterator[Injected]:
        return (injected for injected in self.seen.injected if injected.fault.kind in kinds)

    def hosts_of(self, injected: Injected) -> list[str]:
        return self.case.names if injected.fault.host == "all" else [injected.fault.host]

    @cached_property
    def met(self) -> list[Injected]:
        """Return the faults that affected a live host of the job, as the engine counts them.

        A fault that exists from the start affects other hosts, or the host itself as soon as it starts.
        """
        last = max(self.seen.gone.values(), default=self.seen.began)
        return [each for each in self.seen.injected if each.fault.kind not in ("late", "hide") or each.at < last]

    def held_up(self, since: float, until: float) -> float:
        """Return the maximum seconds by which the machine may have delayed the job between two moments."""
        begin, end = since - AROUND, until + AROUND
        waited = sum(seconds for at, seconds in self.seen.waits if begin < at < end)
        return waited + self.stood_still(since, until) + min(AROUND, self.seen.pressure / 4)

    def before(self, one: float, other: float) -> bool:
        """Return whether an event at `one` must have reached all hosts before time `other`; either may be infinite."""
        return one < other - NEAR and (other == inf or one < other - NEAR - self.held_up(one, other))

    def stood_still(self, since: float, until: float) -> float:
        begin, end = since - AROUND, until + AROUND
        spans = [(max(begin, at - seconds), min(end, at)) for at, seconds in self.seen.gaps]
        return sum(max(0.0, over - at) for at, over in spans)

    @cached_property
    def starved(self) -> bool:
        """Return whether a process of the job got no CPU for so long that other hosts may report its host as lost."""
        longest = row = last = 0.0
        for at, seconds in self.seen.waits:
            goes_on = at - last < seconds + EACH
            row = (row if goes_on else 0.0) + seconds if seconds > 0.8 * EACH else 0.0
            longest, last = max(longest, row), at
        return longest + self.seen.stood_still > STARVED

    @cached_property
    def stopped_at(self) -> float:
        """Return when the job was first stopped; infinite if it never was."""
        return min((each.at for each in self.of("stop") if not each.fault.process), default=inf)

    @cached_property
    def stopped_first(self) -> set[str]:
        """Return the hosts that got the first SIGTERM. From then on they end soon in any state of the job."""
        first = [each for each in self.of("stop") if not each.fault.process and each.at == self.stopped_at]
        return {host for each in first for host in self.hosts_of(each)}

    @cached_property
    def killed(self) -> set[str]:
        return {host for each in self.of("kill") if not each.fault.process for host in self.hosts_of(each)}

    @cached_property
    def impaired(self) -> set[str]:
        """Return the hosts whose connections to others were interrupted at some time."""
        patience = self.case.setting("PEER_TIMEOUT")
        if self.starved:
            return set(self.case.names)
        found = set(self.killed)
        for each in self.of(*AWAY):
            held = 0.0 if each.over is None else self.held_up(each.at, each.over + 1)
            brief = each.over is not None and each.over - each.at < patience - 1.5 - held
            quiet = each.over is not None and each.over < self.first_end - 2 - held
            if not each.fault.process and not (brief and quiet):
                found.add(each.fault.host)
        for each in self.of("late", "hide"):
            if self._keeps_from_meeting(each) and (each.over is None or each.over > self.first_end - 2):
                found.add(each.fault.host)
        return found | {each.fault.host for each in self.of("pids")}

    def _may_be_missed(self, each: Injected, patience: float) -> bool:
        """Return whether a host was silent long enough to be lost; while the job fails, two heartbeats are enough."""
        over = inf if each.over is None else each.over
        failures = [trouble.at for trouble in self._of_scripts() if not trouble.symptom]
        failures += [
            deadly.at for deadly in self.of("kill", "stop") if deadly.fault.kind == "kill" or deadly.fault.process
        ]
        failing = any(each.at - NEAR < at < over for at in failures)
        # Its last heartbeat was up to one interval before it was away.
        limit = min(patience - 1.5, self.case.setting("HEARTBEAT")) if failing else patience - 1.5
        return over - each.at > limit - self.held_up(each.at, over)

    def _keeps_from_meeting(self, each: Injected) -> bool:
        """Return whether a fault delays the rendezvous: a host starts late, or its name is hidden from hosts or ssh."""
        met = min((deed.at for deed in self.seen.deeds), default=inf)
        again = self.case.mode == "mpi" and self.attempt > 0
        return each.fault.kind == "late" or (each.fault.kind == "hide" and (each.at < met or again))

    @cached_property
    def first_end(self) -> float:
        """Return the time of the first event that ends the job, or of the first report of its end by a host."""
        ends = [trouble.at for trouble in self.troubles if not trouble.symptom and trouble.process]
        return min([*ends, self.stopped_at, *self.seen.told.values(), *self.seen.gone.values()], default=inf)

    @cached_property
    def whole(self) -> list[str]:
        """Return the hosts that could always reach one another."""
        return [host for host in self.case.names if host not in self.impaired]

    @cached_property
    def troubles(self) -> list[Trouble]:
        return sorted([*self._of_scripts(), *self._of_faults()], key=lambda trouble: trouble.at)

    def _of_scripts(self) -> Iterator[Trouble]:
        for runs in self.runs.values():
            for deeds in runs:
                end, told = deeds[-1], any(deed.what == "sigterm" for deed in deeds)
                code = _code(end)
                if missed := next((deed for deed in deeds if deed.what == "misses"), None):
                    told = told or self.stopped_at == inf  # it is the other's end that is to be named
                    yield from self._of_uneven(missed)
                if code:
                    chance = code == CHANCE or (end.what == "kills" and not self.case.wrap)
                    yield Trouble(
                        at=end.at, host=end.host, process=end.process, codes=frozenset({code}), attempt=end.attempt,
                        certain=True, symptom=told, chance=chance,
                    )  # fmt: skip

    def _of_uneven(self, missed: Deed) -> Iterator[Trouble]:
        """Yield the processes whose early end with 0 made another process fail."""
        for (host, process), runs in self.runs.items():
            end = runs[-1][-1]
            if _code(end) == 0 and end.attempt == missed.attempt:
                yield Trouble(
                    at=missed.at, host=host, process=process, codes=frozenset({1}), attempt=end.attempt, certain=False
                )

    def _of_faults(self) -> Iterator[Trouble]:
        patience, start = self.case.setting("PEER_TIMEOUT"), self.case.setting("START_TIMEOUT")
        for each in self.seen.injected:
            fault, lasts = each.fault, inf if each.over is None else each.over - each.at
            hosts, at = self.hosts_of(each), each.at
            first = min((deed.at for deed in self.seen.deeds), default=inf)
            if self.case.mode == "mpi" and fault.kind == "pause" and fault.host == self.case.names[0] and at < first:
                # SIGCONT ends a pause, and mpirun, as long as its daemons are not up, ends of forwarding it.
                yield Trouble(at=at, host=fault.host, process="mpirun", codes=frozenset())
            if self.case.mode == "mpi" and fault.kind == "hide" and lasts > patience - NEAR:
                # ssh waits for a name for PEER_TIMEOUT; then mpirun says that it did not find it.
                yield Trouble(at=at, host=self.case.names[0], process="mpirun", codes=frozenset())
            lost = frozenset({LOST, ABSENT})
            if fault.kind in ("kill", "stop") and fault.process:
                # mpirun is its own host's daemon: the name is found in the ssh by which it starts another's.
                own = fault.process == "orted" and fault.host == self.case.names[0]
                process = "mpirun" if own else fault.process
                yield Trouble(at=at, host=fault.host, process=process, codes=frozenset(), chance=True)
                if process == "orted" and at < first + NEAR:  # mpirun, which starts it, says which host it lacks
                    yield Trouble(at=at, host=self.case.names[0], process="mpirun", codes=frozenset(), chance=True)
            elif fault.kind == "kill" or (
                fault.kind in AWAY and not fault.process and self._may_be_missed(each, patience)
            ):
                yield from (Trouble(at=at, host=host, process="", codes=lost) for host in hosts)
            elif self._keeps_from_meeting(each) and lasts > start - 3 - self.held_up(at, first):
                yield Trouble(at=at, host=fault.host, process="", codes=frozenset({ABSENT}))
            elif fault.kind == "freeze":
                # SIGKILL does not end it in time, which fails another attempt; or what it began.
                yield Trouble(at=at, host=fault.host, process=fault.process, codes=frozenset())
                yield Trouble(at=at, host=fault.host, process="", codes=frozenset())
            elif fault.kind == "pids":
                yield Trouble(at=at, host=fault.host, process="*", codes=frozenset())


def _code(end: Deed) -> int | None:
    """Return the last exit code in a script's journal; None if the journal has no end."""
    match end.what:
        case "exits":
            return int(end.words)
        case "raises":
            return 1
        case "kills":
            return 128 + int(end.words)
    return None
