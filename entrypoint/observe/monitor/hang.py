"""Judges whether the job hangs, and for whom the others wait. Pure: what all hosts tell goes in, words come out.

A hang is told in two steps. First, no process has shown a sign of progress for some time, and none is sure to work:
long epochs, evaluations and compilations are silent, too, but their threads work. Then the stacks of all processes are
looked at. They tell a thread that computes from one that waits busily in Open MPI, NCCL or CUDA.
"""

from collections.abc import Mapping
from typing import Any

from entrypoint.base.values import Value
from entrypoint.observe.monitor.wait_sites import WORKS, Doing, Stand

MAY_WAIT_FOR_OTHERS = {Doing.COLLECTIVE, Doing.TENSORFLOW, Doing.DEVICE, Doing.UNKNOWN, Doing.WAITS}
STEADY_CPUS, STEADY_WAKE_SECONDS = 0.0005, 0.0003  # a main thread that runs so much, each time that it wakes, gets on

Who = tuple[str, str]  # host, process


class Still(Value):
    """Describes a process of training: seconds without a sign of progress, and what it used per second in these."""

    seconds: float
    cpus: float = 0.0
    waiters: float = 0.0  # of these CPUs, those of threads that only wait busily
    main: float = 0.0  # of these CPUs, those of the main thread
    ran: float = 0.0  # of these CPUs of the main thread, those that it had, and did not wait for
    wakes: float = 0.0  # how often the main thread went to sleep

    def works(self, may_spin: bool) -> bool:
        """Return whether it is sure to work, by numbers alone. With `may_spin`, its main thread may wait busily."""
        if self.cpus - self.waiters - (self.main if may_spin else 0.0) >= WORKS:
            return True
        # A loader that is slow and steady uses little; but it wakes to do something, and not only to look again.
        return STEADY_CPUS < self.ran < WORKS and self.ran > STEADY_WAKE_SECONDS * self.wakes


class Stall(Value):
    """What Horovod has said of a stall: which ranks it misses, and its own words."""

    ranks: frozenset[str] = frozenset()  # names of processes
    words: str = ""


def judged(all_still: Mapping[Who, Still | None], stall: Stall) -> list[Who]:
    """Return those whose work tells whether there is a hang: those that Horovod misses, or else all."""
    return [who for who in all_still if who[1] in stall.ranks] or list(all_still)


def may_hang(all_still: Mapping[Who, Still | None], after: float, may_spin: bool, stall: Stall) -> bool:
    """Return whether nobody has got on for `after` seconds, and nobody that counts is sure to work.

    `all_still`: every process of training that runs; None for one that has given a sign.
    """
    stills = list(all_still.values())
    if not stills or any(still is None or still.seconds < after for still in stills):
        return False
    counted = [all_still[who] for who in judged(all_still, stall)]
    return not any(still.works(may_spin) for still in counted if still)


def hangs(all_still: Mapping[Who, Still | None], stands: Mapping[Who, Stand], stall: Stall) -> bool:
    """Return whether nobody that counts works, by where they stand; where that is not known, by numbers."""
    for who in judged(all_still, stall):
        doing, still = stands.get(who, Stand()).doing, all_still[who]
        # A main thread that is busy and cannot be looked at may work.
        if doing is Doing.WORKS or (doing is Doing.UNKNOWN and still and still.works(may_spin=False)):
            return False
    return True


def missing(stands: Mapping[Who, Stand], stall: Stall) -> list[Who]:
    """Return those that the others wait for: the stopped ones, those that Horovod misses, those in no collective.

    Where none of this tells, these are those that stand elsewhere than most; or all, where there is no majority.
    """
    groups = _groups(stands)
    largest = max(groups.values(), key=len, default=[])
    choices = (
        [who for who, stand in stands.items() if stand.doing is Doing.STOPPED],
        [who for who in stands if who[1] in stall.ranks],
        [who for who, stand in stands.items() if stand.doing not in MAY_WAIT_FOR_OTHERS],
        [who for group in groups.values() if group is not largest for who in group],
    )
    return next((some for some in choices if some and len(some) < len(stands)), None) or list(stands)


