"""The rows of the outcome table that always run: each event, and each pair of what tells rows apart, at least once.

A fault of the launcher seldom takes more than two things together; the other rows run with `tests/run.sh --all`.
"""

from itertools import combinations

from outcomes.case import Case
from outcomes.table import CASES

Pair = tuple[tuple[str, str], ...]


def pairs_of(case: Case) -> set[Pair]:
    """The event, and each two of way, place, moment, exit code, bound and engine."""
    factors = [
        ("way", case.way.value),
        ("where", case.where),
        ("when", case.when),
        ("code", str(case.code)),
        ("bound", case.bound.name),
        ("engine", case.engine),
    ]
    return {(("event", case.event),), *combinations(factors, 2)}


def _cover(cases: tuple[Case, ...]) -> frozenset[str]:
    """Names of rows that show all pairs: greedily the one that shows most of what is left, on most hosts."""
    shows, hosts = {case.name: pairs_of(case) for case in cases}, {case.name: case.hosts for case in cases}
    left, chosen = set().union(*shows.values()), set()
    while left:
        best = max(shows, key=lambda name: (len(shows[name] & left), hosts[name]))
        chosen.add(best)
        left -= shows[best]
    return frozenset(chosen)


PAIRS = _cover(CASES)
