"""Choose the rows of the outcome table that always run: each event, each exit code, and each way with other factors.

The other rows run with `tests/run.sh --all`.
"""

from outcomes.case import Case
from outcomes.table import CASES

Pair = tuple[tuple[str, str], ...]
# They take seconds of a processor; the same events with 10 MB are rows, too.
HEAVY = {"prints 100 MB of lines, ends well", "prints 100 MB without end of line, ends well"}
# Exit codes that are the same whatever the way: no requirements, a fault of the launcher, no way to restart.
ALIKE = {65, 70, 71}
# What happens most: it is shown for each way, and on the coordinator and on another host.
USUAL = {"script raises", "host is killed", "SIGTERM; scripts save and end well"}


def pairs_of(case: Case) -> set[Pair]:
    """Return the event, the exit code, the engine, the bound with the place, and the way with other factors."""
    way = case.way.value
    usual = {(("event", case.event), other) for other in (("way", way), ("where", case.where))}
    return {
        *(usual if case.event in USUAL else ()),
        (("event", case.event),),
        (("exit", str(case.code)),),
        (("engine", case.engine),),
        (("bound", case.bound.name), ("where", case.where)),
        *((("way", way), other) for other in (("where", case.where), ("when", case.when))),
        *(() if case.code in ALIKE else ((("way", way), ("code", kind(case.code))),)),
    }


def kind(code: int) -> str:
    """Return the kind of an exit code: all of a script's own codes are alike, and so are all signals."""
    return {1: "its own", 3: "its own", 255: "its own", 134: "signal", 137: "signal", 139: "signal"}.get(
        code, str(code)
    )


def _cover(cases: tuple[Case, ...]) -> frozenset[str]:
    """Return names of rows that show all pairs: greedily the one that shows most of what is left, on fewest hosts."""
    shows, hosts = {case.name: pairs_of(case) for case in cases}, {case.name: case.hosts for case in cases}
    left, chosen = set().union(*shows.values()), set()
    while left:
        best = max(shows, key=lambda name: (len(shows[name] & left), -hosts[name]))
        chosen.add(best)
        left -= shows[best]
    return frozenset(chosen)


PAIRS = _cover(tuple(case for case in CASES if case.event not in HEAVY))
