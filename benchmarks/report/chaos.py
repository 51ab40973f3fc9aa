"""The page about random jobs under random faults: what was drawn, what happened, what was not as it has to be."""

from collections import Counter
from statistics import median
from typing import Any

from benchmarks.report import words

TEXT = """
Whole jobs with real processes, drawn from the seed: mode, hosts, settings, what scripts do, and faults at random
moments. An oracle that shares no code with the launcher judges each by what happened: that all hosts end in time,
with one code and one text; that neither success nor failure is told wrongly; that the cause that is named happened
and is nobody's consequence; that who asked for time to save has saved; that nothing stays behind; and that no line of
output is lost, mixed or given to another. benchmarks/chaos/README.md has the rules.
"""


def page(record: dict[str, Any]) -> list[str]:
    runs = record["runs"]
    bad = [run for run in runs if run["violations"]]
    lines = ["# Random jobs under random faults", "", *words.provenance(record, "chaos.json"), *words.prose(TEXT)]
    least = record.get("limits", {}).get("least_faults", 0)
    enough = [run for run in runs if len(run["happened"]) >= least]
    lines += [f"**{_judged(enough, words.plural(least, 'fault') + ' or more')}.**", ""]
    if len(enough) < len(runs):
        others = [run for run in runs if len(run["happened"]) < least]
        lines += words.prose(
            f"{_judged(others, 'fewer, as some that were drawn did not happen')}. The tables have all "
            f"{words.plural(len(runs), 'job')}."
        )
    for key in ("mode", "hosts"):
        lines += words.table([key, *_HEAD], [_row(name, _of(runs, key, name)) for name in _names(runs, key)])
    lines += words.prose(
        "How a job ended is the exit code of its hosts that were not themselves killed. The end is counted from the "
        "first thing that ends a job (a script's failure, SIGTERM, or else the first host's word on it) to the last "
        "host's going; time to save, a host's time to be missed and a host's pause are in it."
    )
    faults = sorted({kind for run in runs for kind in run["drawn"]})
    lines += words.table(
        ["fault", "drawn", "happened", "jobs", "violations"],
        [_fault(kind, runs) for kind in faults],
    )
    lines += words.prose(
        "A fault has happened when it met a live host of the job. It does not where its moment never came: the job was "
        "over, nobody wrote the line, or nobody looked up a name while that was slow."
    )
    counts = sorted({len(run[what]) for run in runs for what in ("drawn", "happened")})
    lines += words.table(
        ["faults in a job", "jobs with so many drawn", "jobs in which so many happened", "violations in these"],
        [_count(count, runs) for count in counts],
    )
    lines += words.prose(
        f"The machine stood still for {words.number(max(run['measures']['stood_still_s'] for run in runs))} s at most "
        "in a job."
    )
    if bad:
        rules = ((run["case"], ", ".join(run["violations"])) for run in bad)
        lines += words.table(["case", "rules that were violated"], rules)
    return lines


_HEAD = ("jobs", "ended with 0", "143", "69", "75", "another", "violations", "whole job, s", "end, s")


def _judged(runs: list[dict[str, Any]], which: str) -> str:
    bad = sum(bool(run["violations"]) for run in runs)
    return f"{words.plural(len(runs), 'job')} with {which}: {words.plural(bad, 'violation')}"


def _of(runs: list[dict[str, Any]], key: str, value: Any) -> list[dict[str, Any]]:
    return [run for run in runs if run[key] == value]


def _row(name: Any, runs: list[dict[str, Any]]) -> list[Any]:
    ends = Counter(_end(run["exits"]) for run in runs)
    known = [str(code) for code in (0, 143, 69, 75)]
    return [
        name, len(runs), *(ends[code] for code in known), sum(ends.values()) - sum(ends[code] for code in known),
        sum(bool(run["violations"]) for run in runs), _times(runs, "wall_s"), _times(runs, "end_s"),
    ]  # fmt: skip


def _end(exits: list[str]) -> str:
    """The code of the hosts that had one; those that were cut off or lost have another than the rest."""
    codes = [exit for exit in exits if exit.isdigit()]
    others = [code for code in codes if code != "69"]
    return (others or codes or ["killed"])[0]


def _times(runs: list[dict[str, Any]], measure: str) -> str:
    known = sorted(run["measures"][measure] for run in runs if measure in run["measures"])
    return f"{words.number(median(known))} (worst {words.number(known[-1])})" if known else ""


def _fault(kind: str, runs: list[dict[str, Any]]) -> list[Any]:
    own = [run for run in runs if kind in run["drawn"]]
    drawn, happened = (sum(run[what].count(kind) for run in own) for what in ("drawn", "happened"))
    return [kind, drawn, happened, len(own), sum(bool(run["violations"]) for run in own)]


def _count(count: int, runs: list[dict[str, Any]]) -> list[Any]:
    happened = [run for run in runs if len(run["happened"]) == count]
    drawn = sum(len(run["drawn"]) == count for run in runs)
    return [count, drawn, len(happened), sum(bool(run["violations"]) for run in happened)]


def _names(runs: list[dict[str, Any]], key: str) -> list[Any]:
    return list(dict.fromkeys(sorted(run[key] for run in runs)))
