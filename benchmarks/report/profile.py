"""Fill the figures of the page about where the time goes; the text around them is written by hand."""

from typing import Any

from benchmarks.report.figures import Measured, Run, measured, where

OURS, FLOOR = "ours", "floor"
LEAST_S = 0.0005  # phases that are shorter on every side are not shown
PARTS = {
    "start": ("container start to the script's first line", "start_s"),
    "end": ("the script's end to the container's exit", "tail_s"),
}


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    runs = record["runs"]
    tables: dict[str, list[dict[str, Any]]] = {}
    sides_of: dict[str, list[str]] = {}
    counts: set[int] = set()
    extra: dict[str, list[float]] = {part: [] for part in PARTS}
    for case, title in {run["case"]: run.get("title", run["case"]) for run in runs}.items():
        of_case = where(runs, case=case)
        sides = {side: where(of_case, side=side) for side in dict.fromkeys(run["side"] for run in of_case)}
        sides_of[title] = list(sides)
        counts |= {len(each) for each in sides.values()}
        tables[title] = [
            {"heading": heading, "lines": lines(of_case, list(sides.values()), part),
             "total": [measured(each, total) for each in sides.values()]}
            for part, (heading, total) in PARTS.items()
        ]  # fmt: skip
        for part, (_, total) in PARTS.items():
            ours, floor = (measured(where(of_case, side=side), total) for side in (OURS, FLOOR))
            if ours and floor and ours.median is not None and floor.median is not None:
                extra[part].append(1000 * (ours.median - floor.median))
    added = {part: _range(each) for part, each in extra.items()}
    return {"tables": tables, "sides": sides_of, "counts": sorted(counts), "added": added}


def lines(runs: list[Run], sides: list[list[Run]], part: str) -> dict[str, list[Measured | None]]:
    """Return {phase: its figure on each side}, of a part's phases of some length; empty if there is only one."""
    found = {name: [phase(each, part, name) for each in sides] for name in names(runs, part)}
    long = {
        name: figures
        for name, figures in found.items()
        if any(each and each.median is not None and each.median >= LEAST_S for each in figures)
    }
    return long if len(long) > 1 else {}


def _range(milliseconds: list[float]) -> str:
    return f"{min(milliseconds):.0f} to {max(milliseconds):.0f}" if milliseconds else ""


def names(runs: list[Run], part: str) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name, _ in run.get("phases", {}).get(part, [])))


def phase(runs: list[Run], part: str, name: str) -> Measured | None:
    """Return the sum of all phases of one name, as of several ranks, run by run."""
    found = [[seconds for each, seconds in run.get("phases", {}).get(part, []) if each == name] for run in runs]
    sums = tuple(sum(of_run) for of_run in found if of_run)
    return Measured(sums) if sums else None
