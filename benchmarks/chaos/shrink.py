"""Shrink a case that fails to a smaller one that fails in the same way."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.chaos.case import Case, Script

TRIES = 2  # of each smaller case: what fails by chance may need another


def rules_of(violations: list[str]) -> set[str]:
    return {violation.partition(":")[0] for violation in violations}


def shrink(case: Case, rules: set[str], judge: Callable[[Case], list[str]], seconds: float) -> Case:
    """Return the smallest case found within so many seconds that still violates one of the rules, by `judge`."""
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            for _ in range(TRIES):
                if time.monotonic() > deadline:
                    return case
                if rules & rules_of(judge(candidate)):
                    case, smaller = candidate, True
                    break
            if smaller:
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Yield smaller cases, those that leave out most first."""
    name = case.name.removesuffix(" shrunk") + " shrunk"
    for fault in case.faults:
        yield replace(case, name=name, faults=tuple(other for other in case.faults if other is not fault))
    needed = max([int(fault.host.removeprefix("algo-")) for fault in case.faults if fault.host != "all"], default=1)
    if case.hosts > needed:
        yield _cut_to(replace(case, name=name, hosts=case.hosts - 1))
    if case.each > 1:
        yield _cut_to(replace(case, name=name, each=case.each - 1))
    if case.settings.get("RESTARTS"):
        yield replace(case, name=name, settings={**case.settings, "RESTARTS": 0.0})
    if case.wrap:
        yield replace(case, name=name, wrap="")
    for who, script in case.scripts.items():
        plain = Script(seconds=case.seconds)
        if script != plain:
            yield replace(case, name=name, scripts={**case.scripts, who: plain})
            for field in ("flood", "orphans", "sigterm", "needs", "do"):
                if getattr(script, field) != getattr(plain, field):
                    simpler = replace(script, **{field: getattr(plain, field)})
                    if simpler != plain:
                        yield replace(case, name=name, scripts={**case.scripts, who: simpler})


def _cut_to(case: Case) -> Case:
    """Return the case without scripts of processes that are gone."""
    there = {f"{host} {process}" for host, process in case.processes}
    return replace(case, scripts={who: script for who, script in case.scripts.items() if who in there})