def in_words(stands: Mapping[Who, Stand], stall: Stall) -> str:
    """Say who stands where, those first that the others wait for; and what Horovod has said."""
    lacking = missing(stands, stall)
    groups = sorted(_groups(stands).items(), key=lambda item: (item[1][0] not in lacking, len(item[1])))
    said = [f"{_names(who)} {'is' if len(who) == 1 else 'are'} in {place}" for place, who in groups]
    if len(groups) > 1 and len(groups[-1][1]) > 1:
        place, who = groups[-1]
        said[-1] = f"the other {len(who)} wait in {place}"
    return ", ".join(said) + (f"; Horovod reports missing {stall.words}" if stall.words else "")


def _groups(stands: Mapping[Who, Stand]) -> dict[str, list[Who]]:
    groups: dict[str, list[Who]] = {}
    for who, stand in sorted(stands.items(), key=lambda item: item[0]):  # the same, whoever was heard first
        groups.setdefault(str(stand), []).append(who)
    return groups


def _names(whos: list[Who]) -> str:
    shown = [f"{process} on {host}" for host, process in whos[:4]]
    return ", ".join(shown) + (f" and {len(whos) - 4} more" if len(whos) > 4 else "")


class Hangs:
    """What is known of every process of training, as the records tell it. Times are seconds of our clock."""

    COLLECT_SECONDS = 25.0  # in which the hosts have brought their stacks

    def __init__(self, after: float, may_spin: bool) -> None:
        self._after, self._may_spin = after, may_spin
        self._still: dict[Who, Still | None] = {}  # of those that run
        self._stands: dict[Who, Stand] = {}
        self.stall = Stall()
        self._stalled_at: float | None = None
        self._asked_at: float | None = None
        self._not_before = 0.0  # when stacks may be asked for again
        self._told = False
        self.asked = 0  # how often stacks were asked for

    def note(self, host: str, kind: str, *values: Any) -> None:
        """Note a line of a record: that a process runs or has ended, how long it is still, or where it stands."""
        match kind, values:
            case "process", (name, *_):
                self._still[host, name] = None
            case "ended", (name, *_):
                self._still.pop((host, name), None)
            case "still", (told,):
                for who in [who for who in self._still if who[0] == host]:
                    numbers = dict(zip(Still.fields, told.get(who[1], ()), strict=False))
                    self._still[who] = Still(**numbers) if numbers else None
            case "stalled", (ranks, *words):
                self.stall = Stall(ranks=frozenset(f"rank {number}" for number in ranks), words=" ".join(words))
                self._stalled_at = None
            case "stacks", (name, dict(told)) if self._asked_at is not None:
                place, inside, doing = (str(told.get(key, "")) for key in ("place", "inside", "doing"))
                self._stands[host, name] = Stand(place=place, inside=inside, doing=_doing(doing))

    @property
    def runs(self) -> bool:
        """Whether a process of training runs."""
        return bool(self._still)

    def look(self, now: float) -> dict[Who, Stand] | None:
        """Return who stands where, once for each hang, when all have told it; before that, count `asked` up.

        Where somebody turns out to work, the stacks are asked for again after as many seconds as at first.
        """
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        if now > self._stalled_at + self._after:  # Horovod repeats it more often than that, as long as it lasts
            self.stall = Stall()
        if not self._after or not may_hang(self._still, self._after, self._may_spin, self.stall):
            self._told, self._asked_at, self._not_before = False, None, 0.0  # the next time is another one
        elif self._asked_at is None and not self._told and now >= self._not_before:
            self.asked, self._asked_at = self.asked + 1, now
            self._stands.clear()
        elif self._asked_at is not None and (
            self._stands.keys() >= self._still.keys() or now > self._asked_at + self.COLLECT_SECONDS
        ):
            stands = {who: self._stands.get(who, Stand()) for who in self._still}
            self._told, self._asked_at = hangs(self._still, stands, self.stall), None
            self._not_before = now + self._after
            return stands if self._told else None
        return None


def _doing(word: str) -> Doing:
    return Doing(word) if word in {each.value for each in Doing} else Doing.UNKNOWN
