"""Pure: what `--quick` calls a failure: only what cannot be noise."""

import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from benchmarks.side_by_side.aims import aim
from benchmarks.side_by_side.cases import OURS, TOOLKIT, Case

LIMIT_S = 25.0  # for both sides, and for ours after the script's end or the fault, too
# For a peer after these: more is counted as that, which is in its favour. It sleeps for minutes, or for ever.
PEER_S = 10.0


def shortened(case: Case, side: str) -> Case:
    """As --quick runs it."""
    limit = min(case.limit_s, LIMIT_S)
    return replace(case, limit_s=limit, after_s=limit if side == OURS else min(limit, PEER_S))


def complaints(runs: Iterable[dict[str, Any]]) -> list[str]:
    """A run of ours that hung or ended wrongly; a ratio beyond half the aim's distance to 1. One line each."""
    found: list[str] = []
    figures: dict[tuple[str, str], dict[str, list[float]]] = {}  # by case and measure, and by side
    for run in runs:
        if run["side"] == "ours" and run["cut_at_s"] is not None:
            found.append(f"{run['case']}: ours had not ended after {run['cut_at_s']:g} s")
        elif run["side"] == "ours" and not run["right"]:
            found.append(f"{run['case']}: ours ended wrongly, exit codes {run['exit_codes']}")
        cut = {} if run["cut_at_s"] is None else dict.fromkeys(("tail_s", "gone_s"), run["cut_at_s"])
        for measure, value in {**cut, **run["measures"]}.items():
            figures.setdefault((run["case"], measure), {}).setdefault(run["side"], []).append(value)
    for (case, measure), sides in figures.items():
        goal = aim(case, measure)
        if not goal or not sides.keys() >= {OURS, TOOLKIT}:
            continue
        ours, toolkit = statistics.median(sides["ours"]), statistics.median(sides["toolkit"])
        if ours > goal.limit * toolkit:
            found.append(
                f"{case}: {measure} is {ours:.3g}, the toolkit's {toolkit:.3g}; "
                f"the aim is {goal.ratio:g} times that, the limit {goal.limit:.3g} times"
            )
    return found
