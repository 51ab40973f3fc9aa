"""Select the runs of `--quick`, and list the failures that noise cannot explain. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from benchmarks.side_by_side.aims import aim
from benchmarks.side_by_side.cases import OURS, TOOLKIT, Case

Run = dict[str, Any]

CASES = (  # failures, stops and every way to start
    "start-single-1", "start-ps-2", "start-mpi-2x1", "raise-ps-2-worker", "raise-mpi-2-rank-1", "stop-single-1",
    "log-single-1",
)  # fmt: skip
ROUNDS = 3  # a case runs again while it is too slow: the outcome table may have had both cores
# For both sides, and for ours after the script's end or the fault, too: says that nothing hung.
LIMIT_S = 90.0
# For a peer after these. It sleeps for minutes, or for ever: a longer time counts as this one, in its favour.
PEER_S = 10.0


def shortened(case: Case, side: str) -> Case:
    """Return the case as --quick runs it."""
    limit = min(case.limit_s, LIMIT_S)
    return replace(case, limit_s=limit, after_s=limit if side == OURS else min(limit, PEER_S))


def is_due(case: Case, number: int, runs: Iterable[Run]) -> bool:
    """Return whether the case runs in this round: in the first, and again while it is too slow."""
    return number == 1 or case.name in too_slow(runs)


def complaints(runs: Iterable[Run]) -> list[str]:
    """Return a line for each run of our launcher that hung or failed, and for each ratio too large for noise."""
    runs = list(runs)
    found: list[str] = []
    for run in runs:
        if run["side"] == OURS and run["cut_at_s"] is not None:
            found.append(f"{run['case']}: ours had not ended after {run['cut_at_s']:g} s")
        elif run["side"] == OURS and not run["right"]:
            found.append(f"{run['case']}: ours ended wrongly, exit codes {run['exit_codes']}")
    return found + [line for lines in too_slow(runs).values() for line in lines]


def too_slow(runs: Iterable[Run]) -> dict[str, list[str]]:
    """Return, by case, a line for each ratio beyond half the aim's distance to 1.

    The best run of each side counts, since other work of the machine only adds time.
    """
    figures: dict[tuple[str, str], dict[str, list[float]]] = {}  # by case and measure, and by side
    for run in runs:
        cut = {} if run["cut_at_s"] is None else dict.fromkeys(("tail_s", "gone_s"), run["cut_at_s"])
        for measure, value in {**cut, **run["measures"]}.items():
            figures.setdefault((run["case"], measure), {}).setdefault(run["side"], []).append(value)
    found: dict[str, list[str]] = {}
    for (case, measure), sides in figures.items():
        goal = aim(case, measure)
        if not goal or not sides.keys() >= {OURS, TOOLKIT}:
            continue
        ours, toolkit = min(sides[OURS]), min(sides[TOOLKIT])
        if ours > goal.limit * toolkit:
            found.setdefault(case, []).append(
                f"{case}: {measure} is {ours:.3g}, the toolkit's {toolkit:.3g}; "
                f"the aim is {goal.ratio:g} times that, the limit {goal.limit:.3g} times"
            )
    return found
