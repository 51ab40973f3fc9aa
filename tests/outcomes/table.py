"""Hold the outcome table: all cases, and the selection of a default run.

The selection covers each event, each exit code, and each pair of factors. docs/outcomes.md shows the same rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from outcomes.case import Case, Way
from outcomes.outside import (
    hosts_that_come_back,
    hosts_that_go,
    hosts_that_have_too_little,
    hosts_that_never_come,
    mpirun_that_does_not_end,
    output_that_nobody_reads,
    processes_that_die,
    stops,
    stops_that_cross_a_failure,
    what_cannot_be_killed,
    work_outside_the_process_group,
)
from outcomes.scripts import deeds, disks, failures_under_stubborn_others, restarts

# Processes of mode jax are the plan's workers, as those of mwms are. local/test_jax_local.py has ends of real ones.
OF_JAX = {
    "script raises",
    "sys.exit(3)",
    "script is killed",
    "segmentation fault",
    "MemoryError",
    "os._exit(3)",
    "leaves orphans that hold its stdout, ends well",
    "script raises; the others ignore SIGTERM",
    "script is killed once, with ENTRYPOINT_RESTARTS=1",
    "host is killed",
    "host is paused for ever",
    "host is cut off for ever",
    "host is cut off for 3 s",
    "SIGTERM; scripts save and end well",
    "SIGTERM; scripts do not handle it",
    "SIGTERM; scripts ignore it",
}


def with_jax(cases: Iterable[Case]) -> Iterator[Case]:
    for case in cases:
        yield case
        if case.way is Way.MWMS and case.when == "run" and case.event in OF_JAX:
            yield replace(case, way=Way.JAX)


_CASES = {
    maker: tuple(with_jax(maker()))
    for maker in (
        deeds,
        failures_under_stubborn_others,
        restarts,
        processes_that_die,
        hosts_that_go,
        hosts_that_come_back,
        hosts_that_never_come,
        stops,
        work_outside_the_process_group,
        what_cannot_be_killed,
        mpirun_that_does_not_end,
        stops_that_cross_a_failure,
        output_that_nobody_reads,
        disks,
        hosts_that_have_too_little,
    )
}
CASES = tuple(case for cases in _CASES.values() for case in cases)

_PARTS = {
    "What a script does": (deeds, failures_under_stubborn_others, restarts),
    "Other processes end": (processes_that_die,),
    "Hosts go, come back, or never come": (hosts_that_go, hosts_that_come_back, hosts_that_never_come),
    "SIGTERM": (stops, work_outside_the_process_group, stops_that_cross_a_failure),
    "Processes that do not end": (what_cannot_be_killed, mpirun_that_does_not_end),
    "Output, disks and limits of a host": (output_that_nobody_reads, disks, hosts_that_have_too_little),
}
# The same cases, by what happens: {title: cases}
PARTS = {title: tuple(case for maker in makers for case in _CASES[maker]) for title, makers in _PARTS.items()}


# --- the rows that always run; `tests/run.sh --all` runs the others, too ---

Pair = tuple[tuple[str, str], ...]
# They take seconds of a processor; the same events with 10 MB are rows, too.
HEAVY = {"prints 100 MB of lines, ends well", "prints 100 MB without end of line, ends well"}
# Exit codes that are the same whatever the way: no requirements, a fault of the launcher, no way to restart.
ALIKE = {65, 70, 71}
# What happens most: it is shown for each way, and on the coordinator and on another host.
USUAL = {"script raises", "host is killed", "SIGTERM; scripts save and end well"}


def pairs_of(case: Case) -> set[Pair]:
    """Return the factors and pairs of factors that a case covers, such as its event, or its bound with its place."""
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
    """Return the kind of an exit code: all codes of a script are one kind, and all signals are one."""
    return {1: "its own", 3: "its own", 255: "its own", 134: "signal", 137: "signal", 139: "signal"}.get(
        code, str(code)
    )


def _cover(cases: tuple[Case, ...]) -> frozenset[str]:
    """Return the names of rows that together cover all pairs of factors.

    Each turn takes the row with the most uncovered pairs and, of equal rows, the one with the fewest hosts.
    """
    shows, hosts = {case.name: pairs_of(case) for case in cases}, {case.name: case.hosts for case in cases}
    left, chosen = set().union(*shows.values()), set()
    while left:
        best = max(shows, key=lambda name: (len(shows[name] & left), -hosts[name]))
        chosen.add(best)
        left -= shows[best]
    return frozenset(chosen)


PAIRS = _cover(tuple(case for case in CASES if case.event not in HEAVY))
