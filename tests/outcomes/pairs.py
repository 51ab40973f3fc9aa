"""Choose the rows of the outcome table that always run: each event, each exit code, and each pair of factors.

A fault of the launcher seldom takes more than two things together; the other rows run with `tests/run.sh --all`.
"""

from itertools import combinations

from outcomes.case import Case, Way
from outcomes.table import CASES

Pair = tuple[tuple[str, str], ...]


def pairs_of(case: Case) -> set[Pair]:
    """Return the event, the exit code, and each two of way, place, moment, kind of exit code, bound and engine."""
    factors = [
        ("way", (Way.MWMS if case.way is Way.JAX else case.way).value),  # whose rows are those of mwms
        ("where", case.where),
        ("when", case.when),
        ("code", kind(case.code)),
        ("bound", case.bound.name),
        ("engine", case.engine),
    ]
    return {(("event", case.event),), (("exit", str(case.code)),), *combinations(factors, 2)}


def kind(code: int) -> str:
    """Return the kind of an exit code: all of a script's own codes are alike, and so are all signals."""
    return {1: "its own", 3: "its own", 255: "its own", 134: "signal", 137: "signal", 139: "signal"}.get(
        code, str(code)
    )


def _cover(cases: tuple[Case, ...]) -> frozenset[str]:
    """Return names of rows that show all pairs: greedily the one that shows most of what is left, on most hosts."""
    shows, hosts = {case.name: pairs_of(case) for case in cases}, {case.name: case.hosts for case in cases}
    left, chosen = set().union(*shows.values()), set()
    while left:
        best = max(shows, key=lambda name: (len(shows[name] & left), hosts[name]))
        chosen.add(best)
        left -= shows[best]
    return frozenset(chosen)


PAIRS = _cover(CASES)
