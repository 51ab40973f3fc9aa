"""The page of a benchmark that compares no two sides: a row for each case, a column for each measure."""

from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import measured

NOT_A_CASE = ("measures", "round", "date", "title", "cut_at_s", "exit_codes", "group", "load", "seed")
HEADINGS = {
    "pipe": "Pipe mode",
    "threads": "Threads of two ranks on one host",
    "ps-loop": "Loops of parameter-server training",
    "kills": "Jobs killed at random moments",
    "resnet": "ResNet-50",
    "profile": "Where the time goes",
    "start-and-tail": "Start and tail of every mode",
}


def page(record: dict[str, Any]) -> list[str]:
    what, runs = record["what"], record["runs"]
    keys = [key for key in dict.fromkeys(key for run in runs for key in run) if key not in NOT_A_CASE]
    measures = list(dict.fromkeys(name for run in runs for name in run["measures"]))
    body = []
    for case in dict.fromkeys(tuple(run.get(key) for key in keys) for run in runs):
        of_case = [run for run in runs if tuple(run.get(key) for key in keys) == case]
        cells = [words.spread(measured(of_case, measure), measure, len(of_case)) for measure in measures]
        body.append([*("" if value is None else value for value in case), len(of_case), *cells])
    lines = [f"# {HEADINGS.get(what, what.replace('-', ' ').capitalize())}", ""]
    lines += words.provenance(record, f"{what}.json")
    loads = [run["load"] for run in runs if "load" in run]
    loaded = f" The load was {min(loads):.1f} to {max(loads):.1f} meanwhile." if loads else ""
    lines += words.prose(f"Figures are medians (least to most) of the rounds.{loaded}")
    return [*lines, *words.table([*keys, "runs", *map(words.heading, measures)], body)]
