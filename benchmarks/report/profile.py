"""The figures of the page that says where the time goes; what follows from them is written around them by hand."""

from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import Measured, measured

PARTS = {
    "start": ("From container start to the script's first line", "start_s"),
    "end": ("From the script's end to the container's exit", "tail_s"),
}


def page(record: dict[str, Any]) -> list[str]:
    runs = record["runs"]
    lines = ["# Where the time goes", "", *words.provenance(record, "profile.json")]
    lines += ["Milliseconds, medians (least to most).", ""]
    for case in dict.fromkeys(run["case"] for run in runs):
        of_case = [run for run in runs if run["case"] == case]
        sides: dict[str, list[dict[str, Any]]] = {}
        for run in of_case:
            sides.setdefault(run["side"], []).append(run)
        lines += [f"## {of_case[0].get('title', case)}", ""]
        for part, (said, total) in PARTS.items():
            names = dict.fromkeys(name for run in of_case for name, _ in run.get("phases", {}).get(part, []))
            body = [[name, *(_cell(_phase(of_side, part, name)) for of_side in sides.values())] for name in names]
            body.append(["**all of it**", *(_cell(measured(of_side, total)) for of_side in sides.values())])
            runs_of = [f"{side} ({words.plural(len(of_side), 'run')})" for side, of_side in sides.items()]
            lines += words.table([said, *runs_of], body)
    return lines


def _phase(runs: list[dict[str, Any]], part: str, name: str) -> Measured | None:
    """Phases of one name in one run, several ranks' say, count together."""
    sums = []
    for run in runs:
        if of_run := [seconds for each, seconds in run.get("phases", {}).get(part, []) if each == name]:
            sums.append(sum(of_run))
    return Measured(tuple(sums)) if sums else None


def _cell(figure: Measured | None) -> str:
    """Whole milliseconds, or tenths below ten."""
    if figure is None or figure.median is None:
        return ""
    middle, least, most = (_ms(value) for value in (figure.median, min(figure.values), max(figure.values)))
    return f"{middle} ({least} to {most})" if figure.runs > 1 else middle


def _ms(seconds: float) -> str:
    value = 1000 * seconds
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"
