"""Judge whether the job hangs, and which processes the others wait for, from the records of all hosts. Pure.

First, no process has shown a sign of progress for some time, and none is sure to work. Then the stacks of all
processes show whether a thread computes, or waits busily in Open MPI, NCCL or CUDA.
"""

from collections.abc import Mapping

from entrypoint.base.wording import listed
from entrypoint.observe.monitor.wait_sites import WORKS, Doing, Stand
from entrypoint.record import lines

MAY_WAIT_FOR_OTHERS = {Doing.COLLECTIVE, Doing.TENSORFLOW, Doing.JAX, Doing.DEVICE, Doing.UNKNOWN, Doing.WAITS}
# A main thread that uses more than this, as CPUs and in each waking, makes progress.
STEADY_CPUS, STEADY_WAKE_SECONDS = 0.0005, 0.0003

NO_STALL = lines.Stalled(ranks=())

Who = tuple[str, str]  # host, process


def works(still: lines.Silent, may_spin: bool) -> bool:
    """Return whether a process works, judged by its CPU use alone. `may_spin`: its main thread may wait busily."""
    if still.cpus - still.waiters - (still.main if may_spin else 0.0) >= WORKS:
        return True
    # A slow, steady loader uses little CPU, but does some work each time it wakes; a poller does next to none.
    return STEADY_CPUS < still.ran < WORKS and still.ran > STEADY_WAKE_SECONDS * still.wakes


def judged(all_still: Mapping[Who, lines.Silent | None], stall: lines.Stalled) -> list[Who]:
    """Return the processes that decide whether there is a hang: those that Horovod reports missing, or else all."""
    missed = {f"rank {number}" for number in stall.ranks}
    return [who for who in all_still if who[1] in missed] or list(all_still)


def may_hang(all_still: Mapping[Who, lines.Silent | None], after: float, may_spin: bool, stall: lines.Stalled) -> bool:
    """Return whether all were silent for `after` seconds, and no judged process is sure to work.

    `all_still`: every running training process; None for one that has shown progress.
    """
    stills = list(all_still.values())
    if not stills or any(still is None or still.seconds < after for still in stills):
        return False
    counted = [all_still[who] for who in judged(all_still, stall)]
    return not any(works(still, may_spin) for still in counted if still)


def hangs(all_still: Mapping[Who, lines.Silent | None], stands: Mapping[Who, Stand], stall: lines.Stalled) -> bool:
    """Return whether no judged process works, by their stacks; by numbers for a process without a stack."""
    for who in judged(all_still, stall):
        doing, still = stands.get(who, Stand()).doing, all_still[who]
        # A busy main thread whose stack cannot be read may work.
        if doing is Doing.WORKS or (doing is Doing.UNKNOWN and still and works(still, may_spin=False)):
            return False
    return True


def missing(stands: Mapping[Who, Stand], stall: lines.Stalled) -> list[Who]:
    """Return the processes that block the others, in the order of docs/monitoring.md; all, if none stand out."""
    groups, missed = _groups(stands), {f"rank {number}" for number in stall.ranks}
    largest = max(groups.values(), key=len, default=[])
    choices = (
        [who for who, stand in stands.items() if stand.doing is Doing.STOPPED],
        [who for who in stands if who[1] in missed],
        [who for who, stand in stands.items() if stand.doing not in MAY_WAIT_FOR_OTHERS],
        [who for group in groups.values() if group is not largest for who in group],
    )
    return next((some for some in choices if some and len(some) < len(stands)), None) or list(stands)


def in_words(stands: Mapping[Who, Stand], stall: lines.Stalled) -> str:
    """Describe where processes are, the blocking ones first, and add Horovod's stall warning."""
    lacking = missing(stands, stall)
    groups = sorted(_groups(stands).items(), key=lambda item: (item[1][0] not in lacking, len(item[1])))
    said = []
    for place, whos in groups:
        names = listed([f"{process} on {host}" for host, process in whos], 4)
        said.append(f"{names} {'is' if len(whos) == 1 else 'are'} in {place}")
    if len(groups) > 1 and len(groups[-1][1]) > 1:
        place, who = groups[-1]
        said[-1] = f"the other {len(who)} wait in {place}"
    return ", ".join(said) + (f"; Horovod reports missing {stall.words}" if stall.words else "")


def _groups(stands: Mapping[Who, Stand]) -> dict[str, list[Who]]:
    groups: dict[str, list[Who]] = {}
    for who, stand in sorted(stands.items(), key=lambda item: item[0]):  # one order, whichever report came first
        groups.setdefault(str(stand), []).append(who)
    return groups


class Hangs:
    """Track every training process through the records, and find hangs. Times are seconds of our clock."""

    COLLECT_SECONDS = 25.0  # how long to wait for the stacks of all hosts

    def __init__(self, after: float, may_spin: bool) -> None:
        self._after, self._may_spin = after, may_spin
        self.still: dict[Who, lines.Silent | None] = {}  # running processes
        self._stands: dict[Who, Stand] = {}
        self.stall = NO_STALL
        self._stalled_at: float | None = None
        self._asked_at: float | None = None
        self._not_before = 0.0  # when stacks may be requested again
        self._told = False
        self.asked = 0  # how often stacks were requested

    def note(self, host: str, line: lines.Line) -> None:
        """Note a line of a record: a process that runs or has ended, its silence, its stack, or a stall of Horovod."""
        match line:
            case lines.ProcessLine():
                self.still[host, line.process] = None
            case lines.EndedLine():
                self.still.pop((host, line.process), None)
            case lines.Still(processes=silences):
                self.still |= {who: silences.get(who[1]) for who in self.still if who[0] == host}
            case lines.Stalled():
                self.stall, self._stalled_at = line, None
            case lines.Stacks() if self._asked_at is not None:
                at = Stand(place=line.place, inside=line.inside, doing=Doing(line.doing))
                self._stands[host, line.process] = at

    def look(self, now: float) -> dict[Who, Stand] | None:
        """Return where each process stands, once for each hang: with all stacks, or after COLLECT_SECONDS.

        Increase `asked` when stacks are needed. If they show that a process works, they are requested again after the
        same number of seconds as at first.
        """
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        if now > self._stalled_at + self._after:  # Horovod repeats a warning more often than that while it holds
            self.stall = NO_STALL
        if not self._after or not may_hang(self.still, self._after, self._may_spin, self.stall):
            self._told, self._asked_at, self._not_before = False, None, 0.0  # the next silence is another hang
        elif self._asked_at is None and not self._told and now >= self._not_before:
            self.asked, self._asked_at = self.asked + 1, now
            self._stands.clear()
        elif self._asked_at is not None and (
            self._stands.keys() >= self.still.keys() or now > self._asked_at + self.COLLECT_SECONDS
        ):
            stands = {who: self._stands.get(who, Stand()) for who in self.still}
            self._told, self._asked_at = hangs(self.still, stands, self.stall), None
            self._not_before = now + self._after
            return stands if self._told else None
        return None
