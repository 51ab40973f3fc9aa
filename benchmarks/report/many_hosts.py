"""The page about many hosts on one machine: what grows how, and whether the aims at 1,000 are met."""

import math
from typing import Any

from benchmarks.many_hosts.aims import AIMED_AT, AIMS
from benchmarks.report import words
from benchmarks.report.figures import Measured, measured

PLOT = "many-hosts.svg"
TEXT = """
The launcher's own code for hosts that meet, report and end, with real sockets on loopback; many hosts in few processes,
which share the machine's CPUs with the coordinator. No user's program runs. Figures are medians (least to most) of
{rounds}.
"""


def by_hosts(runs: list[dict[str, Any]]) -> dict[str, dict[int, Measured]]:
    """measure: {hosts: figure}, hosts from few to many."""
    found: dict[str, dict[int, Measured]] = {}
    for measure in dict.fromkeys(name for run in runs for name in run["measures"]):
        for hosts in sorted({run["hosts"] for run in runs}):
            if figure := measured([run for run in runs if run["hosts"] == hosts], measure):
                found.setdefault(measure, {})[hosts] = figure
    return found


def exponent(figures: dict[int, Measured]) -> float | None:
    """p of the growth as hosts ** p, between the two largest counts. None: there are no two, or one of them is 0."""
    if len(figures) < 2:
        return None
    (few, before), (many, after) = list(figures.items())[-2:]
    if not (before.median and after.median):
        return None
    return math.log(after.median / before.median) / math.log(many / few)


def page(record: dict[str, Any]) -> list[str]:
    found = by_hosts(record["runs"])
    lines = ["# Many hosts on one machine", "", *words.provenance(record, "many-hosts.json")]
    rounds = max((figure.runs for figures in found.values() for figure in figures.values()), default=0)
    lines += words.prose(TEXT.format(rounds=words.plural(rounds, "round")))
    judged = [_judge(measure, most, found.get(measure, {}).get(AIMED_AT)) for measure, most in AIMS.items()]
    met = sum(row[-1] == words.verdict(True) for row in judged)
    lines += [f"**At {AIMED_AT:,} hosts, {met} of {words.plural(len(judged), 'aim')} met.**", ""]
    lines += words.table(["", "aim, at most", "median", ""], judged)
    lines += [f"![Growth with the number of hosts]({PLOT})", ""]
    counts = sorted({run["hosts"] for run in record["runs"]})
    head = ["", *(f"{count:,} hosts" for count in counts), "grows as hosts to the power of"]
    body = []
    for measure, figures in found.items():
        power = exponent(figures)
        cells = [words.spread(figures.get(count), measure, rounds) for count in counts]
        body.append([words.heading(measure), *cells, "" if power is None else f"{round(power, 2) + 0:.2f}"])
    largest = " and ".join(f"{count:,}" for count in counts[-2:])
    return [*lines, *words.table(head, body), f"The power is that of the growth between {largest} hosts.", ""]


def _judge(measure: str, most: float, figure: Measured | None) -> list[str]:
    def shown(value: float) -> str:
        return f"{words.number(words.in_unit(value, measure))} {words.unit(measure)}".strip()

    if figure is None or figure.median is None:
        return [words.title(measure), shown(most), "not measured", words.verdict(None)]
    return [words.title(measure), shown(most), shown(figure.median), words.verdict(figure.median <= most)]
