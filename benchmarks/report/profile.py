"""The figures of the page that says where the time goes; what follows from them is written around them by hand."""

from typing import Any

from benchmarks.report.figures import Measured, Run, measured, where

PARTS = {
    "start": ("From container start to the script's first line", "start_s"),
    "end": ("From the script's end to the container's exit", "tail_s"),
}


def context(record: dict[str, Any]) -> dict[str, Any]:
    """What the page's template takes beside the record."""
    runs, tables = record["runs"], {}
    for case, title in {run["case"]: run.get("title", run["case"]) for run in runs}.items():
        of_case = where(runs, case=case)
        sides = {side: where(of_case, side=side) for side in dict.fromkeys(run["side"] for run in of_case)}
        tables[title] = [
            {"heading": heading, "runs": {side: len(each) for side, each in sides.items()}, "lines": {
                **{name: [phase(each, part, name) for each in sides.values()] for name in names(of_case, part)},
                "**all of it**": [measured(each, total) for each in sides.values()],
            }} for part, (heading, total) in PARTS.items()
        ]  # fmt: skip
    return {"tables": tables}


def names(runs: list[Run], part: str) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name, _ in run.get("phases", {}).get(part, [])))


def phase(runs: list[Run], part: str, name: str) -> Measured | None:
    """Phases of one name in one run, several ranks' say, count together."""
    found = [[seconds for each, seconds in run.get("phases", {}).get(part, []) if each == name] for run in runs]
    sums = tuple(sum(of_run) for of_run in found if of_run)
    return Measured(sums) if sums else None
