"""Does the job hang, and who is it that the others wait for? Pure: what all hosts have told goes in, words come out.

Long epochs, evaluations and compilations print nothing for long, too; but they keep a processor or a GPU busy. What
waits for others does not, or with Open MPI does so in vain: Horovod by a thread of its own, which asks the other ranks
again and again and is told by that, and a rank that calls Open MPI itself while another one does nothing at all.
"""

from collections.abc import Mapping
from typing import Any

from entrypoint.values import Value

WORKS = 0.2  # CPUs: less than this is waiting
ASLEEP = 0.0005  # CPUs of a rank that does not even wait, while others do: 0.3 s in ten minutes

Who = tuple[str, str]  # host, process


class Still(Value):
    """Of a process of training: seconds without any sign of progress, and the CPUs that it used meanwhile."""

    seconds: float
    cpus: float
    cycling: float = 0.0  # of these, what was used by Horovod's own thread


def hangs(all_still: Mapping[Who, Still | None], after: float, ranks: bool) -> bool:
    """Return whether nobody has got on for `after` seconds and nobody is at work.

    `all_still`: every process of training that runs, None for one that has given a sign. With `ranks`, those that are
    in a collective may wait busily.
    """
    stills = list(all_still.values())
    if not stills or any(still is None or still.seconds < after for still in stills):
        return False
    known = [still for still in stills if still]
    nobody_works = all(still.cpus - still.cycling < WORKS for still in known)
    return nobody_works or (ranks and any(still.cpus < ASLEEP for still in known))


class Place(Value):
    """Where a process stands: in its own code, and what that has called."""

    place: str = ""
    inside: str = ""

    def __str__(self) -> str:
        if self.place and self.inside:
            return f"{self.place}, in {self.inside}"
        return self.place or self.inside or "an unknown place"


def missing(places: Mapping[Who, Place]) -> list[Who]:
    """Return those that stand elsewhere than most; all of them, where no more than half stand at one place."""
    groups = _groups(places)
    largest = max(groups.values(), key=len, default=[])
    return [who for group in groups.values() if group is not largest for who in group] or list(places)


def in_words(places: Mapping[Who, Place]) -> str:
    """Say who stands where; those that stand elsewhere than most first."""
    groups = sorted(_groups(places).items(), key=lambda item: len(item[1]))
    said = [f"{_names(who)} {'is' if len(who) == 1 else 'are'} in {place}" for place, who in groups]
    if len(groups) > 1 and len(groups[-1][1]) > 1:
        place, who = groups[-1]
        said[-1] = f"the other {len(who)} wait in {place}"
    return ", ".join(said)


def _groups(places: Mapping[Who, Place]) -> dict[str, list[Who]]:
    groups: dict[str, list[Who]] = {}
    for who, place in sorted(places.items(), key=lambda item: item[0]):  # the same, whoever was heard first
        groups.setdefault(str(place), []).append(who)
    return groups


def _names(whos: list[Who]) -> str:
    shown = [f"{process} on {host}" for host, process in whos[:4]]
    return ", ".join(shown) + (f" and {len(whos) - 4} more" if len(whos) > 4 else "")


class Hangs:
    """What is known of every process of training, as the records tell it. Times are seconds of our clock."""

    COLLECT = 60.0  # seconds in which the hosts have brought their stacks

    def __init__(self, after: float, ranks: bool) -> None:
        self._after, self._ranks = after, ranks
        self._still: dict[Who, Still | None] = {}  # of those that run
        self._places: dict[Who, Place] = {}
        self._stalled: set[str] = set()  # ranks that have not come, as Horovod says
        self._stalled_at: float | None = None
        self._asked_at: float | None = None
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
            case "stalled", (missing,):
                self._stalled, self._stalled_at = {f"rank {number}" for number in missing}, None
            case "stacks", (name, {"place": place, "inside": inside}) if self._asked_at is not None:
                self._places[host, name] = Place(place=place, inside=inside)

    @property
    def runs(self) -> bool:
        """Whether a process of training runs."""
        return bool(self._still)

    def missing(self, places: Mapping[Who, Place]) -> list[Who]:
        """Return those that Horovod misses, or else those that stand elsewhere than most."""
        return [who for who in places if who[1] in self._stalled] or missing(places)

    def look(self, now: float) -> dict[Who, Place] | None:
        """Return who stands where, once for each hang, when all have told it; before that, count `asked` up."""
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        if now > self._stalled_at + self._after:  # Horovod repeats it more often than that, as long as it lasts
            self._stalled = set()
        if not self._after or not hangs(self._still, self._after, self._ranks):
            self._told, self._asked_at = False, None  # the next time is another one
        elif not self._told and self._asked_at is None:
            self.asked, self._asked_at = self.asked + 1, now
            self._places.clear()
        elif self._asked_at is not None and (
            self._places.keys() >= self._still.keys() or now > self._asked_at + self.COLLECT
        ):
            self._told, self._asked_at = True, None
            return {who: self._places.get(who, Place()) for who in self._still}
        return None
